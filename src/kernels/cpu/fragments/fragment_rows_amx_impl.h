// Weights in fragments and rows of bfloat16 (fragment_rows.h) on AMX, in the blocks of
// amx_blocks.h. Included after amx.h, bf16_fragments.h and fragment_rows_impl.h, inside a target
// pragma.
//
// Rows of w are the rows of A, and rows of x the columns of B: a line of a fragment becomes rows of
// 32 columns as they lie. A unit of 16 rows by 128 columns is four tiles, and each belongs to one
// group of columns.
//
//   group:   sum   = TDPBF16PS over the group's tiles, from zero (order of sums: amx.h)
//   row:     total = fma(sum, scale, total)          groups ascending, from zero
//
//   registers:   x: tmm6   x: tmm7         16 rows of x each
//   w: tmm4        tmm0      tmm1
//   w: tmm5        tmm2      tmm3
//
// One row of x takes the same tiles with one column of B, so it has the same bits. Rows of a tile
// of w are in the order of FragmentUnit::place(): rows r and r + 8 are neighbours. Tiles of x are
// those of FragmentTiles.
#pragma once

namespace sluice::cpu {
namespace {

constexpr std::int64_t kAmxTileBytes = kAmxRows * 64;
constexpr int kUnitTiles = static_cast<int>(ops::kFragmentColumns / FragmentTiles::kColumns);
static_assert(kAmxRows == FragmentTiles::kRows);
constexpr std::int64_t kUnitsAtOnce = 2;  // of w in L1

// A quarter of a unit, as many lines as a tile of w has columns of, in the unit's tiles of w.
// `tiles`: the unit's, `stride` bytes apart.
template <Codes kCodes, int kGroups>
[[gnu::always_inline]] inline void widen_quarter(const FragmentProduct& args,
                                                 const std::uint8_t* unit, int quarter,
                                                 std::byte* tiles, std::int64_t stride) {
  constexpr int kPieces = static_cast<int>(ops::kFragmentColumns) / piece_columns(kCodes),
                kTilesOfPiece = kUnitTiles / kPieces, kCount = kLines / kTilesOfPiece;
  const int piece = quarter / kTilesOfPiece, first = quarter % kTilesOfPiece * kCount;
  const std::uint8_t* const codes = unit + piece * kPieceBytes;
  const std::uint8_t* const zeros = zeros_of(args, unit, piece * args.form.groups / kPieces, 0);
  std::byte* const to = tiles + piece * kTilesOfPiece * stride;
#pragma GCC unroll 2
  for (int line = first; line < first + kCount; ++line) {
    const auto tables = Bf16Fragments::tables<kCodes, kGroups>(zeros + 2 * line);
    const std::uint8_t* const at = codes + line * kLineBytes;
    fetch<Bf16Fragments>(at);
    __m512i w[2 * kTilesOfPiece];
    Bf16Fragments::widen<kCodes, kGroups>(at, tables, w);
    const auto put = [&](int tile, int below, __m512i numbers) __attribute__((always_inline)) {
      _mm512_store_si512(to + tile * stride + (2 * line + below) * kLineBytes, numbers);
    };
    const auto pairs = [](__m512i a, __m512i b, auto which) __attribute__((always_inline)) {
      return _mm512_castps_si512(_mm512_maskz_shuffle_ps(0xFFFF, _mm512_castsi512_ps(a),
                                                         _mm512_castsi512_ps(b), which.value));
    };
    using Evens = std::integral_constant<int, 0x88>;
    using Odds = std::integral_constant<int, 0xDD>;
    using Lows = std::integral_constant<int, 0x44>;
    using Highs = std::integral_constant<int, 0xEE>;
    if constexpr (kTilesOfPiece == 1) {  // rows r and r + 8 in turn
      put(0, 0, pairs(w[0], w[1], Evens()));
      put(0, 1, pairs(w[0], w[1], Odds()));
    } else if constexpr (kGroups == 1) {  // [8 columns of 16][row]
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) put(i / 2, i % 2, w[i]);
    } else {  // the first two steps are a group, and the others
#pragma GCC unroll 2
      for (int below = 0; below < 2; ++below) {
        put(0, below, pairs(w[below], w[2 + below], Lows()));
        put(1, below, pairs(w[below], w[2 + below], Highs()));
      }
    }
  }
}

// [column][row] of 16 rows of 16 floats.
[[gnu::always_inline]] inline void transpose(__m512 (&rows)[kAmxRows]) {
  __m512 pairs[kAmxRows], fours[kAmxRows];
#pragma GCC unroll 8
  for (int i = 0; i < kAmxRows; i += 2) {
    pairs[i] = _mm512_maskz_unpacklo_ps(0xFFFF, rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_maskz_unpackhi_ps(0xFFFF, rows[i], rows[i + 1]);
  }
  const auto unpack = [](__m512 a, __m512 b, auto high) __attribute__((always_inline)) {
    const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
    return _mm512_castpd_ps(high.value ? _mm512_maskz_unpackhi_pd(0xFF, x, y)
                                       : _mm512_maskz_unpacklo_pd(0xFF, x, y));
  };
  // fours[i + j]: in each quarter L, column 4 L + j of rows i to i + 3.
#pragma GCC unroll 4
  for (int i = 0; i < kAmxRows; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      fours[i + 2 * j] = unpack(pairs[i + j], pairs[i + 2 + j], std::false_type());
      fours[i + 2 * j + 1] = unpack(pairs[i + j], pairs[i + 2 + j], std::true_type());
    }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512 ab02 = _mm512_maskz_shuffle_f32x4(0xFFFF, fours[j], fours[4 + j], 0x88),
                 ab13 = _mm512_maskz_shuffle_f32x4(0xFFFF, fours[j], fours[4 + j], 0xDD),
                 cd02 = _mm512_maskz_shuffle_f32x4(0xFFFF, fours[8 + j], fours[12 + j], 0x88),
                 cd13 = _mm512_maskz_shuffle_f32x4(0xFFFF, fours[8 + j], fours[12 + j], 0xDD);
    rows[j] = _mm512_maskz_shuffle_f32x4(0xFFFF, ab02, cd02, 0x88);
    rows[4 + j] = _mm512_maskz_shuffle_f32x4(0xFFFF, ab13, cd13, 0x88);
    rows[8 + j] = _mm512_maskz_shuffle_f32x4(0xFFFF, ab02, cd02, 0xDD);
    rows[12 + j] = _mm512_maskz_shuffle_f32x4(0xFFFF, ab13, cd13, 0xDD);
  }
}

void rows_to_tiles(const std::byte* x, std::int64_t x_stride, std::int64_t count,
                   std::int64_t first, std::int64_t last, std::int64_t line, std::byte* out) {
  const auto lanes = static_cast<__mmask16>((1u << count) - 1u);
  for (std::int64_t tile = first; tile < last; ++tile) {
    __m512 rows[kAmxRows];  // of pairs
#pragma GCC unroll 16
    for (int m = 0; m < kAmxRows; ++m)
      rows[m] =
          m < count ? _mm512_load_ps(x + m * x_stride + tile * kLineBytes) : _mm512_setzero_ps();
    transpose(rows);
    std::byte* const to = out + tile * kAmxRows * line;
#pragma GCC unroll 16
    for (int pair = 0; pair < kAmxRows; ++pair)
      _mm512_mask_storeu_ps(to + pair * line, lanes, rows[pair]);
  }
}

// totals: [place of n][m]
inline void put_rows(const FragmentProduct& args, std::int64_t tile, std::int64_t m,
                     std::int64_t rows, const float* totals) {
  const std::int64_t first = tile * ops::kFragmentRows,
                     count = std::min(ops::kFragmentRows, args.out_rows - first);
  const auto lanes = static_cast<__mmask16>((1u << count) - 1u);
  __m512 of_x[kAmxRows];
#pragma GCC unroll 16
  for (int r = 0; r < kAmxRows; ++r)
    of_x[r] = _mm512_load_ps(totals + ops::FragmentUnit::place(r) * kAmxRows);
  transpose(of_x);
#pragma GCC unroll 16
  for (int i = 0; i < kAmxRows; ++i)
    if (i < rows)
      _mm512_mask_storeu_ps(args.out + (m + i) * args.out_stride + first, lanes, of_x[i]);
}

// Sums of one group, of two tiles of w by two of x.
template <int kTiles, int kRowTiles>
[[gnu::always_inline]] inline void sum_group(const std::byte* w, const std::byte* x,
                                             std::int64_t x_below, std::int64_t x_line, int tiles,
                                             float (*sums)[kAmxRows * kAmxRows]) {
  amx_zero<0>();
  if constexpr (kRowTiles > 1) amx_zero<1>();
  if constexpr (kTiles > 1) amx_zero<2>();
  if constexpr (kTiles > 1 && kRowTiles > 1) amx_zero<3>();
  for (int t = 0; t < tiles; ++t, w += kPairTiles * kAmxTileBytes, x += kAmxRows * x_line) {
    amx_load<4>(w, kLineBytes);
    amx_load<6>(x, x_line);
    amx_dot_bf16<0, 4, 6>();
    if constexpr (kTiles > 1) amx_load<5>(w + kAmxTileBytes, kLineBytes);
    if constexpr (kTiles > 1) amx_dot_bf16<2, 5, 6>();
    if constexpr (kRowTiles > 1) amx_load<7>(x + x_below, x_line);
    if constexpr (kRowTiles > 1) amx_dot_bf16<1, 4, 7>();
    if constexpr (kTiles > 1 && kRowTiles > 1) amx_dot_bf16<3, 5, 7>();
  }
  amx_store<0>(sums[0], kLineBytes);
  if constexpr (kRowTiles > 1) amx_store<1>(sums[1], kLineBytes);
  if constexpr (kTiles > 1) amx_store<2>(sums[2], kLineBytes);
  if constexpr (kTiles > 1 && kRowTiles > 1) amx_store<3>(sums[3], kLineBytes);
}

// totals += sums times the scales of the rows of w.
template <int kTiles, int kRowTiles>
[[gnu::always_inline]] inline void add_group(const float (*sums)[kAmxRows * kAmxRows],
                                             const float* const* scales, bool is_first,
                                             float (*totals)[kAmxRows * kAmxRows]) {
  for (int tile = 0; tile < kTiles; ++tile)
    for (int n = 0; n < kAmxRows; ++n) {
      const __m512 scale = _mm512_set1_ps(scales[tile][n]);
#pragma GCC unroll 2
      for (int of_x = 0; of_x < kRowTiles; ++of_x) {
        const int i = tile * 2 + of_x, at = n * kAmxRows;
        const __m512 before = is_first ? _mm512_setzero_ps() : _mm512_load_ps(totals[i] + at);
        _mm512_store_ps(totals[i] + at,
                        _mm512_fmadd_ps(_mm512_load_ps(sums[i] + at), scale, before));
      }
    }
}

template <Codes kCodes, int kGroups>
class AmxFragments {
 public:
  explicit AmxFragments(const FragmentProduct& args)
      : args_(args),
        groups_((args.num_rows + kAmxGroupRows - 1) / kAmxGroupRows),
        x_line_(FragmentTiles(args.num_rows, 0).line),
        group_tiles_(kUnitTiles / args.form.groups) {}

  // Tiles [first, last) of w, kPairsAtOnce pairs at most.
  void multiply(std::int64_t first, std::int64_t last) {
    for (std::int64_t begin = 0; begin < args_.units; begin += kUnitsAtOnce) {
      const std::int64_t end = std::min(args_.units, begin + kUnitsAtOnce);
      for (std::int64_t pair = 0; first + pair * kPairTiles < last; ++pair) {
        const std::int64_t tile = first + pair * kPairTiles;
        if (last - tile > 1)
          pass<2>(tile, begin, end, totals_[pair]);
        else
          pass<1>(tile, begin, end, totals_[pair]);
      }
    }
  }

  // One row of x. The next unit becomes tiles of w, a quarter of it behind each product of this
  // one, and sums are scaled one group later: both are read from memory that was just written.
  void multiply_row(std::int64_t tile) {
    shapes_.set({.first = kAmxRows, .a_bytes = kLineBytes, .columns = 1});
    alignas(64) float sums[2][kAmxRows];
    __m512 total = _mm512_setzero_ps(), scale = total;
    const std::byte* x = args_.x;
    std::int64_t made = 0;
    widen(tile, 0, 0, 0);
    for (std::int64_t u = 0; u < args_.units; ++u) {
      const std::int64_t stage = u % kUnitsAtOnce, next = (u + 1) % kUnitsAtOnce;
      const std::uint8_t* const ahead = u + 1 < args_.units ? unit_of(tile, u + 1) : nullptr;
      if (ahead != nullptr) begin_unit(ahead, next, 0);
#pragma GCC unroll 4
      for (int t = 0; t < kUnitTiles; ++t, x += kLineBytes) {
        if (t % group_tiles_ == 0) amx_zero<0>();
        amx_load<4>(tiles_[stage][t][0], kLineBytes);
        amx_load<6>(x, 4);
        amx_dot_bf16<0, 4, 6>();
        if (ahead != nullptr)
          widen_quarter<kCodes, kGroups>(args_, ahead, t, tiles_[next][0][0], kTileStride);
        if ((t + 1) % group_tiles_ != 0) continue;
        amx_store<0>(sums[made % 2], 4);
        if (made > 0) total = _mm512_fmadd_ps(_mm512_load_ps(sums[(made - 1) % 2]), scale, total);
        scale = _mm512_load_ps(scales_[stage][0].of[t / group_tiles_]);
        ++made;
      }
    }
    total = _mm512_fmadd_ps(_mm512_load_ps(sums[(made - 1) % 2]), scale, total);
    alignas(64) float by_place[kAmxRows], out[kAmxRows];
    _mm512_store_ps(by_place, total);
    for (int r = 0; r < kAmxRows; ++r) out[r] = by_place[ops::FragmentUnit::place(r)];
    put_row(args_, tile, 0, out);
  }

 private:
  using Totals = float[4][kAmxRows * kAmxRows];

  static constexpr std::int64_t kTileStride = kPairTiles * kAmxTileBytes;

  const std::uint8_t* unit_of(std::int64_t tile, std::int64_t u) const {
    return args_.w + (tile * args_.units + u) * args_.form.bytes();
  }
  // Scales of a unit; its quarters follow.
  void begin_unit(const std::uint8_t* unit, std::int64_t stage, int of_pair) {
    fetch_scales<Bf16Fragments>(args_, unit);
    read_scales(args_, unit, scales_[stage][of_pair].of[0]);
  }
  // Tiles and scales of unit u of a tile of w.
  void widen(std::int64_t tile, std::int64_t u, std::int64_t stage, int of_pair) {
    const std::uint8_t* const unit = unit_of(tile, u);
    begin_unit(unit, stage, of_pair);
    for (int i = 0; i < kUnitTiles; ++i)
      widen_quarter<kCodes, kGroups>(args_, unit, i, tiles_[stage][0][of_pair], kTileStride);
  }

  // Units [begin, end) of kTiles tiles of w, with all rows of x.
  template <int kTiles>
  void pass(std::int64_t tile, std::int64_t begin, std::int64_t end, Totals* totals) {
    for (int i = 0; i < kTiles; ++i)
      for (std::int64_t u = begin; u < end; ++u) widen(tile + i, u, u - begin, i);
    for (std::int64_t group = 0; group < groups_; ++group) {
      const std::int64_t m = group * kAmxGroupRows,
                         rows = std::min(kAmxGroupRows, args_.num_rows - m);
      if (rows > kAmxRows)
        units<kTiles, 2>(group, rows, begin, end, totals[group]);
      else
        units<kTiles, 1>(group, rows, begin, end, totals[group]);
      if (end < args_.units) continue;
      for (int i = 0; i < kTiles; ++i) {
        put_rows(args_, tile + i, m, std::min<std::int64_t>(rows, kAmxRows), totals[group][2 * i]);
        if (rows > kAmxRows)
          put_rows(args_, tile + i, m + kAmxRows, rows - kAmxRows, totals[group][2 * i + 1]);
      }
    }
  }

  template <int kTiles, int kRowTiles>
  void units(std::int64_t group, std::int64_t rows, std::int64_t begin, std::int64_t end,
             Totals& totals) {
    const auto columns = static_cast<int>(std::min<std::int64_t>(rows, kAmxRows));
    shapes_.set({.first = kAmxRows,
                 .second = kTiles > 1 ? kAmxRows : 0,
                 .a_bytes = kLineBytes,
                 .columns = columns,
                 .more_columns = static_cast<int>(rows) - columns});
    const std::int64_t x_tile = kAmxRows * x_line_;
    const std::byte* x = args_.x + 2 * group * args_.x_stride + begin * kUnitTiles * x_tile;
    // The sums of one group are scaled while those of the next are made.
    alignas(64) float sums[2][4][kAmxRows * kAmxRows];
    if (rows % kAmxRows != 0) std::memset(sums, 0, sizeof sums);  // columns that no sum writes
    const float* scales[2][2] = {};
    std::int64_t made = 0;
    for (std::int64_t u = 0; u < end - begin; ++u)
      for (int g = 0; g < args_.form.groups; ++g, ++made) {
        sum_group<kTiles, kRowTiles>(tiles_[u][g * group_tiles_][0], x, args_.x_stride, x_line_,
                                     group_tiles_, sums[made % 2]);
        x += group_tiles_ * x_tile;
        for (int i = 0; i < kTiles; ++i) scales[made % 2][i] = scales_[u][i].of[g];
        if (made > 0)
          add_group<kTiles, kRowTiles>(sums[(made - 1) % 2], scales[(made - 1) % 2],
                                       begin == 0 && made == 1, totals);
      }
    add_group<kTiles, kRowTiles>(sums[(made - 1) % 2], scales[(made - 1) % 2],
                                 begin == 0 && made == 1, totals);
  }

  const FragmentProduct& args_;
  const std::int64_t groups_, x_line_;
  const int group_tiles_;  // of w and x in a group of columns
  AmxShapes shapes_;
  alignas(64) std::byte tiles_[kUnitsAtOnce][kUnitTiles][kPairTiles][kAmxTileBytes];
  UnitScales scales_[kUnitsAtOnce][kPairTiles];
  alignas(64) Totals totals_[kPairsAtOnce][kMaxAmxGroups];
};

template <Codes kCodes, int kGroups>
void multiply_on_amx(const FragmentProduct& args, std::int64_t first, std::int64_t last) {
  AmxFragments<kCodes, kGroups> product(args);
  if (args.num_rows == 1) {
    for (std::int64_t tile = first; tile < last; ++tile) product.multiply_row(tile);
    return;
  }
  for (std::int64_t tile = first; tile < last; tile += kPairsAtOnce * kPairTiles)
    product.multiply(tile, std::min(last, tile + kPairsAtOnce * kPairTiles));
}

// Four bits in groups of 32: a piece has two.
template <Codes kCodes>
void multiply_nibbles_on_amx(const FragmentProduct& args, std::int64_t first, std::int64_t last) {
  if (args.form.groups == kUnitTiles) return multiply_on_amx<kCodes, 2>(args, first, last);
  multiply_on_amx<kCodes, 1>(args, first, last);
}

void multiply_fragments_on_amx(const FragmentProduct& args, std::int64_t first, std::int64_t last,
                               std::byte*) {
  switch (args.format) {
    case Format::kFp8:
      return multiply_on_amx<Codes::kE4m3, 1>(args, first, last);
    case Format::kInt8:
      return multiply_on_amx<Codes::kInt8, 1>(args, first, last);
    case Format::kMxFp4:
      return multiply_nibbles_on_amx<Codes::kE2m1>(args, first, last);
    case Format::kInt4Zero:
      return multiply_nibbles_on_amx<Codes::kZeros>(args, first, last);
    default:
      return multiply_nibbles_on_amx<Codes::kMiddle>(args, first, last);
  }
}

}  // namespace
}  // namespace sluice::cpu
