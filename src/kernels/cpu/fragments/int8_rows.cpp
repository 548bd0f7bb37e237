// Rows of x become int8 in the order of the weight's bytes, and threads share its tiles.
#include "kernels/cpu/fragments/int8_rows.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cpu/common/bias.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {
namespace {

// Rows of x that are rounded at once: weights are read again for each such block.
constexpr std::int64_t kBlockRows = 96;
constexpr std::int64_t kStepColumns = 16;  // of an MMA
using ops::kMaxInt8Row, ops::kSmallestInt8Row;

struct alignas(64) Piece {
  std::int8_t bytes[kInt8PieceBytes];
};

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
                                         std::int8_t* out) {
  const float size = largest_of(x, columns),
              largest = size < kSmallestInt8Row ? kSmallestInt8Row : size;
  if (!(largest <= std::numeric_limits<float>::max())) {
    std::memset(out, 0, static_cast<std::size_t>(width / kInt8PieceColumns * kInt8PieceBytes));
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  const __m256 factor = _mm256_set1_ps(kMaxInt8Row / largest);
  std::int32_t sum = 0;
  for (std::int64_t k = 0; k < width; k += kInt8PieceColumns, out += kInt8PieceBytes) {
    const __m128i a = rounded_step(x + k, columns - k, factor),
                  b = rounded_step(x + k + kStepColumns, columns - k - kStepColumns, factor);
    sum += sum_of(a) + sum_of(b);
    // Of each lane: twice the four columns of the first step, then of the second.
    const __m128i a01 = _mm_unpacklo_epi32(a, a), a23 = _mm_unpackhi_epi32(a, a),
                  b01 = _mm_unpacklo_epi32(b, b), b23 = _mm_unpackhi_epi32(b, b);
    auto* const lanes = reinterpret_cast<__m128i*>(out);
    _mm_store_si128(lanes, _mm_unpacklo_epi64(a01, b01));
    _mm_store_si128(lanes + 1, _mm_unpackhi_epi64(a01, b01));
    _mm_store_si128(lanes + 2, _mm_unpacklo_epi64(a23, b23));
    _mm_store_si128(lanes + 3, _mm_unpackhi_epi64(a23, b23));
  }
  return {largest / kMaxInt8Row, sum};
}

// Scales of the rows of a tile: those of its first groups, as all of a row are equal.
std::array<float, ops::kFragmentRows> scales_of(const Weight& w, const std::uint8_t* tile) {
  const ops::FragmentUnit form = fragment_unit(w);
  const auto read = [&]<class T>() {
    std::array<float, ops::kFragmentRows> scales;
    for (int row = 0; row < ops::kFragmentRows; ++row) {
      T value;
      std::memcpy(&value, tile + form.scale_at(0, row), sizeof value);
      scales[static_cast<std::size_t>(row)] = static_cast<float>(value);
    }
    return scales;
  };
  if (w.scale == DType::kF32) return read.template operator()<float>();
  return w.scale == DType::kBF16 ? read.template operator()<BF16>()
                                 : read.template operator()<F16>();
}

}  // namespace

void linear_int8_rows(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                      const Tensor& out) {
  const Int8Multiply multiply =
      ctx.cpu_isa >= CpuIsa::kAvx512Vnni ? vnni_int8_rows : avx2_int8_rows;
  const std::int64_t rows = std::min(x.dim(0), kBlockRows), tiles = ops::fragment_tiles(w.rows),
                     units = ops::fragment_units(w.columns), width = units * ops::kFragmentColumns,
                     pieces = width / kInt8PieceColumns;
  std::vector<Piece> arranged(static_cast<std::size_t>(rows * pieces));
  std::vector<float> x_scales(static_cast<std::size_t>(rows));
  std::vector<std::int32_t> x_sums(static_cast<std::size_t>(rows));
  Int8Product args{.w = static_cast<const std::uint8_t*>(w.data.data),
                   .units = units,
                   .unit_bytes = fragment_unit(w).bytes(),
                   .x = arranged.front().bytes,
                   .x_stride = pieces * kInt8PieceBytes,
                   .x_sums = x_sums.data()};
  for (std::int64_t first = 0; first < x.dim(0); first += kBlockRows) {
    args.num_rows = std::min(kBlockRows, x.dim(0) - first);
    parallel(ctx, args.num_rows, 2 * width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t m = begin; m < end; ++m) {
        const auto at = static_cast<std::size_t>(m);
        std::tie(x_scales[at], x_sums[at]) =
            round_row(row<BF16>(x, first + m), w.columns, width,
                      arranged[at * static_cast<std::size_t>(pieces)].bytes);
      }
    });
    parallel(ctx, tiles, ops::kFragmentRows * args.num_rows * width / 8,
             [&](std::int64_t begin, std::int64_t end) {
               std::array<std::int32_t, kBlockRows * ops::kFragmentRows> sums;
               for (std::int64_t tile = begin; tile < end; ++tile) {
                 multiply(args, tile, sums.data());
                 const auto scales = scales_of(w, args.w + tile * units * args.unit_bytes);
                 const std::int64_t n = tile * ops::kFragmentRows,
                                    count = std::min(ops::kFragmentRows, w.rows - n);
                 for (std::int64_t m = 0; m < args.num_rows; ++m) {
                   const float scale = x_scales[static_cast<std::size_t>(m)];
                   const std::int32_t* const from = sums.data() + m * ops::kFragmentRows;
                   float* const to = row<float>(out, first + m) + n;
                   for (std::int64_t i = 0; i < count; ++i)
                     to[i] = static_cast<float>(from[i]) *
                             (scale * scales[static_cast<std::size_t>(i)]);
                   if (!bias.defined()) continue;
                   for (std::int64_t i = 0; i < count; ++i) to[i] += bias_at(bias, n + i);
                 }
               }
             });
  }
}

}  // namespace sluice::cpu
