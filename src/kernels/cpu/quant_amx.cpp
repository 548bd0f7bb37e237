// The products of quantised tiles (quant_layout.h) where there is AMX: the sums of a group, which are exact integers, come from
// the matrix units, and with one row of x, which only waits for memory, from VNNI over two panels side by side. The results
// have the same bits as everywhere.
#include "kernels/cpu/isa_prelude.h"
#include "kernels/cpu/quant_tiles.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c,amx-tile,amx-int8")

#include "kernels/cpu/quant_avx512_lanes.h"

#include "kernels/cpu/quant_vnni_lanes.h"

#include "kernels/cpu/amx.h"

#include "kernels/cpu/quant_tiles_impl.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kLine = QuantLayout::kLineBytes;
constexpr int kPanelTiles = static_cast<int>(QuantLayout::kPanelTiles);

// Some tiles of a panel.
struct Part {
  const std::byte* lines = nullptr;   // of the first tile and group 0
  const std::byte* scales = nullptr;  // likewise
  std::int64_t minima_at = 0;         // from the scales
  std::int64_t line_step = 0;
  std::int64_t group_step = 0;
  int tiles = 0;
  int last_lanes = 16;                // rows of the last tile that exist
};

Part part_of(const TileProduct& a, const QuantLayout& layout, std::int64_t t, std::int64_t t1) {
  const std::int64_t panel = t / kPanelTiles, beside = t % kPanelTiles, width = layout.panel_width(panel);
  const std::int64_t count = std::min(t1 - t, width - beside);
  const std::byte* w = a.w + layout.panel_at(panel);
  return {.lines = w + layout.lines_at(width) + beside * kLine,
          .scales = w + beside * 32,
          .minima_at = QuantLayout::scale_bytes(width),
          .line_step = width * kLine,
          .group_step = layout.group_bytes(width),
          .tiles = static_cast<int>(count),
          .last_lanes = static_cast<int>(std::min<std::int64_t>(16, a.rows - (t + count - 1) * 16))};
}

// Member by member, each of which is then spread over a vector as it is loaded.
XGroup facts_of(const std::byte* at) {
  XGroup facts;
  std::memcpy(&facts.scale, at, sizeof facts.scale);
  std::memcpy(&facts.start, at + sizeof facts.scale, sizeof facts.start);
  return facts;
}

// acc + what a group adds to it: `sum` without its start.
template <QuantKind kKind>
[[gnu::always_inline]] inline __m512 add_group(__m512 acc, __m512i sum, __m512 scale, __m512 minimum, const XGroup& facts) {
  constexpr QuantTraits kTraits = quant_traits(kKind);
  if constexpr (!kTraits.minima) sum = _mm512_add_epi32(sum, _mm512_set1_epi32(facts.start));
  acc = _mm512_fmadd_ps(_mm512_maskz_cvtepi32_ps(0xFFFF, sum), _mm512_mul_ps(scale, _mm512_set1_ps(facts.scale)), acc);
  if constexpr (kTraits.minima) acc = _mm512_fmadd_ps(minimum, _mm512_set1_ps(std::bit_cast<float>(facts.start)), acc);
  return acc;
}

// ---- one row ----

// How far ahead lines are fetched into the first-level cache: with two streams, and with one.
constexpr std::int64_t kTwoStreamsAhead = 3072, kOneStreamNear = 2048, kOneStreamAhead = 3072;

template <int kStreams>
[[gnu::always_inline]] inline __m512i line_of(const std::byte* at) {
  return kStreams > 1 ? next_line<kTwoStreamsAhead, 0>(at) : next_line<kOneStreamNear, kOneStreamAhead>(at);
}

template <QuantKind kKind, int kStreams, int NT>
void row_parts(const Part* const* parts, const QuantLayout& layout, const std::byte* x, float* const* out) {
  constexpr QuantTraits kTraits = quant_traits(kKind);
  constexpr int kAll = kStreams * NT;
  __m512 acc[kAll];
#pragma GCC unroll 8
  for (int i = 0; i < kAll; ++i) acc[i] = _mm512_setzero_ps();
  const std::int64_t step = parts[0]->line_step, num_lines = layout.lines(), group = layout.group;
  for (std::int64_t g = 0; g < layout.groups; ++g) {
    const std::byte *lines[kStreams], *scales[kStreams];
    for (int s = 0; s < kStreams; ++s) lines[s] = parts[s]->lines + g * parts[s]->group_step;
    for (int s = 0; s < kStreams; ++s) scales[s] = parts[s]->scales + g * parts[s]->group_step;
    __m512i sum[kAll];
    __m512 scale[kAll], minimum[kAll] = {};
#pragma GCC unroll 8
    for (int i = 0; i < kAll; ++i) {
      const std::byte* at = scales[i / NT] + i % NT * 32;
      // Every line of memory in its turn, those of the scales too.
      if (i % 2 == 0) asm volatile("prefetcht0 %c1(%0)" : : "r"(at), "i"(kStreams > 1 ? kTwoStreamsAhead : kOneStreamNear));
      sum[i] = _mm512_setzero_si512();
      scale[i] = Vnni::load_halves(at);
      if constexpr (kTraits.minima) minimum[i] = Vnni::load_halves(at + parts[i / NT]->minima_at);
    }
    const std::byte* columns = x + g * group;
#pragma GCC unroll 2
    for (std::int64_t l = 0; l < num_lines; ++l) {
      const __m512i low = Vnni::spread(columns + 4 * l);
      const __m512i high = kTraits.nibbles ? Vnni::spread(columns + group / 2 + 4 * l) : low;
#pragma GCC unroll 8
      for (int i = 0; i < kAll; ++i) {
        const __m512i line = line_of<kStreams>(lines[i / NT] + i % NT * kLine);
        if constexpr (kTraits.nibbles) {
          sum[i] = Vnni::dot(sum[i], Vnni::low_nibbles(line), low);
          sum[i] = Vnni::dot(sum[i], Vnni::high_nibbles(line), high);
        } else {
          sum[i] = Vnni::dot(sum[i], line, low);
        }
      }
      for (int s = 0; s < kStreams; ++s) lines[s] += step;
    }
    const XGroup facts = facts_of(x + layout.x_group_at() + g * static_cast<std::int64_t>(sizeof(XGroup)));
#pragma GCC unroll 8
    for (int i = 0; i < kAll; ++i) acc[i] = add_group<kKind>(acc[i], sum[i], scale[i], minimum[i], facts);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kAll; ++i) Vnni::store_n(out[i / NT] + i % NT * 16, acc[i], i % NT + 1 < NT ? 16 : parts[i / NT]->last_lanes);
}

template <QuantKind kKind>
void one_row(const TileProduct& a, const QuantLayout& layout, const std::byte* x, float* out, std::int64_t t0, std::int64_t t1) {
  const auto one_part = [&](std::int64_t at) {
    const Part part = part_of(a, layout, at, t1);
    const Part* parts[] = {&part};
    float* to[] = {out + at * 16};
    switch (part.tiles) {
      case 4: row_parts<kKind, 1, 4>(parts, layout, x, to); break;
      case 3: row_parts<kKind, 1, 3>(parts, layout, x, to); break;
      case 2: row_parts<kKind, 1, 2>(parts, layout, x, to); break;
      default: row_parts<kKind, 1, 1>(parts, layout, x, to); break;
    }
    return at + part.tiles;
  };
  const auto two_panels = [&](std::int64_t t, std::int64_t u) {
    const Part first = part_of(a, layout, t, t1), second = part_of(a, layout, u, t1);
    const Part* parts[] = {&first, &second};
    float* to[] = {out + t * 16, out + u * 16};
    row_parts<kKind, 2, 4>(parts, layout, x, to);
  };
  in_two_streams<kPanelTiles>(t0, t1, one_part, two_panels);
}

// ---- more rows ----

constexpr int kGroupRows = 2 * kAmxRows;
// Of nibbles, which must be unpacked for the matrix units: fewer rows are left to VNNI.
constexpr std::int64_t kLeastRows = 4;
// Columns of which unpacked weights and copies of rows are kept.
constexpr std::int64_t kColumnsAtOnce = 1024;
// How far ahead weights that are read for the first time are fetched, into the second-level cache and into the first.
constexpr std::int64_t kAhead = 3072, kNear = 1024;

// Rows of x, and the columns that registers load.
struct RowGroup {
  const std::byte* row[kGroupRows];
  int rows = 0;
  const std::byte* columns = nullptr;  // of the first row
  std::int64_t stride = 0;
};

// Groups of one block of columns.
struct Groups {
  std::int64_t begin = 0, end = 0;
  const std::byte* lines = nullptr;  // of the first tile and group `begin`, a byte a weight
  std::int64_t line_step = 0;
  std::int64_t group_step = 0;
  bool resume = false;               // `out` holds what earlier groups gave
  bool first_time = false;           // the weights come from memory
};

// The products of group g, exact but for their start, with `NT` tiles from `at` on.
template <int kRowTiles, int NT>
[[gnu::always_inline]] inline void sum_group(const QuantLayout& layout, const RowGroup& x, const Groups& groups, std::int64_t g, int at,
                                             std::int32_t* sums) {
  constexpr std::int64_t kSumRow = NT * 16 * 4;
  const std::byte* lines = groups.lines + (g - groups.begin) * groups.group_step + at * kLine;
  const std::byte* columns = x.columns + (g - groups.begin) * layout.group;
  amx_zero<0>();
  if constexpr (NT > 1) amx_zero<1>();
  if constexpr (kRowTiles == 2 || NT > 2) amx_zero<2>();
  if constexpr (kRowTiles == 2 ? NT > 1 : NT > 3) amx_zero<3>();
  for (std::int64_t column = 0; column < layout.group; column += 64) {
    amx_load<4>(columns + column, x.stride);
    amx_load<6>(lines, groups.line_step);
    amx_dot_bytes<0, 4, 6>();
    if constexpr (NT > 1) amx_load<7>(lines + kLine, groups.line_step);
    if constexpr (NT > 1) amx_dot_bytes<1, 4, 7>();
    if constexpr (kRowTiles == 2) {
      amx_load<5>(columns + kAmxRows * x.stride + column, x.stride);
      amx_dot_bytes<2, 5, 6>();
      if constexpr (NT > 1) amx_dot_bytes<3, 5, 7>();
    } else {
      if constexpr (NT > 2) amx_load<6>(lines + 2 * kLine, groups.line_step);
      if constexpr (NT > 2) amx_dot_bytes<2, 4, 6>();
      if constexpr (NT > 3) amx_load<7>(lines + 3 * kLine, groups.line_step);
      if constexpr (NT > 3) amx_dot_bytes<3, 4, 7>();
    }
    lines += 16 * groups.line_step;
  }
  amx_store<0>(sums, kSumRow);
  if constexpr (NT > 1) amx_store<1>(sums + 16, kSumRow);
  if constexpr (kRowTiles == 2) {
    amx_store<2>(sums + kAmxRows * NT * 16, kSumRow);
    if constexpr (NT > 1) amx_store<3>(sums + kAmxRows * NT * 16 + 16, kSumRow);
  } else {
    if constexpr (NT > 2) amx_store<2>(sums + 32, kSumRow);
    if constexpr (NT > 3) amx_store<3>(sums + 48, kSumRow);
  }
}

template <QuantKind kKind, int NT>
[[gnu::always_inline]] inline void add_sums(const QuantLayout& layout, const RowGroup& x, const Part& part, std::int64_t g, int at,
                                            const std::int32_t* sums, float* acc) {
  __m512 scale[NT], minimum[NT] = {};
#pragma GCC unroll 4
  for (int t = 0; t < NT; ++t) {
    const std::byte* scales = part.scales + g * part.group_step + (at + t) * 32;
    scale[t] = Vnni::load_halves(scales);
    if constexpr (quant_traits(kKind).minima) minimum[t] = Vnni::load_halves(scales + part.minima_at);
  }
  const std::int64_t facts_at = layout.x_group_at() + g * static_cast<std::int64_t>(sizeof(XGroup));
  for (int r = 0; r < x.rows; ++r) {
    const XGroup facts = facts_of(x.row[r] + facts_at);
#pragma GCC unroll 4
    for (int t = 0; t < NT; ++t) {
      const int i = (r * NT + t) * 16;
      _mm512_store_ps(acc + i, add_group<kKind>(_mm512_load_ps(acc + i), _mm512_load_si512(sums + i), scale[t], minimum[t], facts));
    }
  }
}

template <QuantKind kKind, int kRowTiles, int NT>
void block(const QuantLayout& layout, const RowGroup& x, const Part& part, const Groups& groups, int at, float* out, std::int64_t stride) {
  // Of two groups: what the matrix units store is read again when they are at the next.
  alignas(64) std::int32_t sums[2][kRowTiles * kAmxRows * NT * 16];
  alignas(64) float acc[kRowTiles * kAmxRows * NT * 16];
  const auto lanes = [&](int t) { return at + t + 1 < part.tiles ? 16 : part.last_lanes; };
  for (int r = 0; r < x.rows; ++r)
#pragma GCC unroll 4
    for (int t = 0; t < NT; ++t)
      _mm512_store_ps(acc + (r * NT + t) * 16, groups.resume ? Vnni::load_n(out + r * stride + t * 16, lanes(t)) : _mm512_setzero_ps());
  for (std::int64_t g = groups.begin; g < groups.end; ++g) {
    if (groups.first_time && at == 0)
      for (std::int64_t i = -kLine; i < part.group_step; i += kLine) {
        _mm_prefetch(reinterpret_cast<const char*>(part.lines + g * part.group_step + kAhead + i), _MM_HINT_T1);
        _mm_prefetch(reinterpret_cast<const char*>(part.lines + g * part.group_step + kNear + i), _MM_HINT_T0);
      }
    sum_group<kRowTiles, NT>(layout, x, groups, g, at, sums[g % 2]);
    if (g > groups.begin) add_sums<kKind, NT>(layout, x, part, g - 1, at, sums[(g - 1) % 2], acc);
  }
  if (groups.end > groups.begin) add_sums<kKind, NT>(layout, x, part, groups.end - 1, at, sums[(groups.end - 1) % 2], acc);
  for (int r = 0; r < x.rows; ++r)
#pragma GCC unroll 4
    for (int t = 0; t < NT; ++t) Vnni::store_n(out + r * stride + t * 16, _mm512_load_ps(acc + (r * NT + t) * 16), lanes(t));
}

template <QuantKind kKind>
void part_product(const QuantLayout& layout, const RowGroup& x, const Part& part, const Groups& groups, float* out, std::int64_t stride) {
  if (x.rows > kAmxRows) {
    for (int at = 0; at < part.tiles; at += 2)
      if (part.tiles - at > 1)
        block<kKind, 2, 2>(layout, x, part, groups, at, out + at * 16, stride);
      else
        block<kKind, 2, 1>(layout, x, part, groups, at, out + at * 16, stride);
    return;
  }
  switch (part.tiles) {
    case 4: return block<kKind, 1, 4>(layout, x, part, groups, 0, out, stride);
    case 3: return block<kKind, 1, 3>(layout, x, part, groups, 0, out, stride);
    case 2: return block<kKind, 1, 2>(layout, x, part, groups, 0, out, stride);
    default: return block<kKind, 1, 1>(layout, x, part, groups, 0, out, stride);
  }
}

// The nibbles of groups [begin, end) as bytes: of each group its lines in the order of columns, those of all tiles side by side.
void unpack(const QuantLayout& layout, const Part& part, std::int64_t begin, std::int64_t end, std::byte* to) {
  const std::int64_t step = part.tiles * kLine, half = layout.lines() * step;
  for (std::int64_t g = begin; g < end; ++g, to += 2 * half)
    for (std::int64_t l = 0; l < layout.lines(); ++l)
      for (int t = 0; t < part.tiles; ++t) {
        const __m512i line = _mm512_loadu_si512(part.lines + g * part.group_step + l * part.line_step + t * kLine);
        _mm512_storeu_si512(to + l * step + t * kLine, Vnni::low_nibbles(line));
        _mm512_storeu_si512(to + half + l * step + t * kLine, Vnni::high_nibbles(line));
      }
}

template <QuantKind kKind>
void more_rows(const TileProduct& a, const QuantLayout& layout, std::int64_t m0, std::int64_t m1, std::int64_t t0, std::int64_t t1) {
  alignas(64) std::byte unpacked[kPanelTiles * 16 * kColumnsAtOnce], listed[kGroupRows * kColumnsAtOnce];
  constexpr bool kNibbles = quant_traits(kKind).nibbles;
  AmxShapes shapes;
  const std::int64_t at_once = kColumnsAtOnce / layout.group;
  for (std::int64_t t = t0; t < t1;) {
    const Part part = part_of(a, layout, t, t1);
    for (std::int64_t begin = 0; begin == 0 || begin < layout.groups; begin += at_once) {
      Groups groups = {.begin = begin, .end = std::min(layout.groups, begin + at_once), .resume = begin > 0, .first_time = !kNibbles};
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
      for (std::int64_t m = m0; m < m1; m += kGroupRows) {
        RowGroup x = {.row = {}, .rows = static_cast<int>(std::min<std::int64_t>(kGroupRows, m1 - m)), .columns = nullptr, .stride = a.x_stride};
        for (int i = 0; i < x.rows; ++i) x.row[i] = a.x + (a.x_rows == nullptr ? m + i : a.x_rows[m + i]) * a.x_stride;
        x.columns = x.row[0] + begin * layout.group;
        if (a.x_rows != nullptr) {
          for (int i = 0; i < x.rows; ++i)
            std::memcpy(listed + i * kColumnsAtOnce, x.row[i] + begin * layout.group,
                        static_cast<std::size_t>((groups.end - begin) * layout.group));
          x.columns = listed;
          x.stride = kColumnsAtOnce;
        }
        shapes.set(std::min(kAmxRows, x.rows), std::max(0, x.rows - kAmxRows), static_cast<int>(std::min<std::int64_t>(64, layout.group)));
        part_product<kKind>(layout, x, part, groups, a.out + m * a.out_stride + t * 16, a.out_stride);
        groups.first_time = false;
      }
    }
    t += part.tiles;
  }
}

template <QuantKind kKind>
void amx_product(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0, std::int64_t t1) {
  const QuantLayout layout(kKind, a.rows, a.columns, a.group);
  if (quant_traits(kKind).nibbles && m1 - m0 > 1 && m1 - m0 < kLeastRows) return quant_product<Vnni, kKind>(a, m0, m1, t0, t1);
  if (m1 - m0 == 1)
    one_row<kKind>(a, layout, a.x + (a.x_rows == nullptr ? m0 : a.x_rows[m0]) * a.x_stride, a.out + m0 * a.out_stride, t0, t1);
  else if (m1 > m0)
    more_rows<kKind>(a, layout, m0, m1, t0, t1);
  if (a.bias.data == nullptr) return;
  for (std::int64_t m = m0; m < m1; ++m)
    for (std::int64_t n = t0 * 16; n < std::min(a.rows, t1 * 16); ++n) a.out[m * a.out_stride + n] += bias_at<Vnni>(a.bias, n);
}

}  // namespace
}  // namespace sluice::cpu

#pragma GCC pop_options

namespace sluice::cpu {

QuantProducts amx_quant_products() {
  return {amx_product<QuantKind::kInt8>, amx_product<QuantKind::kInt4>, amx_product<QuantKind::kInt4Min>};
}

}  // namespace sluice::cpu
