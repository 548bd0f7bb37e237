// Attention over bfloat16 keys, and the indexer's scores of them, as products with bfloat16 tiles (tiles_impl.h): keys
// and values are interleaved as the tiles want them, 64 keys (or 64 columns of the values) at a time, and serve all
// rows of the tile. Queries and probabilities are rounded to bfloat16. Included by isa_*.cpp after tiles_impl.h.
//
// Every element is one accumulator over ascending pairs: of columns for a score, of keys counted from the chunk's first
// for a value. Keys that a row does not see weigh exactly nothing, so the bits of a row do not depend on the others;
// only an infinity or NaN among the values of a later token of the same sequence would show.
#pragma once

namespace sluice::cpu {

inline constexpr std::int64_t kPanelRows = 64;  // of weights: keys of a score, columns of a value

// Sixteen rows as one tile: line i of 64 bytes has elements 2i and 2i + 1 of each row. Meanwhile the first `num_ahead`
// rows of `ahead`, which come later, are fetched.
template <class V>
inline void interleave_rows(const BF16* const* rows, std::int64_t columns, const BF16* const* ahead,
                            std::int64_t num_ahead, std::byte* out, std::int64_t step) {
  constexpr std::int64_t kPairs = V::kLanes;
  std::int64_t i = 0;
  for (; i + 2 * kPairs <= columns; i += 2 * kPairs) {
    for (std::int64_t r = 0; r < num_ahead; ++r)
      _mm_prefetch(reinterpret_cast<const char*>(ahead[r] + i), _MM_HINT_T1);
    V::transpose_pairs(rows, i, out + i / 2 * step, step);
  }
  for (; i < columns; ++i)
    for (int r = 0; r < 16; ++r) {
      std::byte* to = out + i / 2 * step + r * 4 + i % 2 * 2;
      std::memcpy(to, rows[r] + i, 2);
      if (i % 2 == 0) std::memset(to + 2, 0, 2);
    }
}

// Rows that are needed soon: they lie apart, so the processor does not foresee them.
template <_mm_hint kHint>
inline void fetch_rows(const BF16* const* rows, std::int64_t count, std::int64_t columns) {
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t i = 0; i < columns; i += 32) _mm_prefetch(reinterpret_cast<const char*>(rows[r] + i), kHint);
}

// `count` <= 64 rows as a panel, and its product with rows [0, m) of x: out[m, count]. `num_ahead` rows come next.
template <class D>
inline void panel_product(const BF16* const* rows, std::int64_t count, const BF16* const* ahead,
                          std::int64_t num_ahead, std::int64_t columns, std::byte* panel,
                          const std::byte* x, std::int64_t x_stride, std::int64_t m, float* out,
                          std::int64_t out_stride) {
  const std::int64_t tiles = (count + 15) / 16;
  for (std::int64_t t = 0; t < tiles; ++t) {
    // Rows that do not exist repeat the last one; nobody reads what comes of them.
    const BF16* some[16];
    for (std::int64_t r = 0; r < 16; ++r) some[r] = rows[std::min(t * 16 + r, count - 1)];
    const std::int64_t fetched = std::clamp<std::int64_t>(num_ahead - t * 16, 0, 16);
    interleave_rows<typename D::Vector>(some, columns, fetched > 0 ? ahead + t * 16 : ahead, fetched,
                                        panel + t * kTileBytes, tiles * kTileBytes);
  }
  bf16_tile_product<D>({.x = x, .x_stride = x_stride, .w = panel, .rows = count, .columns = columns, .out = out,
                        .out_stride = out_stride},
                       0, m, 0, tiles);
}

template <class V>
inline void round_row(const float* x, std::int64_t n, std::uint16_t* out) {
  for_lanes<V>(n, [&](std::int64_t i, auto lanes) {
    lanes.store(reinterpret_cast<BF16*>(out) + i, lanes.load(x + i));
  });
}

template <class D>
struct PackedProducts {
  using V = typename D::Vector;
  const AttendTile& t;
  const BF16* k[kChunk];
  const BF16* v[kChunk + 1];
  alignas(64) std::uint16_t queries[kTileQueries * ops::kMaxKeyDim];
  alignas(64) std::uint16_t weights[kTileQueries * kChunk];
  alignas(64) std::byte panel[kPanelRows * ops::kMaxKeyDim * 2];

  explicit PackedProducts(const AttendTile& tile) : t(tile) {
    for (int r = 0; r < t.rows; ++r) round_row<V>(t.q[r], t.d, queries + r * t.d);
  }
  void gather(std::int64_t i, std::int64_t slot) {
    k[i] = static_cast<const BF16*>(t.k) + slot * t.k_stride;
    v[i] = static_cast<const BF16*>(t.v) + slot * t.v_stride;
  }
  void score(std::int64_t u0, std::int64_t u1, float* scores) {
    const std::int64_t rows = t.rows / t.kv_heads;
    fetch_rows<_MM_HINT_T1>(k + u0, std::min(kPanelRows, u1 - u0), t.kv_heads * t.d);
    for (std::int64_t u = u0; u < u1; u += kPanelRows) {
      const std::int64_t count = std::min(kPanelRows, u1 - u);
      fetch_rows<_MM_HINT_T1>(k + u + count, std::min(kPanelRows, u1 - u - count), t.kv_heads * t.d);
      if (t.v != t.k) fetch_rows<_MM_HINT_T1>(v + u, count, t.kv_heads * t.dv);
      for (std::int64_t head = 0; head < t.kv_heads; ++head) {
        const BF16* keys[kPanelRows];
        for (std::int64_t i = 0; i < count; ++i) keys[i] = k[u + i] + head * t.d;
        panel_product<D>(keys, count, keys, 0, t.d, panel,
                         reinterpret_cast<const std::byte*>(queries + head * rows * t.d), t.d * 2, rows,
                         scores + head * rows * kChunk + u, kChunk);
      }
    }
  }
  void weigh(std::int64_t u0, std::int64_t u1, const float* scores, const std::int64_t* lo, const std::int64_t* hi,
             float* part, std::int64_t width) {
    // Whole pairs, counted from the chunk's first key.
    alignas(64) static constexpr std::uint16_t kNothing[16] = {};
    const std::int64_t w0 = u0 / 2 * 2, w1 = (u1 + 1) / 2 * 2;
    if (w0 < u0) v[w0] = reinterpret_cast<const BF16*>(kNothing);
    if (u1 < w1) v[u1] = reinterpret_cast<const BF16*>(kNothing);
    for (int r = 0; r < t.rows; ++r) {
      std::uint16_t* to = weights + r * kChunk;
      // soften() left zeros where its vectors reach beyond the row's keys.
      const std::int64_t begin = lo[r] / V::kLanes * V::kLanes;
      const std::int64_t end = (hi[r] + V::kLanes - 1) / V::kLanes * V::kLanes;
      std::memset(to, 0, static_cast<std::size_t>(begin) * 2);
      for (std::int64_t i = begin; i < end; i += V::kLanes)
        V::store(reinterpret_cast<BF16*>(to) + i, V::load(scores + r * kChunk + i));
      if (end < w1) std::memset(to + end, 0, static_cast<std::size_t>(w1 - end) * 2);
    }
    const std::int64_t rows = t.rows / t.kv_heads;
    for (std::int64_t head = 0; head < t.kv_heads; ++head)
      for (std::int64_t column = 0; column < t.dv; column += kPanelRows) {
        const std::int64_t count = std::min(kPanelRows, t.dv - column), tiles = (count + 15) / 16;
        std::byte* line = panel;
        for (std::int64_t key = w0; key < w1; key += 2)
          for (std::int64_t at = 0; at < count; at += 16, line += kTileBytes) {
            // A key that does not exist is the same row of zeros for every head.
            const BF16* a = key < u0 ? v[key] : v[key] + head * t.dv + column + at;
            const BF16* b = key + 1 >= u1 ? v[key + 1] : v[key + 1] + head * t.dv + column + at;
            V::zip(a, b, static_cast<int>(std::min<std::int64_t>(16, count - at)), line);
          }
        bf16_tile_product<D>({.x = reinterpret_cast<const std::byte*>(weights + head * rows * kChunk + w0),
                              .x_stride = kChunk * 2,
                              .w = panel,
                              .rows = count,
                              .columns = w1 - w0,
                              .out = part + head * rows * width + column,
                              .out_stride = width},
                             0, rows, 0, tiles);
      }
  }
};

template <class D>
void attend_tile_bf16(const AttendTile& t) {
  PackedProducts<D> products(t);
  attend_with<typename D::Vector>(t, products);
}

template <class D>
void index_scores_bf16(const IndexScoreArgs& a) {
  using V = typename D::Vector;
  constexpr std::int64_t kRows = 128;  // heads of a few tokens, or some heads of one
  alignas(64) std::uint16_t queries[kRows * ops::kMaxKeyDim];
  alignas(64) std::byte panel[kPanelRows * ops::kMaxKeyDim * 2];
  alignas(64) float dots[kRows * ops::kPageTokens];
  const BF16* k[2 * ops::kPageTokens];  // of a page and the next one
  const std::int64_t heads = std::min(a.heads, kRows), tokens = std::max<std::int64_t>(1, kRows / heads);
  for (std::int64_t t = 0; t < a.tokens; t += tokens)
    for (std::int64_t h = 0; h < a.heads; h += heads) {
      const std::int64_t some_tokens = std::min(tokens, a.tokens - t), some_heads = std::min(heads, a.heads - h);
      for (std::int64_t r = 0; r < some_tokens * some_heads; ++r)
        round_row<V>(a.q + (t + r / some_heads) * a.q_stride + (h + r % some_heads) * a.q_head_stride, a.d,
                     queries + r * a.d);
      for (std::int64_t begin = a.begin; begin < a.end; begin += ops::kPageTokens) {
        const std::int64_t count = std::min(ops::kPageTokens, a.end - begin);
        const std::int64_t known = std::min(2 * ops::kPageTokens, a.end - begin);
        for (std::int64_t i = 0; i < known; ++i)
          k[i] = static_cast<const BF16*>(a.k) + a.keys.slot(begin + i) * a.k_stride;
        panel_product<D>(k, count, k + count, known - count, a.d, panel,
                         reinterpret_cast<const std::byte*>(queries), a.d * 2, some_tokens * some_heads, dots,
                         ops::kPageTokens);
        for (std::int64_t i = 0; i < some_tokens; ++i) {
          float* total = a.scores + (t + i) * a.scores_stride + begin;
          if (h == 0) std::memset(total, 0, sizeof(float) * static_cast<std::size_t>(count));
          for (std::int64_t j = 0; j < some_heads; ++j)
            add_index_head<V>(dots + (i * some_heads + j) * ops::kPageTokens,
                              a.weights[(t + i) * a.weights_stride + h + j], count, total);
        }
      }
    }
}

}  // namespace sluice::cpu
