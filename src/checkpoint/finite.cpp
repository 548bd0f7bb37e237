#include "checkpoint/finite.h"

#include <algorithm>
#include <cstring>

namespace sluice {
namespace {

// NaN and the infinities have an exponent of all ones.
template <class Bits>
std::optional<std::int64_t> first_with(Bits exponent, const std::byte* data, std::int64_t count) {
  constexpr std::int64_t kBlock = 1024;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    Bits block[kBlock];
    const std::int64_t size = std::min(kBlock, count - begin);
    std::memcpy(block, data + begin * static_cast<std::int64_t>(sizeof(Bits)),
                static_cast<std::size_t>(size) * sizeof(Bits));
    int found = 0;
    for (std::int64_t i = 0; i < size; ++i) found |= (block[i] & exponent) == exponent;
    if (found == 0) continue;
    for (std::int64_t i = 0; i < size; ++i)
      if ((block[i] & exponent) == exponent) return begin + i;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> first_not_finite(DType dtype, const std::byte* data,
                                             std::int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return first_with<std::uint32_t>(0x7f800000u, data, count);
    case DType::kBF16:
      return first_with<std::uint16_t>(0x7f80u, data, count);
    case DType::kF16:
      return first_with<std::uint16_t>(0x7c00u, data, count);
    case DType::kF64:
      return first_with<std::uint64_t>(0x7ff0000000000000ull, data, count);
    default:
      return std::nullopt;
  }
}

}  // namespace sluice
