// GEMM with quantised tiles (quant_layout.h) on AMX. The integer sums of a group come from the
// matrix units, exactly. GEMV waits for memory only, so VNNI does it over two panels side by side.
// The results have the same bits as on every instruction set.
//
// 1. One row: one_row(), VNNI.
// 2. Up to 16 rows: some_rows(). A operands are signed x, B operands the unsigned weights as they
//    lie; nibbles are unpacked to bytes first.
// 3. More rows: many_rows(). Weights are made signed once per panel and block of columns; the
//    scaling stays in registers.
//
// Included after amx.h, inside a target pragma.
#pragma once

namespace sluice::cpu {
namespace {

// ---- 2. Up to 16 rows ----

// Minimum rows for AMX with nibbles, which must be unpacked for it. Fewer rows use VNNI.
constexpr std::int64_t kMinRows = 4;
// Columns per block of unpacked weights and of copied rows.
constexpr std::int64_t kColumnsAtOnce = 1024;
// Prefetch distances in bytes for the first read of weights: kAhead into L2, kNear into L1.
constexpr std::int64_t kAhead = 3072, kNear = 1024;

// Rows of x, and the address from which tileloadd takes their columns.
struct RowGroup {
  const std::byte* row[kAmxRows];
  int rows = 0;
  const std::byte* columns = nullptr;  // first row, at the first column of the block
  std::int64_t stride = 0;
};

// The groups of one block of columns.
struct Groups {
  std::int64_t begin = 0, end = 0;
  const std::byte* lines = nullptr;  // of the first tile and group `begin`, one byte per weight
  std::int64_t line_step = 0;
  std::int64_t group_step = 0;
  bool resume = false;      // `out` holds the sums of earlier groups
  bool first_time = false;  // the weights come from memory: prefetch them
};

// Integer sums of group g with NT tiles, exact, without XGroup::start.
template <int NT>
[[gnu::always_inline]] inline void sum_group(const QuantLayout& layout, const RowGroup& x,
                                             const Groups& groups, std::int64_t g,
                                             std::int32_t* sums) {
  constexpr std::int64_t kSumRow = NT * 16 * 4;
  const std::byte* lines = groups.lines + (g - groups.begin) * groups.group_step;
  const std::byte* columns = x.columns + (g - groups.begin) * layout.group;
  amx_zero<0>();
  if constexpr (NT > 1) amx_zero<1>();
  if constexpr (NT > 2) amx_zero<2>();
  if constexpr (NT > 3) amx_zero<3>();
  // 64 bytes of x per tile instruction; register 4 holds x, 6 and 7 alternate between weight tiles.
  for (std::int64_t column = 0; column < layout.group; column += 64) {
    amx_load<4>(columns + column, x.stride);
    amx_load<6>(lines, groups.line_step);
    amx_dot_bytes<0, 4, 6>();
    if constexpr (NT > 1) amx_load<7>(lines + kLine, groups.line_step);
    if constexpr (NT > 1) amx_dot_bytes<1, 4, 7>();
    if constexpr (NT > 2) amx_load<6>(lines + 2 * kLine, groups.line_step);
    if constexpr (NT > 2) amx_dot_bytes<2, 4, 6>();
    if constexpr (NT > 3) amx_load<7>(lines + 3 * kLine, groups.line_step);
    if constexpr (NT > 3) amx_dot_bytes<3, 4, 7>();
    lines += 16 * groups.line_step;
  }
  amx_store<0>(sums, kSumRow);
  if constexpr (NT > 1) amx_store<1>(sums + 16, kSumRow);
  if constexpr (NT > 2) amx_store<2>(sums + 32, kSumRow);
  if constexpr (NT > 3) amx_store<3>(sums + 48, kSumRow);
}

// acc += the scaled integer sums of group g.
template <QuantKind kKind, int NT>
[[gnu::always_inline]] inline void add_sums(const QuantLayout& layout, const RowGroup& x,
                                            const Part& part, std::int64_t g,
                                            const std::int32_t* sums, float* acc) {
  // Scales of group g for NT tiles, widened from float16.
  __m512 scale[NT], minimum[NT] = {};
#pragma GCC unroll 4
  for (int t = 0; t < NT; ++t) {
    const std::byte* scales = part.scales + g * part.group_step + t * 32;
    scale[t] = Vnni::load_halves(scales);
    if constexpr (quant_traits(kKind).minima)
      minimum[t] = Vnni::load_halves(scales + part.minima_at);
  }
  const std::int64_t info_at = layout.x_group_at() + g * static_cast<std::int64_t>(sizeof(XGroup));
  // Row by row: the row's own scale and start value complete the sum.
  for (int r = 0; r < x.rows; ++r) {
    const XGroup info = info_of(x.row[r] + info_at);
#pragma GCC unroll 4
    for (int t = 0; t < NT; ++t) {
      const int i = (r * NT + t) * 16;
      _mm512_store_ps(acc + i,
                      add_group<Vnni, kKind>(_mm512_load_ps(acc + i), _mm512_load_si512(sums + i),
                                             scale[t], minimum[t], info));
    }
  }
}

template <QuantKind kKind, int NT>
void block(const QuantLayout& layout, const RowGroup& x, const Part& part, const Groups& groups,
           float* out, std::int64_t stride) {
  // Double-buffered: the vector units scale one group while the matrix units compute the next.
  alignas(64) std::int32_t sums[2][kAmxRows * NT * 16];
  alignas(64) float acc[kAmxRows * NT * 16];
  const auto lanes = [&](int t) { return t + 1 < part.tiles ? 16 : part.last_lanes; };
  // Accumulators live in memory (L1): 16 rows x NT tiles exceed the registers.
  for (int r = 0; r < x.rows; ++r)
#pragma GCC unroll 4
    for (int t = 0; t < NT; ++t)
      _mm512_store_ps(
          acc + (r * NT + t) * 16,
          groups.resume ? Vnni::load_n(out + r * stride + t * 16, lanes(t)) : _mm512_setzero_ps());
  // Prefetch the group that lies kAhead (L2) and kNear (L1) bytes further on, one line before it
  // included.
  for (std::int64_t g = groups.begin; g < groups.end; ++g) {
    if (groups.first_time)
      for (std::int64_t i = -kLine; i < part.group_step; i += kLine) {
        _mm_prefetch(reinterpret_cast<const char*>(part.lines + g * part.group_step + kAhead + i),
                     _MM_HINT_T1);
        _mm_prefetch(reinterpret_cast<const char*>(part.lines + g * part.group_step + kNear + i),
                     _MM_HINT_T0);
      }
    sum_group<NT>(layout, x, groups, g, sums[g % 2]);
    if (g > groups.begin) add_sums<kKind, NT>(layout, x, part, g - 1, sums[(g - 1) % 2], acc);
  }
  // The last group has no successor to overlap with.
  if (groups.end > groups.begin)
    add_sums<kKind, NT>(layout, x, part, groups.end - 1, sums[(groups.end - 1) % 2], acc);
  for (int r = 0; r < x.rows; ++r)
#pragma GCC unroll 4
    for (int t = 0; t < NT; ++t)
      Vnni::store_n(out + r * stride + t * 16, _mm512_load_ps(acc + (r * NT + t) * 16), lanes(t));
}

template <QuantKind kKind>
void part_product(const QuantLayout& layout, const RowGroup& x, const Part& part,
                  const Groups& groups, float* out, std::int64_t stride) {
  switch (part.tiles) {
    case 4:
      return block<kKind, 4>(layout, x, part, groups, out, stride);
    case 3:
      return block<kKind, 3>(layout, x, part, groups, out, stride);
    case 2:
      return block<kKind, 2>(layout, x, part, groups, out, stride);
    default:
      return block<kKind, 1>(layout, x, part, groups, out, stride);
  }
}

// Unpacks the nibbles of groups [begin, end) to bytes. Each group gets its lines in column order,
// the lines of all tiles side by side.
void unpack(const QuantLayout& layout, const Part& part, std::int64_t begin, std::int64_t end,
            std::byte* to) {
  const std::int64_t step = part.tiles * kLine, half = layout.lines() * step;
  for (std::int64_t g = begin; g < end; ++g, to += 2 * half)
    for (std::int64_t l = 0; l < layout.lines(); ++l)
      for (int t = 0; t < part.tiles; ++t) {
        const __m512i line =
            _mm512_loadu_si512(part.lines + g * part.group_step + l * part.line_step + t * kLine);
        _mm512_storeu_si512(to + l * step + t * kLine, VnniDots::low_nibbles(line));
        _mm512_storeu_si512(to + half + l * step + t * kLine, VnniDots::high_nibbles(line));
      }
}

template <QuantKind kKind>
void some_rows(const TileProduct& a, const QuantLayout& layout, std::int64_t m0, std::int64_t m1,
               std::int64_t t0, std::int64_t t1) {
  alignas(64) std::byte unpacked[kPanelTiles * 16 * kColumnsAtOnce],
      listed[kAmxRows * kColumnsAtOnce];
  constexpr bool kNibbles = quant_traits(kKind).nibbles;
  AmxShapes shapes;
  const std::int64_t at_once = kColumnsAtOnce / layout.group;
  for (std::int64_t t = t0; t < t1;) {
    const Part part = part_of(a, layout, t, t1);
    for (std::int64_t begin = 0; begin == 0 || begin < layout.groups; begin += at_once) {
      Groups groups = {.begin = begin,
                       .end = std::min(layout.groups, begin + at_once),
                       .resume = begin > 0,
                       .first_time = !kNibbles};
      // Nibbles: unpack the block first. Bytes: AMX reads the weights in place.
      if (kNibbles) {
        unpack(layout, part, groups.begin, groups.end, unpacked);
        groups.lines = unpacked;
        groups.line_step = part.tiles * kLine;
        groups.group_step = layout.group / 4 * groups.line_step;
      } else {
        groups.lines = part.lines + begin * part.group_step;
        groups.line_step = part.line_step;
        groups.group_step = part.group_step;
      }
      // Addresses of the rows, and of their columns in this block.
      RowGroup x = {
          .row = {}, .rows = static_cast<int>(m1 - m0), .columns = nullptr, .stride = a.x_stride};
      for (int i = 0; i < x.rows; ++i)
        x.row[i] = a.x + (a.x_rows == nullptr ? m0 + i : a.x_rows[m0 + i]) * a.x_stride;
      x.columns = x.row[0] + begin * layout.group;
      // Listed rows (x_rows) are gathered, since tileloadd needs a stride.
      if (a.x_rows != nullptr) {
        for (int i = 0; i < x.rows; ++i)
          std::memcpy(listed + i * kColumnsAtOnce, x.row[i] + begin * layout.group,
                      static_cast<std::size_t>((groups.end - begin) * layout.group));
        x.columns = listed;
        x.stride = kColumnsAtOnce;
      }
      shapes.set({.first = x.rows,
                  .second = 0,
                  .a_bytes = static_cast<int>(std::min<std::int64_t>(64, layout.group))});
      part_product<kKind>(layout, x, part, groups, a.out + m0 * a.out_stride + t * 16,
                          a.out_stride);
    }
    t += part.tiles;
  }
}

// ---- 3. More than 16 rows ----

// One block of columns of a panel in the form that AMX and the scaling need: weights as signed
// bytes (offset subtracted), tile after tile, and scales as float32. It is filled once and
// multiplied with many rows.
struct SignedPanel {
  static constexpr std::int64_t kGroups = kColumnsAtOnce / 32;
  alignas(64) std::byte lines[kPanelTiles][kColumnsAtOnce * 16];
  alignas(64) float scales[kPanelTiles][kGroups * 16];
  alignas(64) float minima[kPanelTiles][kGroups * 16];

  template <QuantKind kKind>
  void fill(const QuantLayout& layout, const Part& part, std::int64_t begin, std::int64_t end) {
    constexpr QuantTraits kTraits = quant_traits(kKind);
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(kTraits.offset));
    const std::int64_t num_lines = layout.lines(), group_lines = layout.group / 4;
    // Fill: one pass over the weights, in memory order.
    for (std::int64_t g = begin; g < end; ++g) {
      for (int t = 0; t < part.tiles; ++t) {
        const std::byte* at = part.scales + g * part.group_step + t * 32;
        _mm512_store_ps(scales[t] + (g - begin) * 16, Vnni::load_halves(at));
        if constexpr (kTraits.minima)
          _mm512_store_ps(minima[t] + (g - begin) * 16, Vnni::load_halves(at + part.minima_at));
      }
      for (std::int64_t l = 0; l < num_lines; ++l)
        for (int t = 0; t < part.tiles; ++t) {
          const __m512i line = next_line<__m512i, kNear, kAhead>(part.lines + g * part.group_step +
                                                                 l * part.line_step + t * kLine);
          std::byte* to = lines[t] + ((g - begin) * group_lines + l) * kLine;
          if constexpr (kTraits.nibbles) {
            _mm512_store_si512(to, _mm512_sub_epi8(VnniDots::low_nibbles(line), offset));
            _mm512_store_si512(to + num_lines * kLine,
                               _mm512_sub_epi8(VnniDots::high_nibbles(line), offset));
          } else {
            _mm512_store_si512(to, _mm512_sub_epi8(line, offset));
          }
        }
    }
  }
};

// Up to 16 rows of x, and their XGroups in one block of columns.
struct SignedRows {
  const std::byte* columns = nullptr;  // first row, at the first column of the block
  std::int64_t stride = 0;
  int rows = 0;
  XGroup info[kAmxRows][SignedPanel::kGroups];
};

// One tile of 16 weight rows with up to 16 rows of x over `num_groups` groups. The sums are scaled
// and accumulated in registers. The matrix units run two groups ahead of the scaling.
template <QuantKind kKind>
void signed_tile(const SignedPanel& w, int t, const SignedRows& x, std::int64_t group,
                 std::int64_t num_groups, bool resume, int lanes, float* out, std::int64_t stride) {
  alignas(64) std::int32_t sums[4][kAmxRows * 16] = {};
  // Accumulators of 16 rows fit the vector registers.
  __m512 acc[kAmxRows];
#pragma GCC unroll 16
  for (int r = 0; r < kAmxRows; ++r)
    acc[r] = resume && r < x.rows ? Vnni::load_n(out + r * stride, lanes) : _mm512_setzero_ps();
  // Integer sums of group g in tile register kSum, stored to sums[kSum].
  const auto multiply = [&]<int kSum>(std::integral_constant<int, kSum>,
                                      std::int64_t g) __attribute__((always_inline)) {
    constexpr int kX = 4 + kSum % 2, kW = 6 + kSum % 2;
    if (g >= num_groups) return;
    amx_zero<kSum>();
    for (std::int64_t column = g * group; column < (g + 1) * group; column += 64) {
      amx_load<kX>(x.columns + column, x.stride);
      amx_load<kW>(w.lines[t] + column * 16, kLine);
      amx_dot_signed_bytes<kSum, kX, kW>();
    }
    amx_store<kSum>(sums[kSum], 64);
  };
  // acc += the scaled integer sums of group g in slot `slot`.
  const auto add = [&](int slot, std::int64_t g) __attribute__((always_inline)) {
    if (g < 0 || g >= num_groups) return;
    const __m512 scale = _mm512_load_ps(w.scales[t] + g * 16);
    const __m512 minimum =
        quant_traits(kKind).minima ? _mm512_load_ps(w.minima[t] + g * 16) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int r = 0; r < kAmxRows; ++r) {
      const XGroup& info = x.info[r][g];
      const __m512 sum = _mm512_maskz_cvtepi32_ps(0xFFFF, _mm512_load_si512(sums[slot] + r * 16));
      acc[r] = _mm512_fmadd_ps(sum, _mm512_mul_ps(scale, _mm512_set1_ps(info.scale)), acc[r]);
      if constexpr (quant_traits(kKind).minima)
        acc[r] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(std::bit_cast<float>(info.start)), acc[r]);
    }
  };
  // Software pipeline of four tile registers: group g is multiplied while group g - 2 is scaled.
  for (std::int64_t g = 0; g < num_groups + 2; g += 4) {
    multiply(std::integral_constant<int, 0>{}, g);
    add(2, g - 2);
    multiply(std::integral_constant<int, 1>{}, g + 1);
    add(3, g - 1);
    multiply(std::integral_constant<int, 2>{}, g + 2);
    add(0, g);
    multiply(std::integral_constant<int, 3>{}, g + 3);
    add(1, g + 1);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kAmxRows; ++r)
    if (r < x.rows) Vnni::store_n(out + r * stride, acc[r], lanes);
}

template <QuantKind kKind>
// Copies of listed rows and of XGroups are made once per block of columns.
void many_rows(const TileProduct& a, const QuantLayout& layout, std::int64_t m0, std::int64_t m1,
               std::int64_t t0, std::int64_t t1) {
  SignedPanel panel;
  SignedRows x;
  alignas(64) std::byte listed[kAmxRows * kColumnsAtOnce];
  AmxShapes shapes;
  const std::int64_t at_once = kColumnsAtOnce / layout.group;
  for (std::int64_t t = t0; t < t1;) {
    const Part part = part_of(a, layout, t, t1);
    for (std::int64_t begin = 0; begin == 0 || begin < layout.groups; begin += at_once) {
      const std::int64_t count = std::min(layout.groups, begin + at_once) - begin,
                         bytes = count * layout.group;
      panel.fill<kKind>(layout, part, begin, begin + count);
      // One fill of the panel serves all rows.
      for (std::int64_t m = m0; m < m1; m += kAmxRows) {
        x.rows = static_cast<int>(std::min<std::int64_t>(kAmxRows, m1 - m));
        for (int r = 0; r < kAmxRows; ++r) {
          // Missing rows of the last tile repeat its last row; their results are not stored.
          const std::int64_t i = m + std::min(r, x.rows - 1);
          const std::byte* row = a.x + (a.x_rows == nullptr ? i : a.x_rows[i]) * a.x_stride;
          std::memcpy(x.info[r],
                      row + layout.x_group_at() + begin * static_cast<std::int64_t>(sizeof(XGroup)),
                      static_cast<std::size_t>(count) * sizeof(XGroup));
          // Listed rows are gathered.
          if (a.x_rows != nullptr)
            std::memcpy(listed + r * kColumnsAtOnce, row + begin * layout.group,
                        static_cast<std::size_t>(bytes));
        }
        x.columns = a.x_rows != nullptr ? listed : a.x + m * a.x_stride + begin * layout.group;
        x.stride = a.x_rows != nullptr ? kColumnsAtOnce : a.x_stride;
        shapes.set({.first = x.rows,
                    .second = x.rows,
                    .a_bytes = static_cast<int>(std::min<std::int64_t>(64, layout.group))});
        for (int i = 0; i < part.tiles; ++i)
          signed_tile<kKind>(panel, i, x, layout.group, count, begin > 0,
                             i + 1 < part.tiles ? 16 : part.last_lanes,
                             a.out + m * a.out_stride + (t + i) * 16, a.out_stride);
      }
    }
    t += part.tiles;
  }
}

// Prefetch distances of GEMV. Processors with AMX read one row's weights fastest as two streams.
using OneStream = FetchAhead<2048, 3072>;
using TwoStreams = FetchAhead<3072, 0>;

template <QuantKind kKind>
void amx_product(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0,
                 std::int64_t t1) {
  const QuantLayout layout(kKind, a.rows, a.columns, a.group);
  // Few rows of nibbles do not repay the unpacking.
  if (quant_traits(kKind).nibbles && m1 - m0 > 1 && m1 - m0 < kMinRows)
    return quant_product<Vnni, kKind>(a, m0, m1, t0, t1);
  // 1. One row.
  if (m1 - m0 == 1)
    one_row<Vnni, kKind, OneStream, TwoStreams>(
        a, layout, m0,
        [&](const auto& one, const auto& two) { in_two_streams<kPanelTiles>(t0, t1, one, two); });
  else if (m1 - m0 <= kAmxRows)
    some_rows<kKind>(a, layout, m0, m1, t0, t1);
  else
    many_rows<kKind>(a, layout, m0, m1, t0, t1);
  add_bias<Vnni>(a, m0, m1, t0, t1);
}

template <QuantKind kKind>
void amx_paired_row(const TileProduct& a, std::int64_t m, std::int64_t t0, std::int64_t t1,
                    std::int64_t tile_distance) {
  const QuantLayout layout(kKind, a.rows, a.columns, a.group);
  one_row<Vnni, kKind, OneStream, TwoStreams>(a, layout, m, [&](const auto& one, const auto& two) {
    in_paired_streams<kPanelTiles>(t0, t1, tile_distance, one, two);
  });
  add_bias<Vnni>(a, m, m + 1, t0, t1);
  add_bias<Vnni>(a, m, m + 1, tile_distance + t0, tile_distance + t1);
}

}  // namespace
}  // namespace sluice::cpu
