// The product of quantised tiles (quant_layout.h) over a dot type D. Included by quant_*.cpp inside their target pragma.
//
// D has vectors F of kLanes floats and I of as many 32-bit sums; W is a vector of lines of w, X four bytes of x in every
// lane, and dot() adds four products of unsigned and signed bytes to every sum, exactly.
#pragma once

namespace sluice::cpu {

// Up to kMaxRows rows of x against some tiles of one panel, over groups [begin, end).
struct QuantBlock {
  const std::byte* const* x = nullptr;
  const std::byte* lines = nullptr;   // of the first tile and group 0
  const std::byte* scales = nullptr;  // of the first tile and group 0
  std::int64_t minima_at = 0;         // from the scales
  std::int64_t group_step = 0;        // bytes from a group to the next
  std::int64_t line_step = 0;
  std::int64_t num_lines = 0;
  std::int64_t group = 0;
  std::int64_t x_group_at = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  int last_lanes = 16;  // rows of the last tile that exist
  // Groups of rows that pass over the block one after the other: which this is, of how many, and how many bytes further on the next
  // block lies. Each fetches its share of that.
  std::int64_t part = 0;
  std::int64_t parts = 1;
  std::int64_t next_block = 0;
};

// Lines that are taken together; every group has a multiple of them.
inline constexpr int kLinesAtOnce = 4;

// With one row of x, weights and their scales are asked of the memory this far ahead, into the first-level cache. With the
// processor's own guesses VNNI got bytes at 86 and nibbles at 71 % of the bandwidth, with these at 97 and 98; 2 KiB ahead it was 94 and 90.
// It has a loop of its own for that row now (quant_row_impl.h).
inline constexpr std::int64_t kBytesAhead = 6144;

template <int NT>
[[gnu::always_inline]] inline void fetch_group(const std::byte* lines, std::int64_t line_step, std::int64_t num_lines) {
  for (std::int64_t l = 0; l < num_lines; ++l, lines += line_step)
#pragma GCC unroll 4
    for (int t = 0; t < NT; ++t) _mm_prefetch(reinterpret_cast<const char*>(lines + t * QuantLayout::kLineBytes), _MM_HINT_T0);
}

template <class D, QuantKind kKind, int MR, int NT>
inline void quant_block(const QuantBlock& b) {
  constexpr int kLanes = D::kLanes, kVectors = 16 / kLanes, kAll = NT * kVectors;
  constexpr QuantTraits kTraits = quant_traits(kKind);
  constexpr bool kFetches = MR == 1;
  typename D::F acc[MR][kAll];
  const auto lanes_of = [&](int v) {
    return v / kVectors < NT - 1 ? kLanes : std::clamp(b.last_lanes - v % kVectors * kLanes, 0, kLanes);
  };
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 8
    for (int v = 0; v < kAll; ++v)
      acc[m][v] = b.begin == 0 ? D::zero() : D::load_n(b.out + m * b.out_stride + v * kLanes, lanes_of(v));

  [[maybe_unused]] std::int64_t until_fetch = b.next_block == 0 ? 0 : b.part + 1;
  for (std::int64_t g = b.begin; g < b.end; ++g) {
    const std::byte* lines = b.lines + g * b.group_step;
    const std::byte* scales = b.scales + g * b.group_step;
    if constexpr (kFetches)
#pragma GCC unroll 2
      for (int i = 0; i < (NT + 1) / 2; ++i)
        _mm_prefetch(reinterpret_cast<const char*>(scales + b.group_step + kBytesAhead + i * QuantLayout::kLineBytes), _MM_HINT_T0);
    if constexpr (MR > 1)
      if (--until_fetch == 0) {
        until_fetch = b.parts;
        fetch_group<NT>(lines + b.next_block, b.line_step, b.num_lines);
        _mm_prefetch(reinterpret_cast<const char*>(scales + b.next_block), _MM_HINT_T0);
      }
    typename D::I sum[MR][kAll];
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      XGroup facts;
      std::memcpy(&facts, b.x[m] + b.x_group_at + g * static_cast<std::int64_t>(sizeof facts), sizeof facts);
#pragma GCC unroll 8
      for (int v = 0; v < kAll; ++v) sum[m][v] = D::spread_int(kTraits.minima ? 0 : facts.start);
    }
    const std::int64_t column = g * b.group;
    for (std::int64_t l = 0; l < b.num_lines; l += kLinesAtOnce) {
#pragma GCC unroll 4
      for (int i = 0; i < kLinesAtOnce; ++i) {
        if constexpr (kFetches)
#pragma GCC unroll 4
          for (int t = 0; t < NT; ++t)
            _mm_prefetch(reinterpret_cast<const char*>(lines + kBytesAhead + t * QuantLayout::kLineBytes), _MM_HINT_T0);
        typename D::I line[kAll];
#pragma GCC unroll 8
        for (int v = 0; v < kAll; ++v) line[v] = D::load_line(lines + v * (QuantLayout::kLineBytes / kVectors));
        lines += b.line_step;
        // The columns of the low nibbles, or of the bytes.
        typename D::W w[kAll];
#pragma GCC unroll 8
        for (int v = 0; v < kAll; ++v) w[v] = kTraits.nibbles ? D::low_nibbles(line[v]) : D::bytes(line[v]);
#pragma GCC unroll 8
        for (int m = 0; m < MR; ++m) {
          const typename D::X x = D::spread(b.x[m] + column + 4 * (l + i));
#pragma GCC unroll 8
          for (int v = 0; v < kAll; ++v) sum[m][v] = D::dot(sum[m][v], w[v], x);
        }
        if constexpr (kTraits.nibbles) {
#pragma GCC unroll 8
          for (int v = 0; v < kAll; ++v) w[v] = D::high_nibbles(line[v]);
#pragma GCC unroll 8
          for (int m = 0; m < MR; ++m) {
            const typename D::X x = D::spread(b.x[m] + column + b.group / 2 + 4 * (l + i));
#pragma GCC unroll 8
            for (int v = 0; v < kAll; ++v) sum[m][v] = D::dot(sum[m][v], w[v], x);
          }
        }
      }
    }
    typename D::F d[kAll];
#pragma GCC unroll 8
    for (int v = 0; v < kAll; ++v) d[v] = D::load_halves(scales + v * 2 * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      XGroup facts;
      std::memcpy(&facts, b.x[m] + b.x_group_at + g * static_cast<std::int64_t>(sizeof facts), sizeof facts);
      const typename D::F e = D::set1(facts.scale);
#pragma GCC unroll 8
      for (int v = 0; v < kAll; ++v) acc[m][v] = D::fma(D::to_float(sum[m][v]), D::mul(d[v], e), acc[m][v]);
      if constexpr (kTraits.minima) {
        const typename D::F total = D::set1(std::bit_cast<float>(facts.start));
#pragma GCC unroll 8
        for (int v = 0; v < kAll; ++v)
          acc[m][v] = D::fma(D::load_halves(scales + b.minima_at + v * 2 * kLanes), total, acc[m][v]);
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

template <class D, QuantKind kKind, int NT, int MR>
inline void quant_block_rows(int rows, const QuantBlock& b) {
  if constexpr (MR > 1)
    if (rows < MR) return quant_block_rows<D, kKind, NT, MR - 1>(rows, b);
  quant_block<D, kKind, MR, NT>(b);
}

// D::most_rows(tiles) is how many rows 4, 2 or 1 tiles go with: sums and results stay in registers. 0: not so many tiles.
template <class D, QuantKind kKind>
inline void quant_block_any(int rows, int tiles, const QuantBlock& b) {
  if constexpr (D::most_rows(4) > 0)
    if (tiles == 4) return quant_block_rows<D, kKind, 4, D::most_rows(4)>(rows, b);
  if (tiles == 2) return quant_block_rows<D, kKind, 2, D::most_rows(2)>(rows, b);
  quant_block_rows<D, kKind, 1, D::most_rows(1)>(rows, b);
}

// As many tiles as there are, if all rows go with them at once; else what does most work for each byte loaded.
template <class D>
inline int tiles_at_once(std::int64_t rows, std::int64_t tiles) {
  for (const int wide : {4, 2, 1})
    if (tiles >= wide && rows <= D::most_rows(wide)) return wide;
  return tiles >= D::kTilesOfManyRows ? D::kTilesOfManyRows : 1;
}

template <class D>
inline float bias_at(const WeightVector& bias, std::int64_t i) {
  if (bias.dtype == DType::kBF16)
    return std::bit_cast<float>(static_cast<std::uint32_t>(static_cast<const BF16*>(bias.data)[i].bits) << 16);
  if (bias.dtype == DType::kF16) return _cvtsh_ss(static_cast<const F16*>(bias.data)[i].bits);
  return static_cast<const float*>(bias.data)[i];
}

// Rows of x that stay in the second-level cache while the weights pass.
inline constexpr std::int64_t kRowsAtOnce = 256;

template <class D, QuantKind kKind>
void quant_product(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0, std::int64_t t1) {
  const QuantLayout layout(kKind, a.rows, a.columns, a.group);
  // They stay in the first-level cache while rows of x pass.
  const std::int64_t weight_bytes_at_once = first_level_cache_bytes() / 4 * 3;
  for (std::int64_t first = m0; first < m1; first += kRowsAtOnce) {
    const std::int64_t last = std::min(m1, first + kRowsAtOnce), num_rows = last - first;
    for (std::int64_t t = t0; t < t1;) {
      const std::int64_t panel = t / layout.kPanelTiles, beside = t % layout.kPanelTiles;
      const std::int64_t width = layout.panel_width(panel);
      const int tiles = tiles_at_once<D>(num_rows, std::min(t1 - t, width - beside));
      const int most_rows = D::most_rows(tiles);
      const std::int64_t parts = (num_rows + most_rows - 1) / most_rows;
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
      const std::int64_t step =
          parts == 1 ? layout.groups
                     : std::max<std::int64_t>(1, weight_bytes_at_once / (tiles * (layout.lines() * layout.kLineBytes + 32)));
      for (std::int64_t g = 0; g < layout.groups; g += step) {
        b.begin = g;
        b.end = std::min(layout.groups, g + step);
        b.parts = parts;
        // The next groups of these tiles, or the first ones of the tiles after them.
        b.next_block = b.end < layout.groups ? (b.end - g) * b.group_step
                       : beside + tiles < width ? tiles * layout.kLineBytes - g * b.group_step
                                                : layout.panel_at(panel + 1) - layout.panel_at(panel) - beside * layout.kLineBytes - g * b.group_step;
        for (std::int64_t part = 0; part < parts; ++part) {
          const std::int64_t m = first + num_rows * part / parts;
          const std::int64_t rows = first + num_rows * (part + 1) / parts - m;
          const std::byte* x[D::most_rows(1)];
          for (std::int64_t i = 0; i < rows; ++i)
            x[i] = a.x + (a.x_rows == nullptr ? m + i : a.x_rows[m + i]) * a.x_stride;
          b.x = x;
          b.part = part;
          b.out = a.out + m * a.out_stride + t * 16;
          quant_block_any<D, kKind>(static_cast<int>(rows), tiles, b);
        }
      }
      if (a.bias.data != nullptr)
        for (std::int64_t m = first; m < last; ++m)
          for (std::int64_t n = t * 16; n < std::min(a.rows, (t + tiles) * 16); ++n)
            a.out[m * a.out_stride + n] += bias_at<D>(a.bias, n);
      t += tiles;
    }
  }
}

template <class D>
constexpr QuantProducts quant_products() {
  return {quant_product<D, QuantKind::kInt8>, quant_product<D, QuantKind::kInt4>, quant_product<D, QuantKind::kInt4Min>};
}

}  // namespace sluice::cpu
