// Weights in the order of MMA fragments (kernels/types/int_fragments.h): rows of x are laid out in
// the order of the weight's bytes, and threads share its tiles.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "kernels/cpu/common/bias.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fragments/block_fragments.h"
#include "kernels/cpu/fragments/fragment_rows.h"
#include "kernels/cpu/fragments/int8_rows.h"

namespace sluice::cpu {
namespace {

// Rows of x that are laid out at once: weights are read again for each such block.
constexpr std::int64_t kBlockRows = 96;

struct alignas(64) CacheLine {
  std::byte bytes[64];
};
using CacheLines = std::unique_ptr<CacheLine[]>;

CacheLines take(std::int64_t bytes) {
  return std::make_unique_for_overwrite<CacheLine[]>(static_cast<std::size_t>((bytes + 63) / 64));
}

// Where a column of a piece goes. A column of a fragment has a step, a half of 16 columns, the lane
// of its row, and may be odd. The two columns of a lane are neighbours, but for float32 beside
// codes of four bits.
constexpr std::array<std::uint8_t, 64> places_of(int piece, bool are_pairs) {
  std::array<std::uint8_t, 64> places{};
  for (int c = 0; c < piece; ++c) {
    const int step = c / 16, half = c % 16 / 8, lane = c % 8 / 2, odd = c % 2;
    int place = lane * 8 + step * 4 + half * 2 + odd;
    if (piece == 64)
      place = are_pairs ? half * 32 + (lane * 4 + step) * 2 + odd
                        : (half * 2 + odd) * 16 + lane * 4 + step;
    places[static_cast<std::size_t>(c)] = static_cast<std::uint8_t>(place);
  }
  return places;
}
constexpr auto kPlacesOf4Bits = places_of(64, false), kPairsOf4Bits = places_of(64, true),
               kPlacesOf8Bits = places_of(32, true);

}  // namespace

FragmentColumns::FragmentColumns(const Weight& w, DType type)
    : type_(type),
      columns_(w.columns),
      piece_(256 / ops::fragment_unit(w).bits),
      width_(ops::fragment_units(w.columns) * ops::kFragmentColumns),
      places_((piece_ == 32           ? kPlacesOf8Bits
               : type == DType::kBF16 ? kPairsOf4Bits
                                      : kPlacesOf4Bits)
                  .data()),
      order_(w.order.defined() ? w.order.ptr<std::int32_t>() : nullptr) {}

// Columns from `first` on.
template <class From, class To>
void FragmentColumns::fill(const From* from, std::int64_t first, To* out) const {
  for (out += first; first < width_; first += piece_, out += piece_) {
    const std::int64_t count = std::clamp<std::int64_t>(columns_ - first, 0, piece_);
    if (count < piece_) std::fill_n(out, piece_, To{});
    for (std::int64_t i = 0; i < count; ++i)
      out[places_[i]] = static_cast<To>(from[order_ == nullptr ? first + i : order_[first + i]]);
  }
}

// Whole pieces of neighbouring columns: squares of four by four pairs are transposed.
void FragmentColumns::fill_pairs(const BF16* from, BF16* out) const {
  const int squares = piece_ == 64 ? 2 : 1;
  const std::int64_t whole = columns_ / piece_ * piece_;
  for (std::int64_t first = 0; first < whole; first += 32) {
    const BF16* square = squares == 2 ? from + first / 64 * 64 + first % 64 / 4 : from + first;
    std::uint32_t pairs[4][4];
    for (int i = 0; i < 4; ++i) std::memcpy(pairs[i], square + i * 8 * squares, sizeof pairs[i]);
    std::uint32_t turned[16];
    for (int lane = 0; lane < 4; ++lane)
      for (int i = 0; i < 4; ++i) turned[lane * 4 + i] = pairs[i][lane];
    std::memcpy(out + first, turned, sizeof turned);
  }
  fill(from, whole, out);
}

void FragmentColumns::arrange(const Tensor& x, std::int64_t m, std::byte* out) const {
  if (x.dtype == DType::kF32)
    fill(row<float>(x, m), 0, reinterpret_cast<float*>(out));
  else if (type_ == DType::kF32)
    fill(row<BF16>(x, m), 0, reinterpret_cast<float*>(out));
  else if (order_ == nullptr)
    fill_pairs(row<BF16>(x, m), reinterpret_cast<BF16*>(out));
  else
    fill(row<BF16>(x, m), 0, reinterpret_cast<BF16*>(out));
}

bool has_bf16_fragment_rows(CpuIsa isa) {
  return isa >= CpuIsa::kAvx512Bf16 && __builtin_cpu_supports("avx512vbmi");
}

FragmentRows fragment_rows(CpuIsa isa, DType x) {
  if (isa == CpuIsa::kAvx2) return avx2_fragment_rows();
  if (x == DType::kBF16 && has_bf16_fragment_rows(isa)) return bf16_fragment_rows();
  return avx512_fragment_rows();
}

void linear_fragments(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                      const Tensor& out) {
  const std::int64_t rows = x.dim(0);
  if (rows == 0 || w.rows == 0) return;
  if (w.int8_rows) return linear_int8_rows(ctx, int8_kernel(ctx.cpu_isa, rows), x, w, bias, out);
  if (ops::block_unit(w.format).exists()) return linear_block_fragments(ctx, x, w, bias, out);
  const FragmentRows kernel = fragment_rows(ctx.cpu_isa, x.dtype);
  const FragmentColumns columns(w, kernel.input);
  FragmentProduct args{.w = static_cast<const std::uint8_t*>(w.data.data),
                       .form = fragment_unit(w),
                       .format = w.format,
                       .scale_is_bf16 = w.scale == DType::kBF16,
                       .units = ops::fragment_units(w.columns),
                       .x_stride = columns.row_bytes(),
                       .out_stride = out.stride[0],
                       .out_rows = w.rows};
  const CacheLines arranged = take(std::min(rows, kBlockRows) * args.x_stride);
  std::byte* const to = arranged[0].bytes;
  args.x = to;
  for (std::int64_t first = 0; first < rows; first += kBlockRows) {
    args.num_rows = std::min(kBlockRows, rows - first);
    args.out = row<float>(out, first);
    parallel(ctx, args.num_rows, columns.width(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t m = begin; m < end; ++m)
        columns.arrange(x, first + m, to + m * args.x_stride);
    });
    parallel(
        ctx, ops::fragment_tiles(w.rows), ops::kFragmentRows * args.num_rows * columns.width() / 8,
        [&](std::int64_t begin, std::int64_t end) {
          const CacheLines scratch =
              args.num_rows == 1 ? nullptr : take(kernel.scratch_bytes(args.num_rows, args.units));
          kernel.multiply(args, begin, end, args.num_rows == 1 ? nullptr : scratch[0].bytes);
          if (!bias.defined()) return;
          const std::int64_t last = std::min(end * ops::kFragmentRows, w.rows);
          for (std::int64_t m = 0; m < args.num_rows; ++m)
            for (std::int64_t n = begin * ops::kFragmentRows; n < last; ++n)
              args.out[m * args.out_stride + n] += bias_at(bias, n);
        });
  }
}

}  // namespace sluice::cpu
