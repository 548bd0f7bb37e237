// Weights in the order of MMA fragments (kernels/types/int_fragments.h): rows of x are laid out in
// the order of the weight's bytes, and threads share its tiles.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/common/bias.h"
#include "kernels/cpu/common/cache_lines.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fragments/amx_blocks.h"
#include "kernels/cpu/fragments/block_fragments.h"
#include "kernels/cpu/fragments/fragment_rows.h"
#include "kernels/cpu/fragments/int8_rows.h"

namespace sluice::cpu {
namespace {

// Where a column of a piece goes. A column of a fragment has a step, a half of 16 columns, the lane
// of its row, and may be odd. The two columns of a lane are neighbours, but for float32 beside
// codes of four bits.
constexpr std::array<std::uint8_t, 64> places_of(int piece, bool are_pairs, bool by_groups) {
  std::array<std::uint8_t, 64> places{};
  for (int c = 0; c < piece; ++c) {
    const int step = c / 16, half = c % 16 / 8, lane = c % 8 / 2, odd = c % 2;
    int place = lane * 8 + step * 4 + half * 2 + odd;
    if (by_groups)
      place = step / 2 * 32 + (lane * 4 + half * 2 + step % 2) * 2 + odd;
    else if (piece == 64)
      place = are_pairs ? half * 32 + (lane * 4 + step) * 2 + odd
                        : (half * 2 + odd) * 16 + lane * 4 + step;
    places[static_cast<std::size_t>(c)] = static_cast<std::uint8_t>(place);
  }
  return places;
}
constexpr auto kPlacesOf4Bits = places_of(64, false, false),
               kPairsOf4Bits = places_of(64, true, false),
               kPairsByGroups = places_of(64, true, true),
               kPlacesOf8Bits = places_of(32, true, false);

}  // namespace

FragmentColumns::FragmentColumns(const Weight& w, DType type, bool by_groups)
    : type_(type),
      splits_piece_(by_groups && ops::fragment_unit(w).bits == 4 &&
                    ops::fragment_unit(w).groups == 4),
      columns_(w.columns),
      piece_(256 / ops::fragment_unit(w).bits),
      width_(ops::fragment_units(w.columns) * ops::kFragmentColumns),
      places_((piece_ == 32           ? kPlacesOf8Bits
               : splits_piece_        ? kPairsByGroups
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
  const std::int64_t whole = columns_ / piece_ * piece_;
  for (std::int64_t first = 0; first < whole; first += 32) {
    const std::int64_t half = first / 32 % 2, of_piece = first / piece_ * piece_;
    std::uint32_t pairs[4][4];
    for (int i = 0; i < 4; ++i) {
      const std::int64_t at = splits_piece_  ? half * 32 + i % 2 * 16 + i / 2 * 8
                              : piece_ == 64 ? half * 8 + i * 16
                                             : i * 8;
      std::memcpy(pairs[i], from + of_piece + at, sizeof pairs[i]);
    }
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

FragmentRows fragment_rows(CpuIsa isa, DType x, Format format) {
  if (isa == CpuIsa::kAvx2) return avx2_fragment_rows();
  if (x != DType::kBF16 || !has_bf16_fragment_rows(isa)) return avx512_fragment_rows();
  // Groups of 16 columns are half a tile of AMX.
  return isa == CpuIsa::kAmx && format != Format::kNvFp4 ? amx_fragment_rows()
                                                         : bf16_fragment_rows();
}

void linear_fragments(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                      const Tensor& out) {
  const std::int64_t rows = x.dim(0);
  if (rows == 0 || w.rows == 0) return;
  if (w.int8_rows) return linear_int8_rows(ctx, int8_kernel(ctx.cpu_isa, rows), x, w, bias, out);
  if (ops::block_unit(w.format).exists()) return linear_block_fragments(ctx, x, w, bias, out);
  linear_fragment_rows(ctx, fragment_rows(ctx.cpu_isa, x.dtype, w.format), x, w, bias, out);
}

namespace {

// The arranged rows of args.x become tiles in `out`, which args.x then is.
void turn_rows(Context& ctx, const FragmentRows& kernel, std::int64_t width, std::byte* out,
               FragmentProduct& args) {
  constexpr std::int64_t kAtOnce = 16;  // tiles of columns
  const FragmentTiles form(args.num_rows, width);
  const std::int64_t tiles = width / FragmentTiles::kColumns,
                     parts = (tiles + kAtOnce - 1) / kAtOnce;
  parallel(ctx, FragmentTiles::count(args.num_rows) * parts,
           FragmentTiles::kRows * kAtOnce * FragmentTiles::kColumns,
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t i = begin; i < end; ++i) {
               const std::int64_t m = i / parts * FragmentTiles::kRows, tile = i % parts * kAtOnce;
               kernel.to_tiles(args.x + m * args.x_stride, args.x_stride,
                               std::min(FragmentTiles::kRows, args.num_rows - m), tile,
                               std::min(tiles, tile + kAtOnce), form.line,
                               out + i / parts * form.stride);
             }
           });
  args.x = out, args.x_stride = form.stride;
}

}  // namespace

void linear_fragment_rows(Context& ctx, const FragmentRows& kernel, const Tensor& x,
                          const Weight& w, const Tensor& bias, const Tensor& out) {
  const bool in_tiles = kernel.to_tiles != nullptr;
  const FragmentColumns columns(w, kernel.input, in_tiles);
  FragmentProduct args{.w = static_cast<const std::uint8_t*>(w.data.data),
                       .form = fragment_unit(w),
                       .format = w.format,
                       .scale_is_bf16 = w.scale == DType::kBF16,
                       .units = ops::fragment_units(w.columns),
                       .out_stride = out.stride[0],
                       .out_rows = w.rows};
  const std::int64_t rows = x.dim(0), row_bytes = columns.row_bytes(),
                     block_rows = in_tiles ? amx_block_rows(row_bytes) : kFragmentBlockRows,
                     max_rows = std::min(rows, block_rows), tiles = ops::fragment_tiles(w.rows);
  const CacheLines arranged = take_lines(max_rows * row_bytes);
  const CacheLines turned = in_tiles && rows > 1
                                ? take_lines(FragmentTiles::count(max_rows) *
                                             FragmentTiles(max_rows, columns.width()).stride)
                                : nullptr;
  for (std::int64_t first = 0; first < rows; first += block_rows) {
    args.num_rows = std::min(block_rows, rows - first);
    args.out = row<float>(out, first);
    args.x = arranged[0].bytes, args.x_stride = row_bytes;
    parallel(ctx, args.num_rows, columns.width(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t m = begin; m < end; ++m)
        columns.arrange(x, first + m, arranged[0].bytes + m * row_bytes);
    });
    const bool is_one = args.num_rows == 1;
    if (in_tiles && !is_one) turn_rows(ctx, kernel, columns.width(), turned[0].bytes, args);
    const std::int64_t at_once = in_tiles && !is_one ? amx_tiles_at_once(ctx, tiles) : 1;
    parallel(ctx, (tiles + at_once - 1) / at_once,
             at_once * ops::kFragmentRows * args.num_rows * columns.width() / 8,
             [&](std::int64_t begin, std::int64_t end) {
               begin *= at_once, end = std::min(end * at_once, tiles);
               const CacheLines scratch =
                   is_one || kernel.scratch_bytes == nullptr
                       ? nullptr
                       : take_lines(kernel.scratch_bytes(args.num_rows, args.units));
               kernel.multiply(args, begin, end, scratch ? scratch[0].bytes : nullptr);
               add_bias(bias, begin * ops::kFragmentRows,
                        std::min(end * ops::kFragmentRows, w.rows), args.num_rows, args.out,
                        args.out_stride);
             });
  }
}

}  // namespace sluice::cpu
