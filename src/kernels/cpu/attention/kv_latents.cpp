#include "kernels/cpu/attention/kv_latents.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/types/fp8.h"

namespace sluice::cpu {
namespace {

constexpr int kNanExponent = 255;

// The exponent byte of the smallest power of two by which numbers up to `largest` are at most
// `limit` after division; not below 2^-110, so that products with the scale are exact.
int exponent_for(float largest, float limit) {
  int exponent = 0;
  std::frexp(largest / limit, &exponent);
  // In [0.5, 1) times 2^exponent: the power itself where the fraction is 0.5.
  const bool is_power = std::ldexp(1.0F, exponent - 1) * limit >= largest;
  return std::clamp(exponent - (is_power ? 1 : 0), -110, 100) + 127;
}

std::uint8_t code_of(float x, bool is_e4m3) {
  if (is_e4m3) return ops::to_e4m3(x);
  return static_cast<std::uint8_t>(static_cast<std::int8_t>(std::nearbyint(x)));
}

void write_row(const float* latent, const float* rope, const LatentCodes& codes, std::uint8_t* to) {
  const ops::LatentRow& row = codes.row;
  for (std::int64_t g = 0; g < row.groups(); ++g) {
    const std::int64_t begin = g * ops::kLatentGroup,
                       end = std::min(row.latent, begin + ops::kLatentGroup);
    float largest = 0;
    for (std::int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(latent[i]));
    // NaN or infinity in a group: its scale is NaN, and its numbers are 0.
    const bool finite =
        std::all_of(latent + begin, latent + end, [](float x) { return std::isfinite(x); });
    const int exponent =
        finite ? exponent_for(largest, codes.is_e4m3 ? ops::kMaxE4M3 : 127.0F) : kNanExponent;
    const float factor = std::ldexp(1.0F, 127 - exponent);
    for (std::int64_t i = begin; i < end; ++i)
      to[i] = finite ? code_of(latent[i] * factor, codes.is_e4m3) : std::uint8_t{0};
    to[row.exponents_at() + g] = static_cast<std::uint8_t>(exponent);
  }
  std::fill(to + row.latent, to + row.rope_at(), std::uint8_t{0});
  for (std::int64_t i = 0; i < row.rope; ++i) {
    const BF16 rounded(rope[i]);
    std::memcpy(to + row.rope_at() + 2 * i, &rounded, 2);
  }
  std::fill(to + row.exponents_at() + row.groups(), to + row.bytes(), std::uint8_t{0});
}

}  // namespace

LatentCodes codes_of(const Tensor& plane, const ops::LatentRow& row) {
  return {.plane = static_cast<const std::uint8_t*>(plane.data),
          .stride = plane.stride[0],
          .row = row,
          .is_e4m3 = plane.dtype == DType::kF8E4M3};
}

void write_latent_codes(Context& ctx, const Tensor& latent, const Tensor& rope, const Tensor& slots,
                        const Tensor& plane) {
  const LatentCodes codes = codes_of(plane, {latent.dim(1), rope.dim(1)});
  const auto* slot = slots.ptr<std::int64_t>();
  for (std::int64_t t = 0; t < slots.dim(0); ++t)
    check(slot[t] >= 0 && slot[t] < plane.dim(0), "slot {} of {}", slot[t], plane.dim(0));
  parallel(ctx, latent.dim(0), 8 * plane.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      write_row(row<float>(latent, t), row<float>(rope, t), codes,
                static_cast<std::uint8_t*>(plane.data) + slot[t] * codes.stride);
  });
}

void gather_latent_codes(Context& ctx, const Tensor& plane, const Tensor& slots,
                         std::int64_t latent, const Tensor& out) {
  const std::int64_t d = out.dim(1);
  const LatentCodes codes = codes_of(plane, {latent, d - latent});
  const auto* slot = slots.ptr<std::int32_t>();
  for (std::int64_t i = 0; i < slots.dim(0); ++i)
    check(slot[i] >= 0 && slot[i] < plane.dim(0), "slot {} of {}", slot[i], plane.dim(0));
  const auto widen = kernels(ctx).widen_latents;
  parallel(ctx, out.dim(0), 4 * d, [&](std::int64_t begin, std::int64_t end) {
    std::vector<BF16> widened(static_cast<std::size_t>(d));
    for (std::int64_t i = begin; i < end; ++i) {
      widen(codes, {.base = slot[i]}, 0, 1, widened.data());
      std::transform(widened.begin(), widened.end(), row<float>(out, i),
                     [](BF16 x) { return static_cast<float>(x); });
    }
  });
}

}  // namespace sluice::cpu
