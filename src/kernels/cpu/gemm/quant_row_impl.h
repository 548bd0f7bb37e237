// GEMV with quantised tiles (quant_layout.h) over lanes D (quant_tiles_impl.h). It waits for memory
// only, so the order of prefetches and loads decides its speed. Included after D, streams.h and
// quant_tiles_impl.h.
#pragma once

namespace sluice::cpu {
namespace {

constexpr std::int64_t kLine = QuantLayout::kLineBytes;
constexpr int kPanelTiles = static_cast<int>(QuantLayout::kPanelTiles);

// Some neighbouring tiles of one panel.
struct Part {
  const std::byte* lines = nullptr;   // of the first tile and group 0
  const std::byte* scales = nullptr;  // of the first tile and group 0
  std::int64_t minima_at = 0;         // distance from the scales
  std::int64_t line_step = 0;
  std::int64_t group_step = 0;
  int tiles = 0;
  int last_lanes = 16;  // existing rows of the last tile
};

Part part_of(const TileProduct& a, const QuantLayout& layout, std::int64_t t, std::int64_t t1) {
  const std::int64_t panel = t / kPanelTiles, beside = t % kPanelTiles,
                     width = layout.panel_width(panel);
  // The part ends at t1 or at the end of the panel.
  const std::int64_t count = std::min(t1 - t, width - beside);
  const std::byte* w = a.w + layout.panel_at(panel);
  return {
      .lines = w + layout.lines_at(width) + beside * kLine,
      .scales = w + beside * 32,
      .minima_at = QuantLayout::scale_bytes(width),
      .line_step = width * kLine,
      .group_step = layout.group_bytes(width),
      .tiles = static_cast<int>(count),
      .last_lanes = static_cast<int>(std::min<std::int64_t>(16, a.rows - (t + count - 1) * 16))};
}

// Loads the members separately: each is then broadcast directly from memory.
XGroup info_of(const std::byte* at) {
  XGroup info;
  std::memcpy(&info.scale, at, sizeof info.scale);
  std::memcpy(&info.start, at + sizeof info.scale, sizeof info.start);
  return info;
}

// acc + contribution of one group. `sum` does not include XGroup::start yet.
template <class D, QuantKind kKind>
[[gnu::always_inline]] inline typename D::F add_group(typename D::F acc, typename D::I sum,
                                                      typename D::F scale, typename D::F minimum,
                                                      const XGroup& info) {
  // For kInt4Min, XGroup::start holds the float e * Q instead of an integer start value.
  constexpr QuantTraits kTraits = quant_traits(kKind);
  if constexpr (!kTraits.minima) sum = D::add32(sum, D::spread_int(info.start));
  acc = D::fma(D::to_float(sum), D::mul(scale, D::set1(info.scale)), acc);
  if constexpr (kTraits.minima)
    acc = D::fma(minimum, D::set1(std::bit_cast<float>(info.start)), acc);
  return acc;
}

// Prefetch distances in bytes: kNear into L1 and, if not 0, kFar into L2.
template <std::int64_t kNearBytes, std::int64_t kFarBytes>
struct FetchAhead {
  static constexpr std::int64_t kNear = kNearBytes, kFar = kFarBytes;
};

// One row of x with kStreams parts of NT tiles each, read side by side.
template <class D, QuantKind kKind, class Ahead, int kStreams, int NT>
void row_parts(const Part* const* parts, const QuantLayout& layout, const std::byte* x,
               float* const* out) {
  constexpr QuantTraits kTraits = quant_traits(kKind);
  using Dots = typename D::template RowDots<kTraits.nibbles>;
  constexpr int kVectors = 16 / D::kLanes, kTiles = kStreams * NT, kAll = kTiles * kVectors,
                kVectorBytes = 4 * D::kLanes;
  // Float accumulators of all tiles of both streams.
  typename D::F acc[kAll];
#pragma GCC unroll 8
  for (int i = 0; i < kAll; ++i) acc[i] = D::zero();
  const std::int64_t step = parts[0]->line_step, num_lines = layout.lines(), group = layout.group;
  // Per group: scales, then lines, then the float accumulation.
  for (std::int64_t g = 0; g < layout.groups; ++g) {
    // Both streams advance in step: the same group of every part.
    const std::byte *lines[kStreams], *scales[kStreams];
    for (int s = 0; s < kStreams; ++s) lines[s] = parts[s]->lines + g * parts[s]->group_step;
    for (int s = 0; s < kStreams; ++s) scales[s] = parts[s]->scales + g * parts[s]->group_step;
    typename D::I sum[kAll];
    typename D::F scale[kAll], minimum[kAll] = {};
    // Scales (and minima) of one vector of weight rows, widened from float16.
    const auto load_scales = [&](int i) __attribute__((always_inline)) {
      const std::byte* at =
          scales[i / kVectors / NT] + i / kVectors % NT * 32 + i % kVectors * 2 * D::kLanes;
      scale[i] = D::load_halves(at);
      if constexpr (kTraits.minima)
        minimum[i] = D::load_halves(at + parts[i / kVectors / NT]->minima_at);
    };
#pragma GCC unroll 8
    for (int i = 0; i < kAll; ++i) {
      // Prefetch in memory order, the lines of the scales included.
      if (i % (2 * kVectors) == 0)
        fetch_ahead<Ahead::kNear, 0>(scales[i / kVectors / NT] + i / kVectors % NT * 32);
      sum[i] = D::spread_int(0);
      if constexpr (D::kHoldsScales) load_scales(i);
    }
    const std::byte* columns = x + g * group;
    for (std::int64_t l = 0; l < num_lines; l += Dots::kLinesAtOnce) {
      typename Dots::Part part[kAll];
#pragma GCC unroll 8
      for (int i = 0; i < kAll; ++i) part[i] = Dots::begin(sum[i]);
#pragma GCC unroll 4
      for (int j = 0; j < Dots::kLinesAtOnce; ++j) {
        // Broadcast four columns of x; nibbles also need the four columns of the group's second
        // half.
        const typename Dots::X low = Dots::spread(columns + 4 * (l + j));
        const typename Dots::X high =
            kTraits.nibbles ? Dots::spread(columns + group / 2 + 4 * (l + j)) : low;
        // All tiles of both streams use the same broadcast columns.
#pragma GCC unroll 8
        for (int i = 0; i < kAll; ++i) {
          const std::byte* at =
              lines[i / kVectors / NT] + i / kVectors % NT * kLine + i % kVectors * kVectorBytes;
          if (i % kVectors == 0) fetch_ahead<Ahead::kNear, Ahead::kFar>(at);
          const auto line = load_next<typename D::I>(at);
          if constexpr (kTraits.nibbles) {
            part[i] = Dots::dot(part[i], Dots::low_nibbles(line), low);
            part[i] = Dots::dot(part[i], Dots::high_nibbles(line), high);
          } else {
            part[i] = Dots::dot(part[i], Dots::bytes(line), low);
          }
        }
        for (int s = 0; s < kStreams; ++s) lines[s] += step;
      }
      // Sums of few bits go to 32 bits.
#pragma GCC unroll 8
      for (int i = 0; i < kAll; ++i) sum[i] = Dots::settle(sum[i], part[i]);
    }
    // Few registers (AVX2): load the scales only now, after the lines.
    const XGroup info =
        info_of(x + layout.x_group_at() + g * static_cast<std::int64_t>(sizeof(XGroup)));
#pragma GCC unroll 8
    for (int i = 0; i < kAll; ++i) {
      if constexpr (!D::kHoldsScales) load_scales(i);
      acc[i] = add_group<D, kKind>(acc[i], sum[i], scale[i], minimum[i], info);
    }
  }
  // Store; the last tile may have fewer rows.
#pragma GCC unroll 8
  for (int i = 0; i < kAll; ++i) {
    const int tile = i / kVectors,
              lanes = tile % NT + 1 < NT
                          ? D::kLanes
                          : std::clamp(parts[tile / NT]->last_lanes - i % kVectors * D::kLanes, 0,
                                       D::kLanes);
    if (lanes > 0)
      D::store_n(out[tile / NT] + tile % NT * 16 + i % kVectors * D::kLanes, acc[i], lanes);
  }
}

// GEMV of row m. in_streams(one, two) enumerates the tiles (streams.h).
template <class D, QuantKind kKind, class OneAhead, class TwoAhead, class InStreams>
void one_row(const TileProduct& a, const QuantLayout& layout, std::int64_t m,
             const InStreams& in_streams) {
  const std::byte* x = a.x + (a.x_rows == nullptr ? m : a.x_rows[m]) * a.x_stride;
  float* out = a.out + m * a.out_stride;
  const auto one_part = [&](std::int64_t at, std::int64_t end) {
    const Part part = part_of(a, layout, at, end);
    const Part* parts[] = {&part};
    float* to[] = {out + at * 16};
    // The number of tiles is a template argument, so that accumulators stay in registers.
    switch (part.tiles) {
      case 4:
        row_parts<D, kKind, OneAhead, 1, 4>(parts, layout, x, to);
        break;
      case 3:
        row_parts<D, kKind, OneAhead, 1, 3>(parts, layout, x, to);
        break;
      case 2:
        row_parts<D, kKind, OneAhead, 1, 2>(parts, layout, x, to);
        break;
      default:
        row_parts<D, kKind, OneAhead, 1, 1>(parts, layout, x, to);
        break;
    }
    return at + part.tiles;
  };
  const auto two_panels = [&](std::int64_t t, std::int64_t u) {
    const Part first = part_of(a, layout, t, t + kPanelTiles),
               second = part_of(a, layout, u, u + kPanelTiles);
    // Two whole panels of equal shape, side by side.
    const Part* parts[] = {&first, &second};
    float* to[] = {out + t * 16, out + u * 16};
    row_parts<D, kKind, TwoAhead, 2, 4>(parts, layout, x, to);
  };
  in_streams(one_part, two_panels);
}

// GEMM of any number of rows; GEMV as one stream.
template <class D, QuantKind kKind, class Ahead>
void row_or_rows_product(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0,
                         std::int64_t t1) {
  if (m1 - m0 != 1) return quant_product<D, kKind>(a, m0, m1, t0, t1);
  const QuantLayout layout(kKind, a.rows, a.columns, a.group);
  one_row<D, kKind, Ahead, Ahead>(a, layout, m0, [&](const auto& one, const auto&) {
    for (std::int64_t t = t0; t < t1;) t = one(t, t1);
  });
  add_bias<D>(a, m0, m1, t0, t1);
}

template <class D, class Ahead>
constexpr QuantProducts quant_products() {
  return {row_or_rows_product<D, QuantKind::kInt8, Ahead>,
          row_or_rows_product<D, QuantKind::kInt4, Ahead>,
          row_or_rows_product<D, QuantKind::kInt4Min, Ahead>};
}

}  // namespace
}  // namespace sluice::cpu
