// int8 weights in rows: the definition of the arithmetic (kernels/types/int8_rows.h), for the tests
// of every device. Models on a CPU keep such weights in fragments
// (kernels/cpu/fragments/int8_rows.h).
#include "kernels/types/int8_rows.h"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/common/bias.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {
namespace {

float at_column(const Tensor& x, std::int64_t m, std::int64_t k) {
  return x.dtype == DType::kBF16 ? static_cast<float>(row<BF16>(x, m)[k]) : row<float>(x, m)[k];
}

// Codes of a row, and its scale.
float round_row(const Tensor& x, std::int64_t m, std::int8_t* codes) {
  float largest = ops::kSmallestInt8Row;
  bool is_finite = true;
  for (std::int64_t k = 0; k < x.dim(1); ++k) {
    const float size = std::abs(at_column(x, m, k));
    is_finite = is_finite && size <= std::numeric_limits<float>::max();
    largest = std::max(largest, size);
  }
  if (!is_finite) return std::numeric_limits<float>::quiet_NaN();
  const float factor = ops::kMaxInt8Row / largest;
  for (std::int64_t k = 0; k < x.dim(1); ++k)
    codes[k] = static_cast<std::int8_t>(std::lrint(at_column(x, m, k) * factor));
  return largest / ops::kMaxInt8Row;
}

}  // namespace

void linear_int8(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                 const Tensor& out) {
  const std::int64_t rows = x.dim(0), columns = w.columns;
  std::vector<std::int8_t> codes(static_cast<std::size_t>(rows * columns));
  std::vector<float> scales;
  for (std::int64_t m = 0; m < rows; ++m)
    scales.push_back(round_row(x, m, codes.data() + m * columns));
  parallel(ctx, w.rows, rows * columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n)
      for (std::int64_t m = 0; m < rows; ++m) {
        const std::int8_t *const a = codes.data() + m * columns, *const b =
                                                                     row<std::int8_t>(w.data, n);
        std::int32_t sum = 0;
        for (std::int64_t k = 0; k < columns; ++k) sum += std::int32_t{a[k]} * b[k];
        row<float>(out, m)[n] = static_cast<float>(sum) *
                                (scales[static_cast<std::size_t>(m)] * w.scales.ptr<float>()[n]);
        if (bias.defined()) row<float>(out, m)[n] += bias_at(bias, n);
      }
  });
}

}  // namespace sluice::cpu
