// 64-bit hashing for tables, namespaces and plan fingerprints. Not for secrets.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace sluice {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

constexpr std::uint64_t hash_combine(std::uint64_t seed, std::uint64_t value) {
  return mix64(seed ^ mix64(value));
}

inline std::uint64_t hash_bytes(const void* data, std::size_t size, std::uint64_t seed = 0) {
  const auto* p = static_cast<const unsigned char*>(data);
  std::uint64_t h = mix64(seed ^ size);
  for (; size >= 8; size -= 8, p += 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    h = mix64(h ^ word);
  }
  std::uint64_t tail = 0;
  if (size > 0) std::memcpy(&tail, p, size);
  return mix64(h ^ tail);
}

inline std::uint64_t hash_bytes(std::string_view text, std::uint64_t seed = 0) {
  return hash_bytes(text.data(), text.size(), seed);
}

template <class T>
std::uint64_t hash_span(std::span<const T> values, std::uint64_t seed = 0) {
  static_assert(std::is_trivially_copyable_v<T>);
  return hash_bytes(values.data(), values.size_bytes(), seed);
}

}  // namespace sluice
