// Rows of int8 (int8_rows.h) on AMX, in the blocks of amx_blocks.h. Included after amx.h, inside a
// target pragma.
//
// The weight's bytes become tiles of AMX in L1: a row of such a tile holds four columns of 16 rows
// of w. 32 rows of x multiply two of them at once (registers: amx.h). Weights of kStepsAtOnce steps
// stay in L1 while all rows of x pass; x of these steps stays in L2 for kPairsAtOnce pairs.
//
//   for some pairs of tiles of w, for some steps of 64 columns:
//     for each pair:          make tiles of its bytes
//       for each 32 rows of x:  sums of the steps before, the steps, sums; the last ones are scaled
//
// Tiles of w hold its rows in the order 0, 8, 1, 9, ... 7, 15, as a line of fragments has rows r
// and r + 8. Codes are unsigned, with 128 more; 128 times the sum of a row of x goes from its sums.
#pragma once

namespace sluice::cpu {
namespace {

constexpr std::int64_t kAmxTileBytes = kAmxRows * 64;
constexpr std::int64_t kStepsAtOnce = 8;
constexpr int kLineBytes = 64, kPieceLines = 8;

// A piece of 32 columns of 16 rows: eight lines become half a tile, eight rows of 64 bytes. Qword j
// of each line has four columns of rows r and r + 8, and goes to row j: a transposition.
[[gnu::always_inline]] inline void put_half_tile(const std::uint8_t* lines, std::byte* to) {
  __m512i v[kPieceLines];
#pragma GCC unroll 8
  for (int i = 0; i < kPieceLines; ++i)
    v[i] = _mm512_maskz_shuffle_epi8(
        ~__mmask64{0},
        load_next<__m512i>(reinterpret_cast<const std::byte*>(lines) + i * kLineBytes),
        _mm512_set4_epi32(0x0F0E0B0A, 0x0D0C0908, 0x07060302, 0x05040100));
  // Pairs of lines: qwords of equal parity side by side.
  __m512i two[kPieceLines];
#pragma GCC unroll 4
  for (int i = 0; i < kPieceLines; i += 2) {
    two[i] = _mm512_maskz_unpacklo_epi64(0xFF, v[i], v[i + 1]);      // qwords 0, 2, 4, 6
    two[i + 1] = _mm512_maskz_unpackhi_epi64(0xFF, v[i], v[i + 1]);  // 1, 3, 5, 7
  }
#pragma GCC unroll 2
  for (int odd = 0; odd < 2; ++odd) {
    const __m512i a = two[odd], b = two[2 + odd], c = two[4 + odd], d = two[6 + odd];
    const __m512i ab02 = _mm512_maskz_shuffle_i64x2(0xFF, a, b, 0x88),
                  ab13 = _mm512_maskz_shuffle_i64x2(0xFF, a, b, 0xDD),
                  cd02 = _mm512_maskz_shuffle_i64x2(0xFF, c, d, 0x88),
                  cd13 = _mm512_maskz_shuffle_i64x2(0xFF, c, d, 0xDD);
    const auto put = [&](int row, __m512i bytes) __attribute__((always_inline)) {
      _mm512_store_si512(to + (row + odd) * kLineBytes, bytes);
    };
    put(0, _mm512_maskz_shuffle_i64x2(0xFF, ab02, cd02, 0x88));
    put(2, _mm512_maskz_shuffle_i64x2(0xFF, ab13, cd13, 0x88));
    put(4, _mm512_maskz_shuffle_i64x2(0xFF, ab02, cd02, 0xDD));
    put(6, _mm512_maskz_shuffle_i64x2(0xFF, ab13, cd13, 0xDD));
  }
}

// Some steps of 64 columns of a pair of tiles of w.
struct PairTiles {
  alignas(64) std::byte tiles[kStepsAtOnce][kPairTiles][kAmxTileBytes];

  void fill(const Int8Product& args, std::int64_t tile, std::int64_t count, std::int64_t begin,
            std::int64_t end) {
    constexpr std::int64_t kUnitSteps = ops::kFragmentColumns / 64;
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t step = begin; step < end; ++step) {
        const std::uint8_t* const lines =
            args.w + ((tile + i) * args.units + step / kUnitSteps) * args.unit_bytes +
            step % kUnitSteps * kAmxTileBytes;
        std::byte* const to = tiles[step - begin][i];
        put_half_tile(lines, to);
        put_half_tile(lines + kAmxTileBytes / 2, to + kAmxTileBytes / 2);
      }
  }
};

// Bytes of w that are read next, into L2: a part of them for each group of rows of x.
class NextBytes {
 public:
  NextBytes(const Int8Product& args, std::int64_t groups, std::int64_t tile, std::int64_t count,
            std::int64_t begin, std::int64_t end)
      : args_(args), tile_(tile), begin_(begin * kAmxTileBytes), count_(count) {
    lines_ = (end - begin) * kAmxTileBytes / kLineBytes;
    at_once_ = (lines_ * count + groups - 1) / groups;
  }
  void fetch_some() {
    constexpr std::int64_t kUnitCodes = ops::kFragmentColumns * ops::kFragmentRows;
    const std::int64_t end = std::min(next_ + at_once_, lines_ * count_);
    for (; next_ < end; ++next_) {
      const std::int64_t at = begin_ + next_ % lines_ * kLineBytes;
      _mm_prefetch(
          args_.w + ((tile_ + next_ / lines_) * args_.units + at / kUnitCodes) * args_.unit_bytes +
              at % kUnitCodes,
          _MM_HINT_T1);
    }
  }

 private:
  const Int8Product& args_;
  std::int64_t tile_, begin_, count_, lines_ = 0, at_once_ = 0, next_ = 0;
};

// Sums of 32 rows of x and two tiles of w, as the registers have them.
struct GroupSums {
  alignas(64) std::int32_t tiles[4][kAmxRows * kAmxRows];
};

template <int kRowTiles, int kTiles>
void multiply_group(const std::int8_t* x, std::int64_t below, const PairTiles& w,
                    std::int64_t steps, bool resume, GroupSums& sums) {
  // The registers of sums in use.
  const auto each_sum = [](const auto& body) __attribute__((always_inline)) {
    body.template operator()<0>();
    if constexpr (kTiles > 1) body.template operator()<1>();
    if constexpr (kRowTiles > 1) body.template operator()<2>();
    if constexpr (kRowTiles > 1 && kTiles > 1) body.template operator()<3>();
  };
  if (resume)
    each_sum([&]<int kSum>() { amx_load<kSum>(sums.tiles[kSum], kLineBytes); });
  else
    each_sum([]<int kSum>() { amx_zero<kSum>(); });
  for (std::int64_t step = 0; step < steps; ++step, x += kAmxTileBytes) {
    amx_load<4>(x, kLineBytes);
    amx_load<6>(w.tiles[step][0], kLineBytes);
    amx_dot_bytes<0, 4, 6>();
    if constexpr (kRowTiles > 1) amx_load<5>(x + below, kLineBytes);
    if constexpr (kRowTiles > 1) amx_dot_bytes<2, 5, 6>();
    if constexpr (kTiles > 1) amx_load<7>(w.tiles[step][1], kLineBytes);
    if constexpr (kTiles > 1) amx_dot_bytes<1, 4, 7>();
    if constexpr (kRowTiles > 1 && kTiles > 1) amx_dot_bytes<3, 5, 7>();
  }
  each_sum([&]<int kSum>() { amx_store<kSum>(sums.tiles[kSum], kLineBytes); });
}

// The rows of x from m on, and the tile's rows of w in their own order.
void scale_sums(const Int8Product& args, std::int64_t tile, const float* scales, std::int64_t m,
                std::int64_t rows, const std::int32_t* sums) {
  const std::int64_t n = tile * ops::kFragmentRows,
                     count = std::min(ops::kFragmentRows, args.weight->rows - n);
  const auto lanes = static_cast<__mmask16>((1u << count) - 1u);
  const __m512i places = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  const __m512 of_w = _mm512_loadu_ps(scales);
  for (std::int64_t i = 0; i < rows; ++i) {
    const __m512i sum = _mm512_maskz_permutexvar_epi32(0xFFFF, places,
                                                       _mm512_load_si512(sums + i * kAmxRows)),
                  raised = _mm512_set1_epi32(128 * args.x_sums[m + i]);
    _mm512_mask_storeu_ps(
        args.out + (m + i) * args.out_stride + n, lanes,
        _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(0xFFFF, _mm512_sub_epi32(sum, raised)),
                      _mm512_mul_ps(_mm512_set1_ps(args.x_scales[m + i]), of_w)));
  }
}

class AmxInt8Rows {
 public:
  explicit AmxInt8Rows(const Int8Product& args)
      : args_(args),
        steps_(args.units * ops::kFragmentColumns / 64),
        groups_((args.num_rows + kAmxGroupRows - 1) / kAmxGroupRows) {}

  // Pairs of tiles from `first` on, kPairsAtOnce at most.
  void multiply(std::int64_t first, std::int64_t last) {
    for (std::int64_t begin = 0; begin < steps_; begin += kStepsAtOnce) {
      const std::int64_t end = std::min(steps_, begin + kStepsAtOnce);
      for (std::int64_t pair = 0; first + pair * kPairTiles < last; ++pair) {
        const std::int64_t tile = first + pair * kPairTiles,
                           count = std::min(kPairTiles, last - tile);
        tiles_.fill(args_, tile, count, begin, end);
        if (end == steps_)
          for (std::int64_t i = 0; i < count; ++i) {
            const auto scales = int8_scales(args_, tile + i);
            std::copy_n(scales.data(), kAmxRows, scales_[i]);
          }
        NextBytes next = bytes_after(first, last, tile + count, begin, end);
        for (std::int64_t group = 0; group < groups_; ++group) {
          next.fetch_some();
          if (count == 2)
            group_steps<2>(tile, group, begin, end, sums_[pair][group]);
          else
            group_steps<1>(tile, group, begin, end, sums_[pair][group]);
        }
      }
    }
  }

 private:
  // After steps [begin, end) of the tiles before `tile`: those of the next pair, the next steps of
  // the first one, or the first steps of the pair that the thread is likely to take next.
  NextBytes bytes_after(std::int64_t first, std::int64_t last, std::int64_t tile,
                        std::int64_t begin, std::int64_t end) const {
    if (tile == last && end < steps_)
      tile = first, begin = end, end = std::min(steps_, end + kStepsAtOnce);
    else if (tile == last)
      begin = 0, end = std::min(steps_, kStepsAtOnce);
    const std::int64_t tiles = ops::fragment_tiles(args_.weight->rows);
    return {args_, groups_, tile, std::min(kPairTiles, tiles - tile), begin, end};
  }

  template <int kTiles>
  void group_steps(std::int64_t tile, std::int64_t group, std::int64_t begin, std::int64_t end,
                   GroupSums& sums) {
    const std::int64_t m = group * kAmxGroupRows,
                       rows = std::min(kAmxGroupRows, args_.num_rows - m),
                       above = std::min<std::int64_t>(rows, kAmxRows), below = rows - above;
    shapes_.set(
        {.first = static_cast<int>(above), .second = static_cast<int>(below), .a_bytes = 64});
    const std::int8_t* const x = args_.x + 2 * group * args_.x_stride + begin * kAmxTileBytes;
    if (below > 0)
      multiply_group<2, kTiles>(x, args_.x_stride, tiles_, end - begin, begin > 0, sums);
    else
      multiply_group<1, kTiles>(x, 0, tiles_, end - begin, begin > 0, sums);
    if (end < steps_) return;
    for (int i = 0; i < kTiles; ++i) {
      scale_sums(args_, tile + i, scales_[i], m, above, sums.tiles[i]);
      scale_sums(args_, tile + i, scales_[i], m + above, below, sums.tiles[2 + i]);
    }
  }

  const Int8Product& args_;
  const std::int64_t steps_, groups_;
  AmxShapes shapes_;
  PairTiles tiles_;
  alignas(64) float scales_[kPairTiles][kAmxRows];
  GroupSums sums_[kPairsAtOnce][kMaxAmxGroups];
};

void multiply_int8_on_amx(const Int8Product& args, std::int64_t first, std::int64_t last) {
  AmxInt8Rows product(args);
  for (std::int64_t tile = first; tile < last; tile += kPairsAtOnce * kPairTiles)
    product.multiply(tile, std::min(last, tile + kPairsAtOnce * kPairTiles));
}

}  // namespace
}  // namespace sluice::cpu
