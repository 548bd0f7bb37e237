// FP8 weights in rows: the definition of the arithmetic (kernels/types/fp8.h), for the tests of
// every device. Models on a CPU keep FP8 in fragments (fragment_rows.h).
#include <vector>

#include "kernels/cpu/common/bias.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kLanes = 16;  // partial sums, so that the compiler vectorises

float at_column(const Tensor& x, std::int64_t m, std::int64_t k) {
  return x.dtype == DType::kBF16 ? static_cast<float>(row<BF16>(x, m)[k]) : row<float>(x, m)[k];
}

// Rows of x as e4m3, widened again, with the scale of each group.
struct Fp8Rows {
  std::int64_t columns, width, groups;
  std::vector<float> values, scales;  // [M, columns], [M, groups]

  Fp8Rows(const Tensor& x, std::int64_t group)
      : columns(x.dim(1)),
        width(group == 0 ? columns : group),
        groups(ops::fp8_groups(columns, group)),
        values(static_cast<std::size_t>(x.dim(0) * columns)),
        scales(static_cast<std::size_t>(x.dim(0) * groups)) {
    const std::array<float, 256> widened = ops::e4m3_values();
    for (std::int64_t m = 0; m < x.dim(0); ++m)
      for (std::int64_t g = 0; g < groups; ++g) {
        const std::int64_t begin = g * width, end = std::min(columns, begin + width);
        float largest = 0;
        for (std::int64_t k = begin; k < end; ++k) {
          const float size = std::abs(at_column(x, m, k));
          largest = size <= largest ? largest : size;  // a NaN stays
        }
        const auto [scale, factor] = ops::fp8_scale(largest);
        scales[static_cast<std::size_t>(m * groups + g)] = scale;
        for (std::int64_t k = begin; k < end; ++k)
          values[static_cast<std::size_t>(m * columns + k)] =
              factor == 0 ? 0.0f : widened[ops::to_e4m3(at_column(x, m, k) * factor)];
      }
  }
};

// The sum of x[k] w[k] over a group.
float dot(const float* x, const float* w, std::int64_t count) {
  float lanes[kLanes] = {};
  std::int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes)
    for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] += x[k + i] * w[k + i];
  for (std::int64_t i = 0; k + i < count; ++i) lanes[i] += x[k + i] * w[k + i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace

void linear_fp8(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                const Tensor& out) {
  const std::int64_t rows = x.dim(0), columns = w.columns;
  if (rows == 0 || w.rows == 0) return;
  const Fp8Rows codes(x, w.group);
  const std::array<float, 256> widened = ops::e4m3_values();
  const auto scale_of = [&](std::int64_t n, std::int64_t g) {
    return w.group == 0 ? w.scales.ptr<float>()[n]
                        : row<float>(w.scales, g)[n / ops::kFp8ScaleRows];
  };
  parallel(ctx, w.rows, rows * columns, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> weights(static_cast<std::size_t>(columns));
    for (std::int64_t n = begin; n < end; ++n) {
      const std::uint8_t* from = row<std::uint8_t>(w.data, n);
      for (std::int64_t k = 0; k < columns; ++k)
        weights[static_cast<std::size_t>(k)] = widened[from[k]];
      for (std::int64_t m = 0; m < rows; ++m) {
        float sum = 0;
        for (std::int64_t g = 0; g < codes.groups; ++g) {
          const std::int64_t first = g * codes.width;
          const float scale =
              codes.scales[static_cast<std::size_t>(m * codes.groups + g)] * scale_of(n, g);
          sum = std::fma(dot(codes.values.data() + m * columns + first, weights.data() + first,
                             std::min(codes.width, columns - first)),
                         scale, sum);
        }
        row<float>(out, m)[n] = sum + bias_at(bias, n);
      }
    }
  });
}

}  // namespace sluice::cpu
