// Attention over bfloat16 keys, and the indexer's scores of them, as GEMMs with bfloat16 tiles
// (tiles_impl.h). Keys and values are repacked into tiles, 64 keys (or 64 columns of values) at a
// time; a repacked panel serves all rows of the attention tile. Queries and probabilities are
// rounded to bfloat16. Included by isa_*.cpp after tiles_impl.h.
//
// Every element is one accumulator over ascending pairs (on AMX: steps of 16 pairs). Scores sum
// over pairs of columns, values over pairs of keys counted from the chunk's first key.
//
// Keys that a row does not see get probability 0, so a row's bits do not depend on other rows. But
// 0 * inf is NaN: a row whose result is not finite for that reason is summed again over its own
// keys.
#pragma once

namespace sluice::cpu {

// Weight rows of a panel: keys of a score, columns of a value.
inline constexpr std::int64_t kPanelRows = 64;
// Prefetch distance of keys, in rows: two tiles.
inline constexpr std::int64_t kRowsAhead = 32;

// Repacks sixteen rows as one tile: line i of 64 bytes holds elements 2i and 2i + 1 of each row.
// fetch(i) is called when column i is reached, to prefetch later rows.
template <class V, class Fetch>
inline void interleave_rows(const BF16* const* rows, std::int64_t columns, std::byte* out,
                            std::int64_t step, const Fetch& fetch) {
  constexpr std::int64_t kPairs = V::kLanes;
  std::int64_t i = 0;
  for (; i + 2 * kPairs <= columns; i += 2 * kPairs) {
    fetch(i);
    V::transpose_pairs(rows, i, out + i / 2 * step, step);
  }
  // Columns that do not fill a vector.
  for (; i < columns; ++i)
    for (int r = 0; r < 16; ++r) {
      std::byte* to = out + i / 2 * step + r * 4 + i % 2 * 2;
      std::memcpy(to, rows[r] + i, 2);
      if (i % 2 == 0) std::memset(to + 2, 0, 2);
    }
}

// Rows [16 tile, 16 tile + 16) of `count`. Missing rows repeat the last one; their results are not
// used.
template <class V>
struct TileRows {
  const BF16* of[16];
  TileRows(const BF16* const* rows, std::int64_t tile, std::int64_t count) {
    for (std::int64_t r = 0; r < 16; ++r) of[r] = rows[std::min(tile * 16 + r, count - 1)];
  }
};

// Prefetches rows that are needed soon. They are scattered over pages, so the hardware prefetcher
// does not predict them.
template <_mm_hint kHint>
inline void fetch_rows(const BF16* const* rows, std::int64_t count, std::int64_t columns) {
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t i = 0; i < columns; i += 32)
      _mm_prefetch(reinterpret_cast<const char*>(rows[r] + i), kHint);
}

// GEMM of the first m rows of x with `tiles` tiles; on AMX if D has its order of summation.
template <class D>
inline void packed_product(const TileProduct& args, std::int64_t m, std::int64_t tiles) {
  if constexpr (D::kStepPairs > 0)
    amx_bf16_product()(args, 0, m, 0, tiles);
  else
    dot_tile_product<D>(args, 0, m, 0, tiles);
}

// Repacks `count` <= 64 rows as a panel and multiplies it with rows [0, m) of x: out[m, count].
// `ahead` are the `num_ahead` rows that are needed next.
template <class D>
inline void panel_product(const BF16* const* rows, std::int64_t count, const BF16* const* ahead,
                          std::int64_t num_ahead, std::int64_t columns, std::byte* panel,
                          const std::byte* x, std::int64_t x_stride, std::int64_t m, float* out,
                          std::int64_t out_stride) {
  using V = typename D::Vector;
  const std::int64_t tiles = (count + 15) / 16;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t fetched = std::clamp<std::int64_t>(num_ahead - t * 16, 0, 16);
    const BF16* const* later = fetched > 0 ? ahead + t * 16 : ahead;
    interleave_rows<V>(TileRows<V>(rows, t, count).of, columns, panel + t * kTileBytes,
                       tiles * kTileBytes, [&](std::int64_t i) __attribute__((always_inline)) {
                         for (std::int64_t r = 0; r < fetched; ++r)
                           _mm_prefetch(reinterpret_cast<const char*>(later[r] + i), _MM_HINT_T1);
                       });
  }
  packed_product<D>({.x = x,
                     .x_stride = x_stride,
                     .w = panel,
                     .rows = count,
                     .columns = columns,
                     .out = out,
                     .out_stride = out_stride},
                    m, tiles);
}

// Repacks columns [column, column + count), count <= 64, of the values of keys [w0, w1), whole
// pairs, as a panel. Keys outside [u0, u1) become zeros. fetch(key) is called for each pair.
template <class V, class Fetch>
inline void zip_values(const BF16* const* v, std::int64_t w0, std::int64_t w1, std::int64_t u0,
                       std::int64_t u1, std::int64_t column, std::int64_t count, std::byte* panel,
                       const Fetch& fetch) {
  alignas(64) static constexpr std::uint16_t kNothing[kPanelRows] = {};
  const auto* nothing = reinterpret_cast<const BF16*>(kNothing);
  std::byte* line = panel;
  for (std::int64_t key = w0; key < w1; key += 2) {
    const BF16* a = key < u0 ? nothing : v[key] + column;
    const BF16* b = key + 1 < u0 || key + 1 >= u1 ? nothing : v[key + 1] + column;
    fetch(key);
    std::int64_t at = 0;
    for (; at + 32 <= count; at += 32, line += 2 * kTileBytes) V::zip_two(a + at, b + at, line);
    for (; at < count; at += 16, line += kTileBytes)
      V::zip(a + at, b + at, static_cast<int>(std::min<std::int64_t>(16, count - at)), line);
  }
}

template <class V>
inline void round_row(const float* x, std::int64_t n, std::uint16_t* out) {
  for_lanes<V>(n, [&](std::int64_t i, auto lanes) {
    lanes.store(reinterpret_cast<BF16*>(out) + i, lanes.load(x + i));
  });
}

// Probabilities as bfloat16. They are 0 for keys that a row does not see; [w0, w1) are whole pairs.
template <class V>
inline void round_weights(int rows, const float* scores, const std::int64_t* lo,
                          const std::int64_t* hi, std::int64_t w1, std::uint16_t* out) {
  for (int r = 0; r < rows; ++r) {
    std::uint16_t* to = out + r * kChunk;
    // The softmax left zeros where its vectors reach beyond the row's keys.
    const std::int64_t begin = lo[r] / V::kLanes * V::kLanes;
    const std::int64_t end = (hi[r] + V::kLanes - 1) / V::kLanes * V::kLanes;
    std::memset(to, 0, static_cast<std::size_t>(begin) * 2);
    for (std::int64_t i = begin; i < end; i += V::kLanes)
      V::store(reinterpret_cast<BF16*>(to) + i, V::load(scores + r * kChunk + i));
    if (end < w1) std::memset(to + end, 0, static_cast<std::size_t>(w1 - end) * 2);
  }
}

template <class V>
inline bool all_finite(const float* x, std::int64_t n) {
  // x * 0 is 0 unless x is infinite or NaN.
  auto nothing = V::zero();
  for (std::int64_t i = 0; i < n; i += V::kLanes)
    nothing = V::fma(V::load(x + i), V::zero(), nothing);
  return V::sum(nothing) == 0.0f;
}

// Adds the values of a chunk to all rows. The member of `products` handles rows [r0, r1) over keys
// [u0, u1), and reads no other values. All rows run at once. A row is then repeated alone, over its
// own keys, if it got a value that is not finite from a key it does not see.
template <class V, class Products>
inline void accumulate_all(Products& products, int rows, std::int64_t u0, std::int64_t u1,
                           const std::int64_t* lo, const std::int64_t* hi, float* part,
                           std::int64_t width) {
  products.accumulate_rows(0, rows, u0, u1, part, width);
  for (int r = 0; r < rows; ++r) {
    if ((lo[r] == u0 && hi[r] == u1) || lo[r] >= hi[r] || all_finite<V>(part + r * width, width))
      continue;
    std::memset(part + r * width, 0, sizeof(float) * static_cast<std::size_t>(width));
    products.accumulate_rows(r, r + 1, lo[r], hi[r], part, width);
  }
}

// Attention over rows of a bfloat16 plane: a chunk's keys and values are repacked 64 at a time.
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
  void gather(std::int64_t c, std::int64_t u0, std::int64_t u1, std::int64_t) {
    if (gather_codes<V, BF16>(t, c, u0, u1, k, v)) return;
    for (std::int64_t i = u0; i < u1; ++i) {
      const std::int64_t slot = t.keys.slot(c + i);
      k[i] = static_cast<const BF16*>(t.k) + slot * t.k_stride;
      v[i] = static_cast<const BF16*>(t.v) + slot * t.v_stride;
    }
  }
  void score(std::int64_t u0, std::int64_t u1, float* scores) {
    fetch_rows<_MM_HINT_T1>(k + u0, std::min(kRowsAhead, u1 - u0), t.d);
    for (std::int64_t u = u0; u < u1; u += kPanelRows) {
      const std::int64_t count = std::min(kPanelRows, u1 - u), next = std::min(u1, u + kRowsAhead);
      // While keys are multiplied, fetch the values of the same tokens (MLA's are the keys
      // themselves).
      if (t.v != t.k) fetch_rows<_MM_HINT_T1>(v + u, count, t.dv);
      panel_product<D>(k + u, count, k + next, u1 - next, t.d, panel,
                       reinterpret_cast<const std::byte*>(queries), t.d * 2, t.rows, scores + u,
                       kChunk);
    }
  }
  NothingToFetch fetch_values(std::int64_t) const { return {}; }
  void accumulate(std::int64_t u0, std::int64_t u1, const float* scores, const std::int64_t* lo,
                  const std::int64_t* hi, float* part, std::int64_t width) {
    round_weights<V>(t.rows, scores, lo, hi, (u1 + 1) / 2 * 2, weights);
    accumulate_all<V>(*this, t.rows, u0, u1, lo, hi, part, width);
  }
  void accumulate_rows(int r0, int r1, std::int64_t u0, std::int64_t u1, float* part,
                       std::int64_t width) {
    // Whole pairs (AMX: whole steps), counted from the chunk's first key.
    constexpr std::int64_t kStep = D::kStepPairs > 0 ? 2 * D::kStepPairs : 2;
    const std::int64_t w0 = u0 / kStep * kStep, w1 = (u1 + 1) / 2 * 2;
    for (std::int64_t column = 0; column < t.dv; column += kPanelRows) {
      const std::int64_t count = std::min(kPanelRows, t.dv - column), tiles = (count + 15) / 16;
      zip_values<V>(v, w0, w1, u0, u1, column, count, panel, [](std::int64_t) {});
      packed_product<D>({.x = reinterpret_cast<const std::byte*>(weights + r0 * kChunk + w0),
                         .x_stride = kChunk * 2,
                         .w = panel,
                         .rows = count,
                         .columns = w1 - w0,
                         .out = part + r0 * width + column,
                         .out_stride = width},
                        r1 - r0, tiles);
    }
  }
};

// Queries of the indexer, a few heads of a few tokens at a time, and the accumulation of their dot
// products into scores.
template <class D>
struct IndexQueries {
  using V = typename D::Vector;
  static constexpr std::int64_t kRows = 128;
  const IndexScoreArgs& a;
  std::int64_t token = 0, head = 0, tokens = 0, heads = 0;  // position within the arguments' rows
  alignas(64) std::uint16_t queries[kRows * ops::kMaxKeyDim];
  alignas(64) float dots[kRows * kPageSize];

  explicit IndexQueries(const IndexScoreArgs& args) : a(args) {}
  std::int64_t rows() const { return tokens * heads; }
  void round() {
    for (std::int64_t r = 0; r < rows(); ++r)
      round_row<V>(a.q + (token + r / heads) * a.q_stride + (head + r % heads) * a.q_head_stride,
                   a.d, queries + r * a.d);
  }
  void add_dots(std::int64_t begin, std::int64_t count) {
    for (std::int64_t i = 0; i < tokens; ++i)
      add_index_heads<V>(dots + i * heads * kPageSize,
                         a.weights + (token + i) * a.weights_stride + head, heads, count, head == 0,
                         a.scores + (token + i) * a.scores_stride + begin);
  }
};

// Repacks the keys of a page, which lie as rows, when it is reached.
template <class D>
struct PackedIndexKeys {
  const IndexScoreArgs& a;
  alignas(64) std::byte panel[kPanelRows * ops::kMaxKeyDim * 2];

  explicit PackedIndexKeys(const IndexScoreArgs& args) : a(args) {}
  void product(IndexQueries<D>& q, std::int64_t begin, std::int64_t count, std::int64_t) {
    const BF16* k[2 * kPageSize];  // this page and the next one
    const std::int64_t known = std::min<std::int64_t>(2 * kPageSize, a.end - begin);
    for (std::int64_t i = 0; i < known; ++i)
      k[i] = static_cast<const BF16*>(a.k) + a.keys.slot(begin + i) * a.k_stride;
    panel_product<D>(k, count, k + count, known - count, a.d, panel,
                     reinterpret_cast<const std::byte*>(q.queries), a.d * 2, q.rows(), q.dots,
                     kPageSize);
  }
};

// Scores page by page. keys.product(q, begin, count, next) fills q.dots with the dot products of a
// page's keys. `next` is the first key that is read after it, or a.end.
template <class D, class Keys>
void index_scores_over(const IndexScoreArgs& a, Keys&& keys) {
  IndexQueries<D> q(a);
  const std::int64_t heads = std::min(a.heads, q.kRows),
                     tokens = std::max<std::int64_t>(1, q.kRows / heads);
  const std::int64_t pages =
      a.order != nullptr ? a.num_ordered : (a.end - a.begin + kPageSize - 1) / kPageSize;
  const auto begin_of = [&](std::int64_t i) {
    return a.order == nullptr ? a.begin + i * kPageSize : a.order[i] * kPageSize;
  };
  for (q.token = 0; q.token < a.tokens; q.token += tokens)
    for (q.head = 0; q.head < a.heads; q.head += heads) {
      q.tokens = std::min(tokens, a.tokens - q.token);
      q.heads = std::min(heads, a.heads - q.head);
      q.round();
      for (std::int64_t i = 0; i < pages; ++i) {
        const std::int64_t begin = begin_of(i),
                           count = std::min<std::int64_t>(kPageSize, a.end - begin);
        keys.product(q, begin, count, i + 1 < pages ? begin_of(i + 1) : a.end);
        q.add_dots(begin, count);
      }
    }
}

}  // namespace sluice::cpu
