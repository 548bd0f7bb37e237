// The product of fragment_rows.h over a vector type V. Included by fragment_rows_*.cpp inside their
// target pragmas.
//
// A line of 64 bytes holds numbers of rows r and r + 8 of a tile, in a piece of 64 or 32 columns.
// It becomes vectors [step][sum]: all numbers of a vector are added to one vector of sums, and all
// vectors of a step meet the same numbers of x. A sum belongs to one row, or (V::kSumsOfLine is 1)
// its lanes belong to rows r and r + 8 in turn.
//
//   group:   sum   = dot(w[step], x[step], sum)      steps ascending, from zero
//   row:     total = fma(sum, scale, total)          groups ascending, from zero
//   end:     the lanes of total are added
//
// One row of x multiplies each line as it is read. Several rows share the numbers of a block of
// columns, which lie in L1. Both add in this order.
//
// V has vectors F of floats, W of numbers of w and X of numbers of x, and
// - Number               type of numbers, float or bfloat16
// - kBlockUnits          units whose numbers are kept together
// - kRows, kSums         register tile: rows of x by vectors of sums
// - kNear, kFar          prefetch distances, see streams.h
// - kSteps<N>, kSumsOfLine<N>
// - zero(), load(), store(), load_w(), store_w(), fma(), dot(sum, w, x)
// - tables<N, kGroups>(zeros)   what the codes of two rows become; zero points of the two rows, and
//                        of the next group 16 bytes on. kGroups: of a piece, 1, 2 or 4
// - widen<N, kGroups>(line, tables, out)    out[step * kSumsOfLine + sum]
// - x_step<N, kStep>(x)  numbers of x of one step of a piece
// - scale_of<N, kGroups>(scales, place)    scales of a group (and of the next) by place; of four
//                        groups those of a place are together
// - reduce<N>(totals, out)   16 rows
#pragma once

namespace sluice::cpu {
namespace {

// What the codes of a weight are.
enum class Codes : std::uint8_t { kMiddle, kZeros, kE2m1, kInt8, kE4m3 };

constexpr int piece_columns(Codes codes) {
  return codes == Codes::kInt8 || codes == Codes::kE4m3 ? 32 : 64;
}
constexpr int kLines = 8, kLineBytes = 64;
constexpr int kPieceBytes = kLines * kLineBytes;

template <class V, Codes kCodes>
constexpr int kAllSums = kLines * V::template kSumsOfLine<kCodes>;

// Scales of a unit, [groups][places] or, of groups of 16 columns, [2][places][4], with the place of
// FragmentUnit.
constexpr int kMaxUnitGroups = 8;
struct UnitScales {
  alignas(64) float of[kMaxUnitGroups][ops::kFragmentRows];
};

// e4m3 of groups of 16 columns, times the factors of their rows. Eight scales are those of rows g
// and g + 8.
inline void read_e4m3_scales(const FragmentProduct& args, const std::uint8_t* unit, float* out) {
  const __m256 exponents = _mm256_set1_ps(0x1p120f);  // see numbers() of e4m3
  const auto* factors = reinterpret_cast<const float*>(unit + args.form.factors_at());
  const std::uint8_t* from = unit + args.form.code_bytes();
  for (int half = 0; half < 2; ++half)
    for (int g = 0; g < 8; ++g, from += 8, out += 8) {
      const float* two = factors + g / ops::kFactorRows * 2;
      const __m256i placed = _mm256_slli_epi32(
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))), 20);
      const __m256 scales = _mm256_mul_ps(_mm256_castsi256_ps(placed), exponents);
      _mm256_store_ps(
          out, _mm256_mul_ps(scales, _mm256_set_m128(_mm_set1_ps(two[1]), _mm_set1_ps(two[0]))));
    }
}

inline void read_scales(const FragmentProduct& args, const std::uint8_t* unit, float* out) {
  if (args.form.has_factors) return read_e4m3_scales(args, unit, out);
  const std::uint8_t* from = unit + args.form.code_bytes();
  for (int i = 0; i < args.form.groups * ops::kFragmentRows; i += 8, out += 8) {
    const auto eight = [&](int bytes) { return from + i * bytes; };
    __m256 scales;
    if (args.form.scale_bytes == 4) {
      scales = _mm256_loadu_ps(reinterpret_cast<const float*>(eight(4)));
    } else if (args.form.scale_bytes == 1) {
      // An exponent alone; that of 2^-127 is subnormal.
      const __m256i exponents =
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(eight(1))));
      scales = _mm256_castsi256_ps(
          _mm256_max_epi32(_mm256_slli_epi32(exponents, 23), _mm256_set1_epi32(1 << 22)));
    } else {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(eight(2)));
      scales = args.scale_is_bf16
                   ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))
                   : _mm256_cvtph_ps(halves);
    }
    _mm256_store_ps(out, scales);
  }
}

template <class V>
[[gnu::always_inline]] inline void fetch(const std::uint8_t* line) {
  fetch_ahead<V::kNear, V::kFar>(reinterpret_cast<const std::byte*>(line));
}

// The lines behind the codes of a unit.
template <class V>
[[gnu::always_inline]] inline void fetch_scales(const FragmentProduct& args,
                                                const std::uint8_t* unit) {
  for (std::int64_t at = args.form.code_bytes(); at < args.form.bytes(); at += kLineBytes)
    fetch<V>(unit + at);
}

// Zero points of lines r and r + 8 of a group, neighbours.
inline const std::uint8_t* zeros_of(const FragmentProduct& args, const std::uint8_t* unit,
                                    int group, int line) {
  return unit + args.form.zeros_at() + group * ops::kFragmentRows + 2 * line;
}

inline void put_row(const FragmentProduct& args, std::int64_t tile, std::int64_t m,
                    const float* sums) {
  const std::int64_t first = tile * ops::kFragmentRows,
                     count = std::min(ops::kFragmentRows, args.out_rows - first);
  float* to = args.out + m * args.out_stride + first;
  for (std::int64_t i = 0; i < count; ++i) to[i] = sums[i];
}

template <class V>
const typename V::Number* row_of_x(const FragmentProduct& args, std::int64_t m) {
  return reinterpret_cast<const typename V::Number*>(args.x + m * args.x_stride);
}

// A tile with one row of x. kTogether: pieces of a group. kGroups: groups of a piece.
template <class V, Codes kCodes, int kTogether, int kGroups>
void multiply_row(const FragmentProduct& args, std::int64_t tile) {
  constexpr int kPieceColumns = piece_columns(kCodes), kSteps = V::template kSteps<kCodes>,
                kSums = V::template kSumsOfLine<kCodes>,
                kPieces = ops::kFragmentColumns / kPieceColumns;
  using F = typename V::F;
  using W = typename V::W;
  F total[kLines * kSums];
#pragma GCC unroll 16
  for (F& t : total) t = V::zero();
  UnitScales scales;
  const typename V::Number* x = row_of_x<V>(args, 0);
  const std::uint8_t* unit = args.w + tile * args.units * args.form.bytes();
  for (std::int64_t u = 0; u < args.units; ++u, unit += args.form.bytes()) {
    read_scales(args, unit, scales.of[0]);
    fetch_scales<V>(args, unit);
    const std::uint8_t* const zeros = zeros_of(args, unit, 0, 0);
    int group = 0;
    for (int p = 0; p < kPieces; p += kTogether, group += kGroups) {
      const float* of_group = scales.of[group];
      const std::uint8_t* codes = unit + p * kPieceBytes;
#pragma GCC unroll 8
      for (int line = 0; line < kLines; ++line) {
        const auto tables =
            V::template tables<kCodes, kGroups>(zeros + group * ops::kFragmentRows + 2 * line);
        F sum[kSums];
#pragma GCC unroll 2
        for (F& s : sum) s = V::zero();
#pragma GCC unroll 4
        for (int k = 0; k < kTogether; ++k) {
          const std::uint8_t* at = codes + k * kPieceBytes + line * kLineBytes;
          fetch<V>(at);
          W w[kSteps * kSums];
          V::template widen<kCodes, kGroups>(at, tables, w);
          [&]<std::size_t... kStep>(std::index_sequence<kStep...>) __attribute__((always_inline)) {
            const auto add = [&](int step, const typename V::X& of_x)
                                 __attribute__((always_inline)) {
#pragma GCC unroll 2
                                   for (int s = 0; s < kSums; ++s)
                                     sum[s] = V::dot(sum[s], w[step * kSums + s], of_x);
                                 };
            (add(kStep, V::template x_step<kCodes, kStep>(x + k * kPieceColumns)), ...);
          }(std::make_index_sequence<kSteps>());
        }
#pragma GCC unroll 2
        for (int s = 0; s < kSums; ++s)
          total[line * kSums + s] =
              V::fma(sum[s], V::template scale_of<kCodes, kGroups>(of_group, line * 2 + s),
                     total[line * kSums + s]);
      }
      x += kTogether * kPieceColumns;
    }
  }
  alignas(64) float sums[ops::kFragmentRows];
  V::template reduce<kCodes>(total, sums);
  put_row(args, tile, 0, sums);
}

// Memory of several rows of x. A block of units lies in L1 while a chunk of rows passes, all kept
// units lie in L2.
template <class V>
struct FragmentScratch {
  static constexpr std::int64_t kBlockNumbers =
      V::kBlockUnits * ops::kFragmentRows * ops::kFragmentColumns;
  static constexpr std::int64_t kKeptUnits =
      (256 << 10) / (ops::kFragmentRows * ops::kFragmentColumns *
                     static_cast<std::int64_t>(sizeof(typename V::Number)));
  static constexpr std::int64_t kChunkRows = 2 * V::kRows;
  std::int64_t kept;            // units, whole blocks
  typename V::Number* numbers;  // [blocks][sums][steps of the block], vectors
  float* scales;                // as UnitScales has them
  float* totals;                // [rows][sums], vectors; of a chunk where all units are kept

  FragmentScratch(std::byte* memory, std::int64_t units)
      : kept(kept_of(units)),
        numbers(reinterpret_cast<typename V::Number*>(memory)),
        scales(reinterpret_cast<float*>(numbers + kept / V::kBlockUnits * kBlockNumbers)),
        totals(scales + kept * kMaxUnitGroups * ops::kFragmentRows) {}
  static std::int64_t kept_of(std::int64_t units) {
    return (std::min(units, kKeptUnits) + V::kBlockUnits - 1) / V::kBlockUnits * V::kBlockUnits;
  }
  static std::int64_t bytes(std::int64_t rows, std::int64_t units) {
    const std::int64_t of_units =
        ops::kFragmentRows *
        (ops::kFragmentColumns * static_cast<std::int64_t>(sizeof(typename V::Number)) +
         kMaxUnitGroups * static_cast<std::int64_t>(sizeof(float)));
    return kept_of(units) * of_units + (units > kKeptUnits ? rows : kChunkRows) *
                                           ops::kFragmentRows * V::kLanes *
                                           static_cast<std::int64_t>(sizeof(float));
  }
};

// Numbers and scales of units [first, first + count) of a tile.
template <class V, Codes kCodes, int kTogether, int kGroups>
void widen_units(const FragmentProduct& args, std::int64_t tile, std::int64_t first,
                 std::int64_t count, const FragmentScratch<V>& to) {
  constexpr int kPieceColumns = piece_columns(kCodes), kSteps = V::template kSteps<kCodes>,
                kSums = V::template kSumsOfLine<kCodes>,
                kPieces = ops::kFragmentColumns / kPieceColumns;
  constexpr std::int64_t kSumNumbers = FragmentScratch<V>::kBlockNumbers / kAllSums<V, kCodes>;
  for (std::int64_t u = 0; u < count; ++u) {
    const std::uint8_t* unit = args.w + (tile * args.units + first + u) * args.form.bytes();
    read_scales(args, unit, to.scales + u * args.form.groups * ops::kFragmentRows);
    fetch_scales<V>(args, unit);
    typename V::Number* const block =
        to.numbers + u / V::kBlockUnits * FragmentScratch<V>::kBlockNumbers;
    for (int p = 0; p < kPieces; ++p)
      for (int line = 0; line < kLines; ++line) {
        const int group = p / kTogether * kGroups;
        const auto tables = V::template tables<kCodes, kGroups>(zeros_of(args, unit, group, line));
        const std::uint8_t* at = unit + p * kPieceBytes + line * kLineBytes;
        fetch<V>(at);
        typename V::W w[kSteps * kSums];
        V::template widen<kCodes, kGroups>(at, tables, w);
#pragma GCC unroll 2
        for (int s = 0; s < kSums; ++s)
#pragma GCC unroll 8
          for (int step = 0; step < kSteps; ++step)
            V::store_w(
                block + (line * kSums + s) * kSumNumbers +
                    ((u % V::kBlockUnits * kPieces + p) * kSteps + step) * V::kNumbersOfVector,
                w[step * kSums + s]);
      }
  }
}

// Adds the products of a block to totals of MR rows and V::kSums vectors of sums from `first` on.
// is_first: these totals are zeros. A function of its own keeps the numbers of w in registers.
template <class V, Codes kCodes, int kTogether, int kGroups, int MR>
[[gnu::noinline]] void multiply_block(const typename V::Number* const* x, std::int64_t pieces,
                                      int first, const typename V::Number* numbers_of_block,
                                      const float* scales, bool is_first, float* totals) {
  constexpr int kPieceColumns = piece_columns(kCodes), kSteps = V::template kSteps<kCodes>,
                kSums = V::template kSumsOfLine<kCodes>, kAll = kAllSums<V, kCodes>, NR = V::kSums;
  constexpr std::int64_t kSumNumbers = FragmentScratch<V>::kBlockNumbers / kAll;
  using F = typename V::F;
  const auto total_at = [&](int m, int n) __attribute__((always_inline)) {
    return totals + (m * kAll + first + n) * V::kLanes;
  };
  F total[MR][NR];
#pragma GCC unroll 4
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < NR; ++n) total[m][n] = is_first ? V::zero() : V::load(total_at(m, n));
  const typename V::Number* w = numbers_of_block + first * kSumNumbers;
  for (std::int64_t p = 0; p < pieces; p += kTogether) {
    F sum[MR][NR];
#pragma GCC unroll 4
    for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
      for (int n = 0; n < NR; ++n) sum[m][n] = V::zero();
#pragma GCC unroll 4
    for (int k = 0; k < kTogether; ++k) {
      const auto add = [&]<std::size_t kStep>() __attribute__((always_inline)) {
        typename V::W numbers[NR];
#pragma GCC unroll 4
        for (int n = 0; n < NR; ++n)
          numbers[n] = V::load_w(w + n * kSumNumbers +
                                 ((p + k) * kSteps + static_cast<std::int64_t>(kStep)) *
                                     V::kNumbersOfVector);
#pragma GCC unroll 4
        for (int m = 0; m < MR; ++m) {
          const typename V::X of_x =
              V::template x_step<kCodes, kStep>(x[m] + (p + k) * kPieceColumns);
#pragma GCC unroll 4
          for (int n = 0; n < NR; ++n) sum[m][n] = V::dot(sum[m][n], numbers[n], of_x);
        }
      };
      [&]<std::size_t... kStep>(std::index_sequence<kStep...>) __attribute__((always_inline)) {
        (add.template operator()<kStep>(), ...);
      }(std::make_index_sequence<kSteps>());
    }
#pragma GCC unroll 4
    for (int n = 0; n < NR; ++n) {
      const F scale = V::template scale_of<kCodes, kGroups>(scales, (first + n) * (2 / kSums));
#pragma GCC unroll 4
      for (int m = 0; m < MR; ++m) total[m][n] = V::fma(sum[m][n], scale, total[m][n]);
    }
    scales += kGroups * ops::kFragmentRows;
  }
#pragma GCC unroll 4
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < NR; ++n) V::store(total_at(m, n), total[m][n]);
}

// A tile with several rows of x.
template <class V, Codes kCodes, int kTogether, int kGroups>
void multiply_rows(const FragmentProduct& args, std::int64_t tile,
                   const FragmentScratch<V>& scratch) {
  constexpr int kAll = kAllSums<V, kCodes>, kBlockUnits = V::kBlockUnits;
  constexpr std::int64_t kRowFloats = kAll * V::kLanes, kChunkRows = FragmentScratch<V>::kChunkRows;
  const bool keeps_all = args.units <= scratch.kept;
  for (std::int64_t u = 0; u < args.units; u += scratch.kept) {
    const std::int64_t units = std::min(scratch.kept, args.units - u);
    widen_units<V, kCodes, kTogether, kGroups>(args, tile, u, units, scratch);
    for (std::int64_t chunk = 0; chunk < args.num_rows; chunk += kChunkRows) {
      const std::int64_t end = std::min(args.num_rows, chunk + kChunkRows);
      float* const totals = scratch.totals + (keeps_all ? 0 : chunk * kRowFloats);
      for (std::int64_t b = 0; b < units; b += kBlockUnits) {
        const std::int64_t pieces = std::min<std::int64_t>(kBlockUnits, units - b) *
                                    ops::kFragmentColumns / piece_columns(kCodes);
        const typename V::Number* const numbers =
            scratch.numbers + b / kBlockUnits * FragmentScratch<V>::kBlockNumbers;
        const float* const scales = scratch.scales + b * args.form.groups * ops::kFragmentRows;
        for (std::int64_t m = chunk; m < end;) {
          const auto rows = static_cast<int>(std::min<std::int64_t>(V::kRows, end - m));
          const typename V::Number* x[V::kRows];
          for (int i = 0; i < rows; ++i)
            x[i] = row_of_x<V>(args, m + i) + (u + b) * ops::kFragmentColumns;
          const auto add = [&]<int MR>() {
            for (int n = 0; n < kAll; n += V::kSums)
              multiply_block<V, kCodes, kTogether, kGroups, MR>(
                  x, pieces, n, numbers, scales, u + b == 0, totals + (m - chunk) * kRowFloats);
          };
          if (rows == 1) add.template operator()<1>();
          if (rows == 2) add.template operator()<2>();
          if constexpr (V::kRows == 3)
            if (rows == 3) add.template operator()<3>();
          m += rows;
        }
      }
      if (u + units < args.units) continue;
      for (std::int64_t m = chunk; m < end; ++m) {
        typename V::F total[kAll];
#pragma GCC unroll 16
        for (int i = 0; i < kAll; ++i)
          total[i] = V::load(totals + (m - chunk) * kRowFloats + i * V::kLanes);
        alignas(64) float sums[ops::kFragmentRows];
        V::template reduce<kCodes>(total, sums);
        put_row(args, tile, m, sums);
      }
    }
  }
}

template <class V, Codes kCodes, int kTogether, int kGroups>
void multiply_tiles(const FragmentProduct& args, std::int64_t first, std::int64_t last,
                    std::byte* scratch) {
  for (std::int64_t tile = first; tile < last; ++tile)
    if (args.num_rows == 1)
      multiply_row<V, kCodes, kTogether, kGroups>(args, tile);
    else
      multiply_rows<V, kCodes, kTogether, kGroups>(args, tile,
                                                   FragmentScratch<V>(scratch, args.units));
}

template <class V, Codes kCodes>
void multiply_codes(const FragmentProduct& args, std::int64_t first, std::int64_t last,
                    std::byte* scratch) {
  if constexpr (kCodes == Codes::kE4m3) {
    multiply_tiles<V, kCodes, 4, 1>(args, first, last, scratch);
  } else if constexpr (kCodes == Codes::kE2m1) {
    if (args.format == Format::kNvFp4)
      multiply_tiles<V, kCodes, 1, 4>(args, first, last, scratch);
    else
      multiply_tiles<V, kCodes, 1, 2>(args, first, last, scratch);
  } else {
    constexpr int kPieces = ops::kFragmentColumns / piece_columns(kCodes);
    if (args.form.groups == 1)
      multiply_tiles<V, kCodes, kPieces, 1>(args, first, last, scratch);
    else if (args.form.groups == 2)
      multiply_tiles<V, kCodes, kPieces / 2, 1>(args, first, last, scratch);
    else
      multiply_tiles<V, kCodes, 1, kPieces == 2 ? 2 : 1>(args, first, last, scratch);
  }
}

template <class V>
void multiply_fragments(const FragmentProduct& args, std::int64_t first, std::int64_t last,
                        std::byte* scratch) {
  switch (args.format) {
    case Format::kFp8:
      return multiply_codes<V, Codes::kE4m3>(args, first, last, scratch);
    case Format::kInt8:
      return multiply_codes<V, Codes::kInt8>(args, first, last, scratch);
    case Format::kMxFp4:
    case Format::kNvFp4:
      return multiply_codes<V, Codes::kE2m1>(args, first, last, scratch);
    case Format::kInt4Zero:
      return multiply_codes<V, Codes::kZeros>(args, first, last, scratch);
    default:
      return multiply_codes<V, Codes::kMiddle>(args, first, last, scratch);
  }
}

}  // namespace
}  // namespace sluice::cpu
