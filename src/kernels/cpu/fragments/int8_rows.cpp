// Rows of x become int8 in the order of the weight's bytes, and threads share its tiles.
#include "kernels/cpu/fragments/int8_rows.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cpu/common/bias.h"
#include "kernels/cpu/common/cache_lines.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/fragments/amx_blocks.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kStepColumns = 16;  // of an MMA
constexpr std::int64_t kTileRows = 16;     // of x, of AMX
// Up to so many rows of x, weights are read faster than tiles of AMX are made of them.
constexpr std::int64_t kFewRows = 16;
using ops::kMaxInt8Row, ops::kSmallestInt8Row;

// Where the pieces of a row of x go.
struct PiecePlaces {
  std::int8_t* row = nullptr;
  Int8Order order = Int8Order::kTwice;

  std::int8_t* of(std::int64_t piece) const {
    if (order == Int8Order::kTwice) return row + piece * 64;
    return row + piece / 2 * kTileRows * 64 + piece % 2 * kInt8PieceColumns;
  }
};

// The two steps of a piece: four columns of each lane in a and b.
void put_piece(__m128i a, __m128i b, Int8Order order, std::int8_t* to) {
  auto* const lanes = reinterpret_cast<__m128i*>(to);
  const __m128i low = _mm_unpacklo_epi32(a, b), high = _mm_unpackhi_epi32(a, b);
  if (order == Int8Order::kTiles) {
    _mm_store_si128(lanes, low);
    _mm_store_si128(lanes + 1, high);
    return;
  }
  _mm_store_si128(lanes, _mm_shuffle_epi32(low, 0x50));
  _mm_store_si128(lanes + 1, _mm_shuffle_epi32(low, 0xFA));
  _mm_store_si128(lanes + 2, _mm_shuffle_epi32(high, 0x50));
  _mm_store_si128(lanes + 3, _mm_shuffle_epi32(high, 0xFA));
}

// The largest size; NaN or infinite where a number is: their bits are above those of all others.
float largest_of(const BF16* x, std::int64_t columns) {
  std::uint32_t largest = 0;
  for (std::int64_t k = 0; k < columns; ++k)
    largest =
        std::max(largest, std::bit_cast<std::uint32_t>(static_cast<float>(x[k])) & 0x7FFFFFFFu);
  return std::bit_cast<float>(largest);
}

// A step rounded, in the order of a fragment: columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of each
// lane t. Columns past the last one are zeros.
__m128i rounded_step(const BF16* x, std::int64_t columns, __m256 factor) {
  alignas(32) BF16 last[kStepColumns] = {};
  if (columns < kStepColumns) {
    std::copy_n(x, std::max<std::int64_t>(columns, 0), last);
    x = last;
  }
  const auto rounded = [&](int first) {
    const __m256i words =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + first)));
    return _mm256_cvtps_epi32(
        _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)), factor));
  };
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(rounded(0), rounded(8)), 0xD8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  return _mm_shuffle_epi8(bytes,
                          _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
}

std::int32_t sum_of(__m128i bytes) {
  const __m128i words = _mm_maddubs_epi16(_mm_set1_epi8(1), bytes);
  const __m128i four = _mm_madd_epi16(words, _mm_set1_epi16(1)),
                two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 1);
}

// The scale of the row, and the sum of its numbers.
std::pair<float, std::int32_t> round_row(const BF16* x, std::int64_t columns, std::int64_t width,
                                         const PiecePlaces& out) {
  const float size = largest_of(x, columns),
              largest = size < kSmallestInt8Row ? kSmallestInt8Row : size;
  const bool is_finite = largest <= std::numeric_limits<float>::max();
  const __m256 factor = _mm256_set1_ps(kMaxInt8Row / largest);
  std::int32_t sum = 0;
  for (std::int64_t k = 0; k < width; k += kInt8PieceColumns) {
    __m128i a = _mm_setzero_si128(), b = a;
    if (is_finite) {
      a = rounded_step(x + k, columns - k, factor);
      b = rounded_step(x + k + kStepColumns, columns - k - kStepColumns, factor);
    }
    sum += sum_of(a) + sum_of(b);
    put_piece(a, b, out.order, out.of(k / kInt8PieceColumns));
  }
  return {is_finite ? largest / kMaxInt8Row : std::numeric_limits<float>::quiet_NaN(), sum};
}

}  // namespace

// Those of the tile's first groups, as all of a row are equal.
std::array<float, ops::kFragmentRows> int8_scales(const Int8Product& args, std::int64_t tile) {
  const ops::FragmentUnit form = fragment_unit(*args.weight);
  const std::uint8_t* const unit = args.w + tile * args.units * args.unit_bytes;
  const auto read = [&]<class T>() {
    std::array<float, ops::kFragmentRows> scales;
    for (int row = 0; row < ops::kFragmentRows; ++row) {
      T value;
      std::memcpy(&value, unit + form.scale_at(0, row), sizeof value);
      scales[static_cast<std::size_t>(row)] = static_cast<float>(value);
    }
    return scales;
  };
  const DType type = args.weight->scale;
  if (type == DType::kF32) return read.template operator()<float>();
  return type == DType::kBF16 ? read.template operator()<BF16>() : read.template operator()<F16>();
}

Int8Kernel int8_kernel(CpuIsa isa, std::int64_t num_rows) {
  if (isa == CpuIsa::kAmx && num_rows > kFewRows)
    return {.multiply = amx_int8_rows, .order = Int8Order::kTiles};
  return {.multiply = isa >= CpuIsa::kAvx512Vnni ? vnni_int8_rows : avx2_int8_rows};
}

void linear_int8_rows(Context& ctx, const Int8Kernel& kernel, const Tensor& x, const Weight& w,
                      const Tensor& bias, const Tensor& out) {
  const bool in_tiles = kernel.order == Int8Order::kTiles;
  const std::int64_t units = ops::fragment_units(w.columns), width = units * ops::kFragmentColumns,
                     row_bytes = in_tiles ? width : 2 * width,
                     block_rows = in_tiles ? amx_block_rows(row_bytes) : kInt8BlockRows,
                     rows = std::min(x.dim(0), block_rows),
                     kept_rows = in_tiles ? (rows + kTileRows - 1) / kTileRows * kTileRows : rows,
                     tiles = ops::fragment_tiles(w.rows),
                     at_once = in_tiles ? amx_tiles_at_once(ctx, tiles) : 1;
  const CacheLines arranged = take_lines(kept_rows * row_bytes);
  auto* const all = reinterpret_cast<std::int8_t*>(arranged[0].bytes);
  std::vector<float> x_scales(static_cast<std::size_t>(rows));
  std::vector<std::int32_t> x_sums(static_cast<std::size_t>(rows));
  const auto place_of = [&](std::int64_t m) {
    if (!in_tiles) return all + m * row_bytes;
    return all + m / kTileRows * kTileRows * row_bytes + m % kTileRows * 64;
  };
  Int8Product args{.weight = &w,
                   .w = static_cast<const std::uint8_t*>(w.data.data),
                   .units = units,
                   .unit_bytes = fragment_unit(w).bytes(),
                   .x = all,
                   .x_stride = in_tiles ? kTileRows * row_bytes : row_bytes,
                   .x_sums = x_sums.data(),
                   .x_scales = x_scales.data(),
                   .out_stride = out.stride[0]};
  for (std::int64_t first = 0; first < x.dim(0); first += block_rows) {
    args.num_rows = std::min(block_rows, x.dim(0) - first);
    args.out = row<float>(out, first);
    parallel(ctx, args.num_rows, 2 * width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t m = begin; m < end; ++m) {
        const auto at = static_cast<std::size_t>(m);
        std::tie(x_scales[at], x_sums[at]) = round_row(row<BF16>(x, first + m), w.columns, width,
                                                       {.row = place_of(m), .order = kernel.order});
      }
    });
    parallel(ctx, (tiles + at_once - 1) / at_once,
             at_once * ops::kFragmentRows * args.num_rows * width / 8,
             [&](std::int64_t begin, std::int64_t end) {
               begin *= at_once, end = std::min(end * at_once, tiles);
               kernel.multiply(args, begin, end);
               add_bias(bias, begin * ops::kFragmentRows,
                        std::min(end * ops::kFragmentRows, w.rows), args.num_rows, args.out,
                        args.out_stride);
             });
  }
}

}  // namespace sluice::cpu
