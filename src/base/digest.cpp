#include "base/digest.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sluice {
namespace {

std::uint32_t load_big_endian(const std::byte* p) {
  std::uint32_t word;
  std::memcpy(&word, p, 4);
  return __builtin_bswap32(word);
}

template <std::size_t N>
std::string hex_of(const std::array<std::uint32_t, N>& state) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint32_t word : state)
    for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[(word >> shift) & 15];
  return text;
}

void sha1_compress(std::uint32_t* state, const std::byte* blocks, std::size_t count) {
  for (; count > 0; --count, blocks += 64) {
    std::uint32_t w[80];
    for (int i = 0; i < 16; ++i) w[i] = load_big_endian(blocks + 4 * i);
    for (int i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    std::uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int i = 0; i < 80; ++i) {
      const std::uint32_t f = i < 20   ? (b & c) | (~b & d)
                              : i < 40 ? b ^ c ^ d
                              : i < 60 ? (b & c) | (b & d) | (c & d)
                                       : b ^ c ^ d;
      const std::uint32_t k = i < 20   ? 0x5a827999
                              : i < 40 ? 0x6ed9eba1
                              : i < 60 ? 0x8f1bbcdc
                                       : 0xca62c1d6;
      const std::uint32_t next = std::rotl(a, 5) + f + e + k + w[i];
      e = d;
      d = c;
      c = std::rotl(b, 30);
      b = a;
      a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
  }
}

}  // namespace

alignas(16) const std::uint32_t kSha256Rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void DigestBuffer::update(Compress compress, std::uint32_t* state,
                          std::span<const std::byte> bytes) {
  const std::size_t held = num_bytes_ % 64;
  num_bytes_ += bytes.size();
  if (held > 0) {
    const std::size_t taken = std::min(bytes.size(), 64 - held);
    std::copy_n(bytes.begin(), taken, held_.begin() + static_cast<std::ptrdiff_t>(held));
    bytes = bytes.subspan(taken);
    if (held + taken < 64) return;
    compress(state, held_.data(), 1);
  }
  compress(state, bytes.data(), bytes.size() / 64);
  std::copy(bytes.end() - static_cast<std::ptrdiff_t>(bytes.size() % 64), bytes.end(),
            held_.begin());
}

void DigestBuffer::finish(Compress compress, std::uint32_t* state) {
  const std::uint64_t num_bits = num_bytes_ * 8;
  std::array<std::byte, 72> padding{std::byte{0x80}};
  // Up to 8 bytes before the end of a block.
  const std::size_t zeros = (119 - num_bytes_ % 64) % 64 + 1;
  const std::uint64_t big_endian = __builtin_bswap64(num_bits);
  update(compress, state, std::span(padding).first(zeros));
  update(compress, state, std::as_bytes(std::span(&big_endian, 1)));
}

void sha256_compress_portable(std::uint32_t* state, const std::byte* blocks, std::size_t count) {
  for (; count > 0; --count, blocks += 64) {
    std::uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = load_big_endian(blocks + 4 * i);
    for (int i = 16; i < 64; ++i) {
      const std::uint32_t s0 =
          std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    std::array<std::uint32_t, 8> v;
    std::copy_n(state, 8, v.begin());
    auto& [a, b, c, d, e, f, g, h] = v;
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kSha256Rounds[i] + w[i];
      const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + t1;
      d = c;
      c = b;
      b = a;
      a = t1 + t2;
    }
    for (std::size_t i = 0; i < 8; ++i) state[i] += v[i];
  }
}

Sha256::Sha256()
    : compress_(has_sha256_instructions() ? sha256_compress_native : sha256_compress_portable),
      state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

std::string Sha256::hex() {
  buffer_.finish(compress_, state_.data());
  return hex_of(state_);
}

Sha1::Sha1() : state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0} {}

void Sha1::update(std::span<const std::byte> bytes) {
  buffer_.update(sha1_compress, state_.data(), bytes);
}

std::string Sha1::hex() {
  buffer_.finish(sha1_compress, state_.data());
  return hex_of(state_);
}

}  // namespace sluice
