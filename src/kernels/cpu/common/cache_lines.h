// Scratch memory of a call, on 64 bytes and not set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sluice::cpu {

struct alignas(64) CacheLine {
  std::byte bytes[64];
};
using CacheLines = std::unique_ptr<CacheLine[]>;

inline CacheLines take_lines(std::int64_t bytes) {
  return std::make_unique_for_overwrite<CacheLine[]>(static_cast<std::size_t>((bytes + 63) / 64));
}

}  // namespace sluice::cpu
