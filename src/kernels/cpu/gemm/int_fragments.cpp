// Weights in the order of MMA fragments (kernels/types/int_fragments.h): rows of x are laid out in
// the order of the weight's bytes, and threads share its tiles.
#include <algorithm>
#include <array>
#include <vector>

#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm/fragment_rows.h"

namespace sluice::cpu {
namespace {

// Rows of x that are laid out at once: weights are read again for each such block.
constexpr std::int64_t kBlockRows = 64;

// Where a column of a piece goes. A column of a fragment has a step, a half of 16 columns, the lane
// of its row, and may be odd.
constexpr std::array<std::uint8_t, 64> places_of(int piece) {
  std::array<std::uint8_t, 64> places{};
  for (int c = 0; c < piece; ++c) {
    const int step = c / 16, half = c % 16 / 8, lane = c % 8 / 2, odd = c % 2;
    places[static_cast<std::size_t>(c)] =
        static_cast<std::uint8_t>(piece == 64 ? (half * 2 + odd) * 16 + lane * 4 + step
                                              : lane * 8 + step * 4 + half * 2 + odd);
  }
  return places;
}
constexpr auto kPlacesOf4Bits = places_of(64), kPlacesOf8Bits = places_of(32);

float bias_at(const Tensor& bias, std::int64_t n) {
  if (bias.dtype == DType::kBF16) return static_cast<float>(bias.ptr<BF16>()[n]);
  if (bias.dtype == DType::kF16) return static_cast<float>(bias.ptr<F16>()[n]);
  return bias.ptr<float>()[n];
}

}  // namespace

FragmentColumns::FragmentColumns(const Weight& w)
    : columns_(w.columns),
      piece_(256 / ops::fragment_unit(w).bits),
      width_(ops::fragment_units(w.columns) * ops::kFragmentColumns),
      order_(w.order.defined() ? w.order.ptr<std::int32_t>() : nullptr) {}

void FragmentColumns::arrange(const Tensor& x, std::int64_t m, float* out) const {
  const auto& places = piece_ == 64 ? kPlacesOf4Bits : kPlacesOf8Bits;
  const auto fill = [&](const auto* from) {
    for (std::int64_t first = 0; first < width_; first += piece_) {
      const std::int64_t count = std::clamp<std::int64_t>(columns_ - first, 0, piece_);
      if (count < piece_) std::fill_n(out + first, piece_, 0.0f);
      for (std::int64_t i = 0; i < count; ++i)
        out[first + places[static_cast<std::size_t>(i)]] =
            static_cast<float>(from[order_ == nullptr ? first + i : order_[first + i]]);
    }
  };
  if (x.dtype == DType::kBF16)
    fill(row<BF16>(x, m));
  else
    fill(row<float>(x, m));
  float* sums = out + width_;
  for (std::int64_t first = 0; first < width_; first += piece_, sums += 16) {
    std::fill_n(sums, 16, 0.0f);
    for (std::int64_t i = 0; i < piece_; i += 16)
      for (std::int64_t lane = 0; lane < 16; ++lane) sums[lane] += out[first + i + lane];
  }
}

FragmentRows fragment_rows(CpuIsa isa) {
  return isa == CpuIsa::kAvx2 ? avx2_fragment_rows() : avx512_fragment_rows();
}

void linear_fragments(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                      const Tensor& out) {
  const std::int64_t rows = x.dim(0);
  if (rows == 0 || w.rows == 0) return;
  const FragmentColumns columns(w);
  const FragmentRows multiply = fragment_rows(ctx.cpu_isa);
  FragmentProduct args{.w = static_cast<const std::uint8_t*>(w.data.data),
                       .form = fragment_unit(w),
                       .format = w.format,
                       .scale_is_bf16 = w.scale == DType::kBF16,
                       .units = ops::fragment_units(w.columns),
                       .x_stride = columns.row_floats(),
                       .out_stride = out.stride[0],
                       .out_rows = w.rows};
  std::vector<float> arranged(static_cast<std::size_t>(std::min(rows, kBlockRows) * args.x_stride));
  args.x = arranged.data();
  for (std::int64_t first = 0; first < rows; first += kBlockRows) {
    args.num_rows = std::min(kBlockRows, rows - first);
    args.out = row<float>(out, first);
    parallel(ctx, args.num_rows, 2 * columns.width(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t m = begin; m < end; ++m)
        columns.arrange(x, first + m, arranged.data() + m * args.x_stride);
    });
    parallel(ctx, ops::fragment_tiles(w.rows),
             ops::kFragmentRows * args.num_rows * columns.width() / 8,
             [&](std::int64_t begin, std::int64_t end) {
               multiply(args, begin, end);
               if (!bias.defined()) return;
               const std::int64_t last = std::min(end * ops::kFragmentRows, w.rows);
               for (std::int64_t m = 0; m < args.num_rows; ++m)
                 for (std::int64_t n = begin * ops::kFragmentRows; n < last; ++n)
                   args.out[m * args.out_stride + n] += bias_at(bias, n);
             });
  }
}

}  // namespace sluice::cpu
