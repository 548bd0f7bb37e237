#include "kernels/cpu/attention/kv_scaled.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/common/rows.h"

namespace sluice::cpu {
namespace {

using ops::KvPlane;

constexpr float kMax = 448;  // largest e4m3 number

std::int64_t dim_of(const KvPlane& plane) {
  return plane.data.dim(1) - ops::kKeyScaleBytes;
}
std::uint8_t* page_at(const KvPlane& plane, std::int64_t page) {
  return plane.data.ptr<std::uint8_t>() + page * plane.page_elements();
}
std::uint8_t* key_at(const KvPlane& plane, std::int64_t slot) {
  return page_at(plane, slot / kPageSize) + slot % kPageSize * dim_of(plane);
}
float* scale_at(const KvPlane& plane, std::int64_t slot) {
  return reinterpret_cast<float*>(page_at(plane, slot / kPageSize) + kPageSize * dim_of(plane)) +
         slot % kPageSize;
}

// FP8 e4m3: sign, 4 exponent bits with bias 7, 3 mantissa bits; all ones is NaN. |x| <= 448.
std::uint8_t to_e4m3(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint8_t>(bits >> 24 & 0x80u);
  const std::uint32_t size = bits & 0x7FFFFFFFu;
  if (size < (127u - 6u) << 23)  // subnormal: below 2^-6 the step is 2^-9
    return static_cast<std::uint8_t>(
        sign | static_cast<std::uint8_t>(std::nearbyint(std::abs(x) * 512.0f)));
  // Round to nearest even at mantissa bit 20 and change the exponent bias.
  return static_cast<std::uint8_t>(
      sign | (((size + 0x7FFFFu + (size >> 20 & 1u)) >> 20) - ((127u - 7u) << 3)));
}

std::array<BF16, 256> widened() {
  std::array<BF16, 256> all;
  for (int i = 0; i < 256; ++i) {
    const int exponent = i >> 3 & 15, mantissa = i & 7;
    const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                     : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    all[static_cast<std::size_t>(i)] = BF16(i < 128 ? size : -size);
  }
  return all;
}

// The smallest power of two by which numbers up to the argument fit e4m3 after division.
float scale_for(float most) {
  if (most == 0) return 1;
  int exponent = 0;
  const float part = std::frexp(most, &exponent);  // in [0.5, 1)
  return std::ldexp(1.0f, std::max(part <= kMax / 512 ? exponent - 9 : exponent - 8, -126));
}

}  // namespace

void kv_write_scaled(Context& ctx, const Tensor& src, const std::int64_t* slots,
                     const KvPlane& plane) {
  const std::int64_t dim = dim_of(plane);
  parallel(ctx, num_rows(src), 4 * dim, [&](std::int64_t begin, std::int64_t end) {
    // One scale per key.
    for (std::int64_t t = begin; t < end; ++t) {
      const float* from = row<float>(src, t);
      float most = 0;
      bool finite = true;
      for (std::int64_t i = 0; i < dim; ++i) {
        finite = finite && std::isfinite(from[i]);
        most = std::max(most, std::abs(from[i]));
      }
      // NaN or infinity in a key: scale NaN, all numbers 0.
      const float scale = finite ? scale_for(most) : 1.0f;
      std::uint8_t* to = key_at(plane, slots[t]);
      for (std::int64_t i = 0; i < dim; ++i)
        to[i] = finite ? to_e4m3(from[i] / scale) : std::uint8_t{0};
      *scale_at(plane, slots[t]) = finite ? scale : std::numeric_limits<float>::quiet_NaN();
    }
  });
}

void kv_move_scaled(const KvPlane& plane, const std::int64_t* from, const std::int64_t* to,
                    std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (from[i] == to[i]) continue;
    std::memcpy(key_at(plane, to[i]), key_at(plane, from[i]),
                static_cast<std::size_t>(dim_of(plane)));
    *scale_at(plane, to[i]) = *scale_at(plane, from[i]);
  }
}

void widen_keys(const KvPlane& plane, std::int64_t page, std::int64_t count, BF16* keys) {
  // All 256 codes, widened once.
  static const std::array<BF16, 256> table = widened();
  const std::uint8_t* from = page_at(plane, page);
  for (std::int64_t i = 0; i < count * dim_of(plane); ++i) keys[i] = table[from[i]];
}

const float* key_scales(const KvPlane& plane, std::int64_t page) {
  return scale_at(plane, page * kPageSize);
}

}  // namespace sluice::cpu
