// Integer weights in the order of MMA fragments: the definition of the arithmetic
// (kernels/types/int_fragments.h), for every device's tests and for groups that tiles do not have.
#include "kernels/types/int_fragments.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {
namespace {

using ops::Format;

constexpr std::int64_t kRows = ops::kFragmentRows, kColumns = ops::kFragmentColumns;
constexpr std::int64_t kLanes = 16;  // partial sums, so that the compiler vectorises

float at_column(const Tensor& x, std::int64_t m, std::int64_t k) {
  return x.dtype == DType::kBF16 ? static_cast<float>(row<BF16>(x, m)[k]) : row<float>(x, m)[k];
}

float bias_at(const Tensor& bias, std::int64_t n) {
  if (!bias.defined()) return 0;
  if (bias.dtype == DType::kBF16) return static_cast<float>(bias.ptr<BF16>()[n]);
  if (bias.dtype == DType::kF16) return static_cast<float>(bias.ptr<F16>()[n]);
  return bias.ptr<float>()[n];
}

// A unit as differences q - z and scales.
struct Unit {
  float value[kRows][kColumns];
  float scale[kRows][4];  // of each group of 32 columns or more
};

void read_unit(const std::uint8_t* from, const ops::FragmentUnit& form, const Weight& w,
               const std::array<float, 256>& e4m3, Unit& unit) {
  for (int r = 0; r < kRows; ++r) {
    for (int g = 0; g < form.groups; ++g) {
      if (w.format == Format::kFp8) {
        std::memcpy(&unit.scale[r][g], from + form.scale_at(g, r), 4);
        continue;
      }
      std::uint16_t bits;
      std::memcpy(&bits, from + form.scale_at(g, r), 2);
      unit.scale[r][g] = w.scale == DType::kBF16 ? static_cast<float>(std::bit_cast<BF16>(bits))
                                                 : static_cast<float>(std::bit_cast<F16>(bits));
    }
    for (int c = 0; c < kColumns; ++c) {
      const auto [byte, shift] = form.code_at(r, c);
      const int q = from[byte] >> shift & ((1 << form.bits) - 1),
                z = form.has_zeros ? from[form.zero_at(c * form.groups / kColumns, r)]
                                   : form.middle();
      unit.value[r][c] =
          w.format == Format::kFp8 ? e4m3[static_cast<std::size_t>(q)] : static_cast<float>(q - z);
    }
  }
}

// The sum of x[k] w[k]; count is a multiple of kLanes.
float dot(const float* x, const float* w, std::int64_t count) {
  float lanes[kLanes] = {};
  for (std::int64_t k = 0; k < count; k += kLanes)
    for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] += x[k + i] * w[k + i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace

void linear_fragments(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                      const Tensor& out) {
  const std::int64_t rows = x.dim(0), units = ops::fragment_units(w.columns);
  if (rows == 0 || w.rows == 0) return;
  // Rows of x in the order of the weight's columns, with zeros up to whole units.
  const std::int64_t width = units * kColumns;
  std::vector<float> values(static_cast<std::size_t>(rows * width));
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t k = 0; k < w.columns; ++k)
      values[static_cast<std::size_t>(m * width + k)] =
          at_column(x, m, w.order.defined() ? w.order.ptr<std::int32_t>()[k] : k);
  const ops::FragmentUnit form = fragment_unit(w);
  const std::array<float, 256> e4m3 = ops::e4m3_values();
  const std::int64_t group = kColumns / form.groups;
  const auto* data = static_cast<const std::uint8_t*>(w.data.data);
  parallel(ctx, ops::fragment_tiles(w.rows), kRows * rows * width,
           [&](std::int64_t begin, std::int64_t end) {
             Unit unit;
             for (std::int64_t tile = begin; tile < end; ++tile) {
               const std::int64_t count = std::min(kRows, w.rows - tile * kRows);
               for (std::int64_t m = 0; m < rows; ++m)
                 std::fill_n(row<float>(out, m) + tile * kRows, count, 0.0f);
               for (std::int64_t u = 0; u < units; ++u) {
                 read_unit(data + (tile * units + u) * form.bytes(), form, w, e4m3, unit);
                 for (std::int64_t m = 0; m < rows; ++m) {
                   const float* from = values.data() + m * width + u * kColumns;
                   for (std::int64_t r = 0; r < count; ++r)
                     for (std::int64_t g = 0; g < form.groups; ++g)
                       row<float>(out, m)[tile * kRows + r] +=
                           unit.scale[r][g] *
                           dot(from + g * group, unit.value[r] + g * group, group);
                 }
               }
               for (std::int64_t m = 0; m < rows && bias.defined(); ++m)
                 for (std::int64_t r = 0; r < count; ++r)
                   row<float>(out, m)[tile * kRows + r] += bias_at(bias, tile * kRows + r);
             }
           });
}

}  // namespace sluice::cpu
