// GEMM with quantised tiles (quant_layout.h) over lanes D. Included by quant_*.cpp inside their
// target pragma.
//
// D has vectors F of kLanes floats, vectors I of kLanes 32-bit sums, and per kind a type
// Dots<nibbles>:
// - W: a vector of weights; X: four bytes of x in every lane.
// - dot() adds four terms of unsigned times signed bytes to every sum of a Part, exactly.
// - settle() adds a Part of kLinesAtOnce lines to 32-bit sums. kSettles: it is not a no-op.
//
// Blocking and prefetch parameters of D:
// - max_rows(tiles): rows of x that are multiplied with that many tiles at once.
// - vectors_at_once(nibbles): vectors whose sums are in registers at once.
// - kTilesOfManyRows: tiles at a time if there are more rows than that.
// - block_bytes(): weights that stay in a cache while all rows pass.
// - kFetchHint: the cache that prefetches go to. groups_ahead(parts): prefetch distance in groups;
//   0 means the next block.
// - fetches_by_line(parts): prefetch line by line; otherwise a group at once.
//
// Structure of quant_block(), per group of columns:
// 1. prefetch a group of later weights, once per row part,
// 2. integer dot products of all lines,
// 3. scale and add to the float accumulators.
#pragma once

namespace sluice::cpu {

// One call of the inner kernel: up to kMaxRows rows of x, some tiles of one panel, groups [begin,
// end).
struct QuantBlock {
  const std::byte* const* x = nullptr;
  const std::byte* lines = nullptr;   // of the first tile and group 0
  const std::byte* scales = nullptr;  // of the first tile and group 0
  std::int64_t minima_at = 0;         // distance from the scales
  std::int64_t group_step = 0;        // bytes from one group to the next
  std::int64_t line_step = 0;
  std::int64_t num_lines = 0;
  std::int64_t group = 0;
  std::int64_t x_group_at = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  int last_lanes = 16;  // existing rows of the last tile
  // Row parts pass over the block one after the other. This is number `part` of `parts`. The next
  // block lies `next_block` bytes further on, and each part prefetches its share of it.
  std::int64_t part = 0;
  std::int64_t parts = 1;
  std::int64_t next_block = 0;
};

template <class D>
[[gnu::always_inline]] inline void fetch_line(const std::byte* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), D::kFetchHint);
}
template <class D, int NT>
[[gnu::always_inline]] inline void fetch_group(const std::byte* lines, std::int64_t line_step,
                                               std::int64_t num_lines) {
  for (std::int64_t l = 0; l < num_lines; ++l, lines += line_step)
#pragma GCC unroll 4
    for (int t = 0; t < NT; ++t) fetch_line<D>(lines + t * QuantLayout::kLineBytes);
}

// kShort: a group has exactly Dots::kLinesAtOnce lines, so the line loop runs once.
template <class D, QuantKind kKind, int MR, int NT, bool kShort>
inline void quant_block(const QuantBlock& b) {
  constexpr QuantTraits kTraits = quant_traits(kKind);
  using Dots = typename D::template Dots<kTraits.nibbles>;
  constexpr int kLanes = D::kLanes, kVectors = 16 / kLanes, kAll = NT * kVectors,
                kVectorBytes = 4 * kLanes;
  // Vectors of a line whose sums are in registers at once.
  constexpr int kAtOnce = std::min(kAll, D::vectors_at_once(kTraits.nibbles));
  typename D::F acc[MR][kAll];
  const auto lanes_of = [&](int v) {
    return v / kVectors < NT - 1 ? kLanes
                                 : std::clamp(b.last_lanes - v % kVectors * kLanes, 0, kLanes);
  };
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int v = 0; v < kAll; ++v)
      acc[m][v] =
          b.begin == 0 ? D::zero() : D::load_n(b.out + m * b.out_stride + v * kLanes, lanes_of(v));

  // 1. Prefetch: of every `parts` groups, this part fetches one.
  const bool by_line = D::fetches_by_line(b.parts);
  std::int64_t until_fetch = b.next_block == 0 ? 0 : b.part + 1;
  for (std::int64_t g = b.begin; g < b.end; ++g) {
    const std::byte* lines = b.lines + g * b.group_step;
    const std::byte* scales = b.scales + g * b.group_step;
    const bool fetches = --until_fetch == 0;
    if (fetches) {
      until_fetch = b.parts;
      fetch_line<D>(scales + b.next_block);
      if (!by_line) fetch_group<D, NT>(lines + b.next_block, b.line_step, b.num_lines);
    }
    for (int at = 0; at < kAll; at += kAtOnce) {
      const std::byte* part_lines = lines + at * kVectorBytes;
      const bool fetches_lines = by_line && fetches && at % kVectors == 0;
      // 2. Integer sums start at -offset * Q (XGroup::start), so that unsigned weights can be used.
      typename D::I sum[MR][kAtOnce];
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        XGroup info;
        std::memcpy(&info, b.x[m] + b.x_group_at + g * static_cast<std::int64_t>(sizeof info),
                    sizeof info);
#pragma GCC unroll 8
        for (int v = 0; v < kAtOnce; ++v)
          sum[m][v] = D::spread_int(kTraits.minima ? 0 : info.start);
      }
      const std::int64_t column = g * b.group;
      const std::int64_t num_lines = kShort ? std::int64_t{Dots::kLinesAtOnce} : b.num_lines;
      for (std::int64_t l = 0; l < num_lines; l += Dots::kLinesAtOnce) {
        typename Dots::Part part[MR][kAtOnce];
#pragma GCC unroll 8
        for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
          for (int v = 0; v < kAtOnce; ++v) part[m][v] = Dots::begin(sum[m][v]);
        const auto line_of = [&](std::int64_t i) __attribute__((always_inline)) {
          typename D::I line[kAtOnce];
          if (fetches_lines) fetch_line<D>(part_lines + b.next_block);
#pragma GCC unroll 8
          for (int v = 0; v < kAtOnce; ++v) line[v] = D::load_line(part_lines + v * kVectorBytes);
          part_lines += b.line_step;
          // The low nibbles, or the bytes.
          typename Dots::W w[kAtOnce];
#pragma GCC unroll 8
          for (int v = 0; v < kAtOnce; ++v)
            w[v] = kTraits.nibbles ? Dots::low_nibbles(line[v]) : Dots::bytes(line[v]);
#pragma GCC unroll 8
          for (int m = 0; m < MR; ++m) {
            const auto x = Dots::spread(b.x[m] + column + 4 * (l + i));
#pragma GCC unroll 8
            for (int v = 0; v < kAtOnce; ++v) part[m][v] = Dots::dot(part[m][v], w[v], x);
          }
          // The high nibbles belong to the second half of the group's columns.
          if constexpr (kTraits.nibbles) {
#pragma GCC unroll 8
            for (int v = 0; v < kAtOnce; ++v) w[v] = Dots::high_nibbles(line[v]);
#pragma GCC unroll 8
            for (int m = 0; m < MR; ++m) {
              const auto x = Dots::spread(b.x[m] + column + b.group / 2 + 4 * (l + i));
#pragma GCC unroll 8
              for (int v = 0; v < kAtOnce; ++v) part[m][v] = Dots::dot(part[m][v], w[v], x);
            }
          }
        };
#pragma GCC unroll 8
        for (int i = 0; i < Dots::kLinesAtOnce; ++i) line_of(i);
        // A Part of few bits goes into the 32-bit sums before it can overflow.
#pragma GCC unroll 8
        for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
          for (int v = 0; v < kAtOnce; ++v) sum[m][v] = Dots::settle(sum[m][v], part[m][v]);
      }
      // 3. acc += float(I) * (d * e), and for kInt4Min acc += m * (e * Q).
      const std::byte* part_scales = scales + at * 2 * kLanes;
      typename D::F d[kAtOnce];
#pragma GCC unroll 8
      for (int v = 0; v < kAtOnce; ++v) d[v] = D::load_halves(part_scales + v * 2 * kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        XGroup info;
        std::memcpy(&info, b.x[m] + b.x_group_at + g * static_cast<std::int64_t>(sizeof info),
                    sizeof info);
        const typename D::F e = D::set1(info.scale);
#pragma GCC unroll 8
        for (int v = 0; v < kAtOnce; ++v)
          acc[m][at + v] = D::fma(D::to_float(sum[m][v]), D::mul(d[v], e), acc[m][at + v]);
        if constexpr (kTraits.minima) {
          const typename D::F total = D::set1(std::bit_cast<float>(info.start));
#pragma GCC unroll 8
          for (int v = 0; v < kAtOnce; ++v)
            acc[m][at + v] = D::fma(D::load_halves(part_scales + b.minima_at + v * 2 * kLanes),
                                    total, acc[m][at + v]);
        }
      }
    }
  }

#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int v = 0; v < kAll; ++v) {
      const int lanes = lanes_of(v);
      if (lanes > 0) D::store_n(b.out + m * b.out_stride + v * kLanes, acc[m][v], lanes);
    }
}

// Dispatch of run-time numbers of rows and tiles to the unrolled instances.
template <class D, QuantKind kKind, int NT, int MR>
inline void quant_block_rows(int rows, const QuantBlock& b) {
  if constexpr (MR > 1)
    if (rows < MR) return quant_block_rows<D, kKind, NT, MR - 1>(rows, b);
  using Dots = typename D::template Dots<quant_traits(kKind).nibbles>;
  if constexpr (Dots::kSettles)
    if (b.num_lines == Dots::kLinesAtOnce) return quant_block<D, kKind, MR, NT, true>(b);
  quant_block<D, kKind, MR, NT, false>(b);
}

// D::max_rows(tiles) is the maximum of rows with 4, 2 or 1 tiles, such that sums and accumulators
// stay in registers. 0: that number of tiles is not used.
template <class D, QuantKind kKind>
inline void quant_block_any(int rows, int tiles, const QuantBlock& b) {
  if constexpr (D::max_rows(4) > 0)
    if (tiles == 4) return quant_block_rows<D, kKind, 4, D::max_rows(4)>(rows, b);
  if (tiles == 2) return quant_block_rows<D, kKind, 2, D::max_rows(2)>(rows, b);
  quant_block_rows<D, kKind, 1, D::max_rows(1)>(rows, b);
}

// All tiles if all rows go with them at once. Otherwise as many as give the most work per loaded
// byte.
template <class D>
inline int tiles_at_once(std::int64_t rows, std::int64_t tiles) {
  for (const int wide : {4, 2, 1})
    if (tiles >= wide && (rows <= D::max_rows(wide) || wide <= D::kTilesOfManyRows)) return wide;
  return 1;
}

template <class D>
inline float bias_at(const WeightVector& bias, std::int64_t i) {
  if (bias.dtype == DType::kBF16)
    return std::bit_cast<float>(
        static_cast<std::uint32_t>(static_cast<const BF16*>(bias.data)[i].bits) << 16);
  if (bias.dtype == DType::kF16) return _cvtsh_ss(static_cast<const F16*>(bias.data)[i].bits);
  return static_cast<const float*>(bias.data)[i];
}

template <class D>
void add_bias(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0,
              std::int64_t t1) {
  if (a.bias.data == nullptr) return;
  for (std::int64_t m = m0; m < m1; ++m)
    for (std::int64_t n = t0 * 16; n < std::min(a.rows, t1 * 16); ++n)
      a.out[m * a.out_stride + n] += bias_at<D>(a.bias, n);
}

// Rows of x that stay in L2 while the weights pass.
inline constexpr std::int64_t kRowsAtOnce = 256;

template <class D, QuantKind kKind>
void quant_product(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0,
                   std::int64_t t1) {
  const QuantLayout layout(kKind, a.rows, a.columns, a.group);
  for (std::int64_t first = m0; first < m1; first += kRowsAtOnce) {
    const std::int64_t last = std::min(m1, first + kRowsAtOnce), num_rows = last - first;
    for (std::int64_t t = t0; t < t1;) {
      const std::int64_t panel = t / layout.kPanelTiles, beside = t % layout.kPanelTiles;
      const std::int64_t width = layout.panel_width(panel);
      const int tiles = tiles_at_once<D>(num_rows, std::min(t1 - t, width - beside));
      const int max_rows = D::max_rows(tiles);
      const std::int64_t parts = (num_rows + max_rows - 1) / max_rows;
      QuantBlock b;
      const std::byte* panel_w = a.w + layout.panel_at(panel);
      b.lines = panel_w + layout.lines_at(width) + beside * layout.kLineBytes;
      b.scales = panel_w + beside * 32;
      b.minima_at = layout.scale_bytes(width);
      b.group_step = layout.group_bytes(width);
      b.line_step = width * layout.kLineBytes;
      b.num_lines = layout.lines();
      b.group = layout.group;
      b.x_group_at = layout.x_group_at();
      b.out_stride = a.out_stride;
      b.last_lanes = static_cast<int>(std::min<std::int64_t>(16, a.rows - (t + tiles - 1) * 16));
      // Groups per block of weights: one part needs no blocking.
      const std::int64_t step =
          parts == 1
              ? layout.groups
              : std::max<std::int64_t>(
                    1, D::block_bytes() / (tiles * (layout.lines() * layout.kLineBytes + 32)));
      for (std::int64_t g = 0; g < layout.groups; g += step) {
        b.begin = g;
        b.end = std::min(layout.groups, g + step);
        b.parts = parts;
        // Prefetch the next groups of these tiles, or after the last groups the first ones of the
        // next tiles.
        b.next_block = b.end < layout.groups ? (b.end - g) * b.group_step
                       : beside + tiles < width
                           ? tiles * layout.kLineBytes - g * b.group_step
                           : layout.panel_at(panel + 1) - layout.panel_at(panel) -
                                 beside * layout.kLineBytes - g * b.group_step;
        if (D::groups_ahead(parts) > 0) b.next_block = D::groups_ahead(parts) * b.group_step;
        // Rows are split into parts of equal size.
        for (std::int64_t part = 0; part < parts; ++part) {
          const std::int64_t m = first + num_rows * part / parts;
          const std::int64_t rows = first + num_rows * (part + 1) / parts - m;
          const std::byte* x[D::max_rows(1)];
          for (std::int64_t i = 0; i < rows; ++i)
            x[i] = a.x + (a.x_rows == nullptr ? m + i : a.x_rows[m + i]) * a.x_stride;
          b.x = x;
          b.part = part;
          b.out = a.out + m * a.out_stride + t * 16;
          quant_block_any<D, kKind>(static_cast<int>(rows), tiles, b);
        }
      }
      add_bias<D>(a, first, last, t, t + tiles);
      t += tiles;
    }
  }
}

}  // namespace sluice::cpu
