// The product of one row of x with quantised tiles (quant_layout.h) by VNNI: it only waits for memory, so what counts is in which
// order lines are fetched and loaded. Included after quant_vnni_lanes.h, streams.h and quant_tiles_impl.h.
#pragma once

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

// How far ahead of what is read lines are fetched into the first-level cache and, where kFar is not 0, into the second.
template <std::int64_t kNearBytes, std::int64_t kFarBytes>
struct FetchAhead {
  static constexpr std::int64_t kNear = kNearBytes, kFar = kFarBytes;
};

// x times kStreams parts of NT tiles, which are read side by side.
template <QuantKind kKind, class Ahead, int kStreams, int NT>
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
      if (i % 2 == 0) asm volatile("prefetcht0 %c1(%0)" : : "r"(at), "i"(Ahead::kNear));
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
        const __m512i line = next_line<Ahead::kNear, Ahead::kFar>(lines[i / NT] + i % NT * kLine);
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

// Row m of x; in_streams(one, two) goes through the tiles (streams.h).
template <QuantKind kKind, class OneAhead, class TwoAhead, class InStreams>
void one_row(const TileProduct& a, const QuantLayout& layout, std::int64_t m, const InStreams& in_streams) {
  const std::byte* x = a.x + (a.x_rows == nullptr ? m : a.x_rows[m]) * a.x_stride;
  float* out = a.out + m * a.out_stride;
  const auto one_part = [&](std::int64_t at, std::int64_t end) {
    const Part part = part_of(a, layout, at, end);
    const Part* parts[] = {&part};
    float* to[] = {out + at * 16};
    switch (part.tiles) {
      case 4: row_parts<kKind, OneAhead, 1, 4>(parts, layout, x, to); break;
      case 3: row_parts<kKind, OneAhead, 1, 3>(parts, layout, x, to); break;
      case 2: row_parts<kKind, OneAhead, 1, 2>(parts, layout, x, to); break;
      default: row_parts<kKind, OneAhead, 1, 1>(parts, layout, x, to); break;
    }
    return at + part.tiles;
  };
  const auto two_panels = [&](std::int64_t t, std::int64_t u) {
    const Part first = part_of(a, layout, t, t + kPanelTiles), second = part_of(a, layout, u, u + kPanelTiles);
    const Part* parts[] = {&first, &second};
    float* to[] = {out + t * 16, out + u * 16};
    row_parts<kKind, TwoAhead, 2, 4>(parts, layout, x, to);
  };
  in_streams(one_part, two_panels);
}

void add_bias(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0, std::int64_t t1) {
  if (a.bias.data == nullptr) return;
  for (std::int64_t m = m0; m < m1; ++m)
    for (std::int64_t n = t0 * 16; n < std::min(a.rows, t1 * 16); ++n) a.out[m * a.out_stride + n] += bias_at<Vnni>(a.bias, n);
}

}  // namespace
}  // namespace sluice::cpu
