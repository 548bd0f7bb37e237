#include "kernels/cpu/attention/kv_scaled.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/common/rows.h"
#include "kernels/types/fp8.h"

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

std::array<BF16, 256> widened() {
  const std::array<float, 256> values = ops::e4m3_values();
  std::array<BF16, 256> all;
  std::transform(values.begin(), values.end(), all.begin(),
                 [](float value) { return BF16(value); });
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
        to[i] = finite ? ops::to_e4m3(from[i] / scale) : std::uint8_t{0};
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
