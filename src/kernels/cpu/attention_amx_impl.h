// Attention and the indexer's scores over bfloat16 planes in panels (kv_plane.h) on the matrix units of AMX, which take the
// panels as they lie. Included by isa_amx.cpp after attention_panels_impl.h.
//
// Order of summation: a score adds up 32 columns at a time, a value 32 keys at a time, counted from the chunk's first (amx.h).
// Keys that a row does not see weigh exactly nothing, so the bits of a row do not depend on the others.
#pragma once

namespace sluice::cpu {
namespace {

inline constexpr std::int64_t kStepKeys = kStepColumns;
inline constexpr std::int64_t kChunkSteps = kChunk / kStepKeys;
inline constexpr std::int64_t kValueTiles = ops::kValueColumns / 16;
inline constexpr int kGroupRows = 2 * kAmxRows;

// The first steps of a matrix from one place, and after them some more from places of their own, as many as `out` is to hold.
struct PanelSteps {
  const std::byte* at = nullptr;
  std::int64_t count = 0;
  const std::byte* const* listed = nullptr;
  std::int64_t num_listed = 0;
  std::int64_t line_step = 0;
  bool from_memory = false;  // read for the first time
};

template <int kRowTiles, int NT>
void panel_block(RowGroup x, const PanelSteps& w, int at, float* out, std::int64_t stride) {
  amx_zero<0>();
  if constexpr (NT > 1) amx_zero<1>();
  if constexpr (kRowTiles == 2 || NT > 2) amx_zero<2>();
  if constexpr (kRowTiles == 2 ? NT > 1 : NT > 3) amx_zero<3>();
  const auto add = [&](const std::byte* lines, std::int64_t count) {
    if (w.from_memory && at == 0)
      steps<kRowTiles, NT, true>(x, lines, w.line_step, count);
    else
      steps<kRowTiles, NT, false>(x, lines + at * kLine, w.line_step, count);
    x.x += count * kLine;
  };
  if (w.count > 0) add(w.at, w.count);
  for (std::int64_t i = 0; i < w.num_listed; ++i) add(w.listed[i], 1);
  amx_store<0>(out, stride * 4);
  if constexpr (NT > 1) amx_store<1>(out + 16, stride * 4);
  if constexpr (kRowTiles == 2) {
    amx_store<2>(out + x.first * stride, stride * 4);
    if constexpr (NT > 1) amx_store<3>(out + x.first * stride + 16, stride * 4);
  } else {
    if constexpr (NT > 2) amx_store<2>(out + 32, stride * 4);
    if constexpr (NT > 3) amx_store<3>(out + 48, stride * 4);
  }
}

// out[rows, 16 tiles] = x w^T; x is bfloat16, in which every step is whole.
void panel_times(AmxShapes& shapes, const std::byte* x, std::int64_t x_stride, std::int64_t rows, PanelSteps w, int tiles, float* out,
                 std::int64_t stride) {
  for (std::int64_t m = 0; m < rows; m += kGroupRows) {
    const auto some = static_cast<int>(std::min<std::int64_t>(kGroupRows, rows - m));
    RowGroup group = {.x = x + m * x_stride, .stride = x_stride, .first = std::min(kAmxRows, some)};
    group.second = some - group.first;
    group.second_at = group.first * x_stride;
    shapes.set(group.first, group.second, kLine);
    float* to = out + m * stride;
    if (group.second > 0) {
      for (int at = 0; at < tiles; at += 2)
        if (tiles - at > 1)
          panel_block<2, 2>(group, w, at, to + at * 16, stride);
        else
          panel_block<2, 1>(group, w, at, to + at * 16, stride);
    } else {
      switch (tiles) {
        case 4: panel_block<1, 4>(group, w, 0, to, stride); break;
        case 3: panel_block<1, 3>(group, w, 0, to, stride); break;
        case 2: panel_block<1, 2>(group, w, 0, to, stride); break;
        default: panel_block<1, 1>(group, w, 0, to, stride); break;
      }
    }
    w.from_memory = false;
  }
}

// Rows of bfloat16 queries whose last step is filled up with zeros, and the products of their heads with panels of keys.
struct PanelQueries {
  std::int64_t d = 0;
  std::int64_t stride = 0;  // elements

  explicit PanelQueries(std::int64_t dim) : d(dim), stride((dim + kStepColumns - 1) / kStepColumns * kStepColumns) {}
  template <class V>
  void put(const float* from, std::uint16_t* to) const {
    round_row<V>(from, d, to);
    std::fill(to + d, to + stride, std::uint16_t{0});
  }
  // out[rows, 16 tiles] of `tiles` tiles of a panel of keys, whose pair 0 of the first is at `panel`.
  void times(AmxShapes& shapes, const std::uint16_t* rows, std::int64_t num_rows, const std::byte* panel, int tiles, bool from_memory,
             float* out, std::int64_t out_stride) const {
    const std::int64_t whole = d / kStepColumns;
    PanelSteps w = {.at = panel, .count = whole, .line_step = kPageLine, .from_memory = from_memory};
    alignas(64) std::byte last[kStepLines * kPageLine];
    const std::byte* listed[] = {last};
    if (d % kStepColumns != 0) {
      std::memset(last, 0, sizeof last);
      for (std::int64_t l = 0; l < d % kStepColumns / 2; ++l)
        std::memcpy(last + l * kPageLine, panel + (whole * kStepLines + l) * kPageLine, static_cast<std::size_t>(tiles * kLine));
      w.listed = listed;
      w.num_listed = 1;
      w.from_memory = false;
    }
    panel_times(shapes, reinterpret_cast<const std::byte*>(rows), stride * 2, num_rows, w, tiles, out, out_stride);
  }
};

// Row i of the tile is of head i / (rows / kv_heads). Pages are read one after the other, and in a page the heads, as they lie.
template <class V>
struct AmxProducts {
  const AttendTile& t;
  const std::int64_t group;  // rows of a head
  const PanelQueries form;
  const std::byte* k[kChunk / ops::kPageTokens];
  const std::byte* v[kChunk / ops::kPageTokens];
  AmxShapes shapes;
  alignas(64) std::uint16_t queries[kTileQueries * (ops::kMaxKeyDim + kStepColumns)];
  alignas(64) std::uint16_t weights[kTileQueries * kChunk];

  explicit AmxProducts(const AttendTile& tile) : t(tile), group(tile.rows / tile.kv_heads), form(tile.d) {
    for (int r = 0; r < t.rows; ++r) form.put<V>(t.q[r], queries + r * form.stride);
  }
  void gather(std::int64_t c, std::int64_t u0, std::int64_t u1, std::int64_t) {
    const std::int32_t* pages = t.keys.pages + c / ops::kPageTokens;
    for (std::int64_t p = u0 / ops::kPageTokens; p * ops::kPageTokens < u1; ++p) {
      k[p] = reinterpret_cast<const std::byte*>(static_cast<const BF16*>(t.k) + pages[p] * t.k_stride);
      v[p] = reinterpret_cast<const std::byte*>(static_cast<const BF16*>(t.v) + pages[p] * t.v_stride);
    }
  }
  void score(std::int64_t u0, std::int64_t u1, float* scores) {
    for (std::int64_t p = u0 / ops::kPageTokens; p * ops::kPageTokens < u1; ++p) {
      const std::int64_t at = p * ops::kPageTokens;
      const std::int64_t first = std::max<std::int64_t>(0, u0 - at) / 16;
      const std::int64_t end = (std::min(ops::kPageTokens, u1 - at) + 15) / 16;
      for (std::int64_t h = 0; h < t.kv_heads; ++h)
        form.times(shapes, queries + h * group * form.stride, group, k[p] + h * kPageLine * t.d / 2 + first * kLine,
                   static_cast<int>(end - first), true, scores + h * group * kChunk + at + first * 16, kChunk);
    }
  }
  NothingToFetch fetch_values(std::int64_t) const { return {}; }
  void weigh(std::int64_t u0, std::int64_t u1, const float* scores, const std::int64_t* lo, const std::int64_t* hi, float* part,
             std::int64_t width) {
    round_weights<V>(t.rows, scores, lo, hi, (u1 + kStepKeys - 1) / kStepKeys * kStepKeys, weights);
    weigh_all<V>(*this, t.rows, u0, u1, lo, hi, part, width);
  }
  // Into rows that are zero.
  void weigh_rows(int r0, int r1, std::int64_t u0, std::int64_t u1, float* part, std::int64_t width) {
    const std::int64_t begin = u0 / kStepKeys, end = (u1 + kStepKeys - 1) / kStepKeys;
    // Of steps that are not seen whole, what is seen.
    alignas(64) std::byte edge[2][kStepLines * kValueTiles * kLine];
    const std::byte* listed[kChunkSteps];
    for (std::int64_t h = r0 / group; h * group < r1; ++h)
      for (std::int64_t column = 0; column < t.dv; column += ops::kValueColumns) {
        const std::int64_t row = std::max<std::int64_t>(r0, h * group), rows = std::min<std::int64_t>(r1, (h + 1) * group) - row;
        const std::int64_t line = std::min(ops::kValueColumns, t.dv - column) * 4;
        int edges = 0;
        for (std::int64_t s = begin; s < end; ++s) {
          const std::byte* at = v[s * kStepKeys / ops::kPageTokens] + (h * t.dv + column) * ops::kPageTokens * 2 +
                                s * kStepLines % (ops::kPageTokens / 2) * line;
          if (s * kStepKeys < u0 || (s + 1) * kStepKeys > u1) at = seen(at, line, u0 - s * kStepKeys, u1 - s * kStepKeys, edge[edges++]);
          listed[s - begin] = at;
        }
        panel_times(shapes, reinterpret_cast<const std::byte*>(weights + row * kChunk + begin * kStepKeys), kChunk * 2, rows,
                    {.listed = listed, .num_listed = end - begin, .line_step = line, .from_memory = true},
                    static_cast<int>(line / kLine), part + row * width + column, width);
      }
  }

 private:
  // A copy of the step's lines `at` in which keys outside [first, last) are zero: whatever lies there may not be multiplied.
  static const std::byte* seen(const std::byte* at, std::int64_t line, std::int64_t first, std::int64_t last, std::byte* to) {
    for (std::int64_t pair = 0; pair < kStepLines; ++pair) {
      const std::uint32_t low = 2 * pair >= first && 2 * pair < last ? 0x0000FFFFu : 0;
      const std::uint32_t high = 2 * pair + 1 >= first && 2 * pair + 1 < last ? 0xFFFF0000u : 0;
      const __m512i mask = _mm512_set1_epi32(static_cast<int>(low | high));
      for (std::int64_t i = 0; i < line; i += kLine)
        _mm512_store_si512(to + pair * line + i, _mm512_and_si512(_mm512_loadu_si512(at + pair * line + i), mask));
    }
    return to;
  }
};

template <class D>
void attend_tile_amx(const AttendTile& t) {
  using V = typename D::Vector;
  const FlushDenormals flush;
  if (t.panels) {
    AmxProducts<V> products(t);
    attend_with<V>(t, products);
  } else {
    PackedProducts<D> products(t);
    attend_with<V>(t, products);
  }
}

template <class D>
struct AmxIndexKeys {
  const IndexScoreArgs& a;
  const PanelQueries form;
  AmxShapes shapes;
  alignas(64) std::uint16_t filled[IndexQueries<D>::kRows * (ops::kMaxKeyDim + kStepColumns)];

  explicit AmxIndexKeys(const IndexScoreArgs& args) : a(args), form(args.d) {}
  void product(IndexQueries<D>& q, std::int64_t begin, std::int64_t count) {
    const std::uint16_t* rows = q.queries;
    if (form.stride != a.d) {
      for (std::int64_t r = 0; r < q.rows(); ++r) {
        std::copy_n(q.queries + r * a.d, a.d, filled + r * form.stride);
        std::fill(filled + r * form.stride + a.d, filled + (r + 1) * form.stride, std::uint16_t{0});
      }
      rows = filled;
    }
    const auto* page = static_cast<const BF16*>(a.k) + a.keys.pages[begin / ops::kPageTokens] * a.k_stride;
    form.times(shapes, rows, q.rows(), reinterpret_cast<const std::byte*>(page), static_cast<int>((count + 15) / 16), true, q.dots,
               ops::kPageTokens);
  }
};

template <class D>
void index_scores_amx(const IndexScoreArgs& a) {
  const FlushDenormals flush;
  if (a.panels)
    index_scores_over<D>(a, AmxIndexKeys<D>(a));
  else
    index_scores_over<D>(a, PackedIndexKeys<D>(a));
}

}  // namespace
}  // namespace sluice::cpu
