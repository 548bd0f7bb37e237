#include <cmath>

#include "kernels/cpu/common/rotate.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {

void rotate_head(float* x, const float* cos_sin, std::int64_t half, bool interleaved) {
  const float* cos = cos_sin;
  const float* sin = cos_sin + half;
  if (interleaved) {
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * cos[i] - b * sin[i];
      x[2 * i + 1] = b * cos[i] + a * sin[i];
    }
    return;
  }
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * cos[i] - b * sin[i];
    x[half + i] = b * cos[i] + a * sin[i];
  }
}

void rope_cos_sin(Context& ctx, const Tensor& positions, const Tensor& inv_freq,
                  float attention_factor, const Tensor& cos_sin) {
  const std::int64_t half = inv_freq.dim(0);
  const auto* position = positions.ptr<std::int32_t>();
  const auto* frequency = inv_freq.ptr<float>();
  // A double sine costs about as much as 32 elements of other work.
  parallel(ctx, positions.dim(0), 64 * half, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      float* out = row<float>(cos_sin, t);
      for (std::int64_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(position[t]) * frequency[i];
        out[i] = static_cast<float>(std::cos(static_cast<double>(angle))) * attention_factor;
        out[half + i] = static_cast<float>(std::sin(static_cast<double>(angle))) * attention_factor;
      }
    }
  });
}

void rope(Context& ctx, const Tensor& cos_sin, const Tensor& x, bool interleaved) {
  const std::int64_t heads = x.dim(1), half = x.dim(2) / 2;
  parallel(ctx, x.dim(0) * heads, 2 * half, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      rotate_head(at<float>(x, i / heads, i % heads), row<float>(cos_sin, i / heads), half,
                  interleaved);
  });
}

}  // namespace sluice::cpu
