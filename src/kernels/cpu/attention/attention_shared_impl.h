// The phases of SharedTile (kernel_table.h) over bfloat16 rows: MLA of few tokens with all threads.
// The arithmetic equals that of attention_bf16_impl.h, element for element. Included by isa_*.cpp
// after it.
//
// Fetching a scattered row takes longer than multiplying it, and a core with 24 lines in flight
// reads about 15 GB/s. So each thread prefetches its rows, one line after another, all the time
// that it multiplies. It starts before it has a query.
//
// 1. kCastQueries: prefetch the first keys, round the queries to bfloat16
// 2. kScores: a range of keys per thread
// 3. kSoftmax: a range of heads per thread
// 4. kValues: a range of columns per thread
#pragma once

namespace sluice::cpu {

// The range of 0..n that belongs to `part` of `parts`.
template <class D>
struct PartOf {
  std::int64_t begin, end;
  PartOf(std::int64_t n, int part, int parts)
      : begin(n * part / parts), end(n * (part + 1) / parts) {}
};

// Inline assembly, because g++ 12 removes a loop that contains nothing but _mm_prefetch.
template <class D>
inline void fetch_line(const void* line) {
  asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(line)));
}

// Enumerates the cache lines of some rows, two rows at a time: the address of one row is looked up
// while the lines of the other are fetched.
template <class D>
struct RowLines {
  const BF16* const* row;
  std::int64_t rows;   // rows left, the current two included
  std::int64_t lines;  // lines of a row
  std::int64_t at = 0;

  RowLines(const BF16* const* first, std::int64_t count, std::int64_t columns)
      : row(first), rows(count), lines((columns + 31) / 32) {}
  bool any() const { return rows > 0; }
  // Calls use(line) for the next `pairs` pairs of lines, or fewer if the rows end.
  template <class Use>
  void take(std::int64_t pairs, const Use& use) {
    while (pairs > 0 && rows > 0) {
      const auto* first = reinterpret_cast<const std::byte*>(row[0]) + at * kTileBytes;
      const auto* second =
          reinterpret_cast<const std::byte*>(row[rows > 1 ? 1 : 0]) + at * kTileBytes;
      const std::int64_t some = std::min(pairs, lines - at);
      for (std::int64_t i = 0; i < some; ++i) {
        use(first + i * kTileBytes);
        use(second + i * kTileBytes);
      }
      pairs -= some;
      at += some;
      if (at < lines) return;
      at = 0;
      row += 2;
      rows -= 2;
    }
  }
  void fetch(std::int64_t pairs) { take(pairs, fetch_line<D>); }
};

// Block sizes for repacking: 128 columns of 64 keys, or 128 keys of 64 columns. A block is 16 KiB,
// so it is still in L1 when it is multiplied.
inline constexpr std::int64_t kColumnsAtOnce = 128;
inline constexpr std::int64_t kKeysAtOnce = 128;

// Rows of the first tile that are prefetched while queries are rounded.
inline constexpr std::int64_t kFirstRows = 16;
// Pairs of lines that are prefetched with each 16 rows that are repacked. The GEMM prefetches one
// line with each pair of columns.
inline constexpr std::int64_t kPairsWithTile = 4;

// 1. Prefetch the first keys, then round the queries of this thread's heads to bfloat16.
template <class D>
inline void round_queries(SharedTile& t, int part, int parts) {
  using V = typename D::Vector;
  const PartOf<D> tiles((t.num_keys + 15) / 16, part, parts), heads(t.heads, part, parts);
  const std::int64_t d = t.latent + t.rope, first = tiles.begin * 16;
  RowLines<D>(t.keys + first,
              std::min({kFirstRows, t.num_keys - first, (tiles.end - tiles.begin) * 16}), d)
      .fetch(kFirstRows * d);
  for (std::int64_t h = heads.begin; h < heads.end; ++h) {
    round_row<V>(t.q_latent[h], t.latent, t.queries + h * d);
    round_row<V>(t.q_rope[h], t.rope, t.queries + h * d + t.latent);
  }
}

// Blocking of out[heads, count] = x w^T. `rows` [heads, ..] are `stride` elements from one another;
// `panel` has `count` weight rows. multiply(block, rows, tiles) is called per block and fills in
// the rest of the block's arguments.
template <class D, class Bits, class Multiply>
inline void for_each_block(std::int64_t heads, const Bits* rows, std::int64_t stride,
                           const std::byte* panel, std::int64_t count, float* out,
                           std::int64_t out_stride, const Multiply& multiply) {
  const std::int64_t tiles = (count + 15) / 16, groups = (heads + D::kMaxRows - 1) / D::kMaxRows;
  for (std::int64_t tile = 0; tile < tiles; tile += D::max_tiles(heads)) {
    const auto wide = static_cast<int>(std::min<std::int64_t>(D::max_tiles(heads), tiles - tile));
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t m = heads * g / groups, some = heads * (g + 1) / groups - m;
      const std::byte* x[D::kMaxRows];
      for (std::int64_t i = 0; i < some; ++i)
        x[i] = reinterpret_cast<const std::byte*>(rows + (m + i) * stride);
      TileBlock b;
      b.x = x;
      b.w = panel + tile * kTileBytes;
      b.w_step = tiles * kTileBytes;
      b.out = out + m * out_stride + tile * 16;
      b.out_stride = out_stride;
      b.last_lanes = static_cast<int>(std::min<std::int64_t>(16, count - (tile + wide - 1) * 16));
      multiply(b, static_cast<int>(some), wide);
    }
  }
}

// Scores: out[heads, count] (+)= columns [first, last) of the queries times those of `count` <= 64
// keys, which are repacked in `panel`.
template <class D>
inline void shared_product(const SharedTile& t, std::int64_t first, std::int64_t last,
                           const std::byte* panel, std::int64_t count, float* out,
                           RowLines<D>& ahead) {
  const std::int64_t d = t.latent + t.rope, whole = (last - first) / 2;
  const std::byte* listed[kColumnsAtOnce / 2];
  for_each_block<D>(t.heads, t.queries + first, d, panel, count, out, kChunk,
                    [&](TileBlock& b, int some, int wide) __attribute__((always_inline)) {
                      b.pair_end = whole;
                      b.odd_column = (last - first) % 2 != 0;
                      b.resume = first > 0;
                      if (ahead.any() && whole >= 2) {
                        // If the rows end before the GEMM does, the last line stands for the
                        // missing ones.
                        const std::byte** to = listed;
                        ahead.take(whole / 2, [&](const std::byte* line)
                                                  __attribute__((always_inline)) { *to++ = line; });
                        std::fill(to, listed + whole, to[-1]);
                        b.listed = listed;
                        tile_block_any<D, -1>(some, wide, b);
                      } else {
                        tile_block_any<D, 0>(some, wide, b);
                      }
                    });
}

// 2. Repack and multiply this thread's keys, a block of columns at a time.
template <class D>
inline void score_keys(SharedTile& t, int part, int parts) {
  using V = typename D::Vector;
  alignas(64) std::byte panel[kPanelRows * kColumnsAtOnce * 2];
  const PartOf<D> tiles((t.num_keys + 15) / 16, part, parts);
  const std::int64_t begin = tiles.begin * 16, end = std::min(t.num_keys, tiles.end * 16),
                     d = t.latent + t.rope;
  const std::int64_t fetched = t.chunk == 0 ? std::min(end, begin + kFirstRows) : begin;
  RowLines<D> ahead(t.keys + fetched, std::max<std::int64_t>(0, end - fetched), d);
  // The first panel is narrow, so that the GEMM, which prefetches most, starts sooner.
  for (std::int64_t u = begin, some = kPanelRows / 2; u < end; u += some, some = kPanelRows) {
    some = std::min(some, end - u);
    const std::int64_t wide = (some + 15) / 16;
    for (std::int64_t first = 0; first < d; first += kColumnsAtOnce) {
      const std::int64_t last = std::min(d, first + kColumnsAtOnce);
      for (std::int64_t tile = 0; tile < wide; ++tile) {
        TileRows<V> rows(t.keys + u, tile, some);
        for (const BF16*& row : rows.of) row += first;
        interleave_rows<V>(rows.of, last - first, panel + tile * kTileBytes, wide * kTileBytes,
                           [&](std::int64_t) { ahead.fetch(kPairsWithTile); });
      }
      shared_product<D>(t, first, last, panel, some, t.scores + u, ahead);
    }
  }
}

// 3. Softmax of this thread's heads, and the online softmax factors of the chunk.
template <class D>
inline void softmax_heads(SharedTile& t, int part, int parts) {
  using V = typename D::Vector;
  const PartOf<D> columns((t.latent + 15) / 16, part, parts), heads(t.heads, part, parts);
  // Prefetch the first values of phase 4. Other threads had most of these rows in phase 2.
  for (std::int64_t u = 0; u < t.num_keys; ++u)
    for (std::int64_t c = columns.begin * 16;
         c < std::min(t.latent, std::min(columns.begin + 4, columns.end) * 16); c += 32)
      fetch_line<D>(t.keys[u] + c);
  NothingToFetch nothing;
  for (std::int64_t h = heads.begin; h < heads.end; ++h) {
    float* s = t.scores + h * kChunk;
    float top, sum;
    softmax<V>(s, 0, t.num_keys, t.scale, top, sum, nothing);
    const std::int64_t lo = 0;
    round_weights<V>(1, s, &lo, &t.num_keys, (t.num_keys + 1) / 2 * 2, t.weights + h * kChunk);
    if (t.chunk == 0) {
      t.max[h] = top;
      t.sum[h] = sum;
      continue;
    }
    // Rescale factors of the old output and of this chunk's.
    const float highest = std::max(t.max[h], top);
    t.keep[h] = exp_one<V>(t.max[h] - highest);
    t.merge[h] = exp_one<V>(top - highest);
    t.sum[h] = t.sum[h] * t.keep[h] + sum * t.merge[h];
    t.max[h] = highest;
  }
}

// sums[heads, count] (+)= probabilities of `pairs` pairs of keys from key u on, times their values,
// which are repacked in `panel`.
template <class D>
inline void accumulate_panel(const SharedTile& t, std::int64_t u, std::int64_t pairs,
                             const std::byte* panel, std::int64_t count, float* sums) {
  for_each_block<D>(t.heads, t.weights + u, kChunk, panel, count, sums, kPanelRows,
                    [&](TileBlock& b, int some, int wide) __attribute__((always_inline)) {
                      b.pair_end = pairs;
                      b.resume = u > 0;
                      tile_block_any<D, 0>(some, wide, b);
                    });
}

// 4. Values of this thread's columns: repack, multiply, then merge with earlier chunks.
template <class D>
inline void accumulate_columns(SharedTile& t, int part, int parts) {
  using V = typename D::Vector;
  alignas(64) std::byte panel[kKeysAtOnce * kPanelRows * 2];
  alignas(64) float sums[kTileQueries * kPanelRows];
  const PartOf<D> tiles((t.latent + 15) / 16, part, parts);
  const std::int64_t end = std::min(t.latent, tiles.end * 16), width = (t.latent + 15) / 16 * 16;
  const bool last = t.chunk + kChunk >= t.length;
  for (std::int64_t column = tiles.begin * 16; column < end; column += kPanelRows) {
    const std::int64_t count = std::min(kPanelRows, end - column);
    const std::int64_t later = column + kPanelRows < end ? column + kPanelRows : column;
    for (std::int64_t u = 0; u < t.num_keys; u += kKeysAtOnce) {
      const std::int64_t some = std::min(kKeysAtOnce, t.num_keys - u), pairs = (some + 1) / 2;
      zip_values<V>(t.keys + u, 0, 2 * pairs, 0, some, column, count, panel,
                    [&](std::int64_t key) __attribute__((always_inline)) {
                      if (later == column) return;
                      for (const std::int64_t at : {u + key, std::min(u + key + 1, t.num_keys - 1)})
                        for (const std::int64_t i : {0, 32}) fetch_line<D>(t.keys[at] + later + i);
                    });
      accumulate_panel<D>(t, u, pairs, panel, count, sums);
    }
    // The last chunk also normalises and stores the output.
    for (int h = 0; h < t.heads; ++h) {
      float* total = t.total + h * width + column;
      const float* from = sums + h * kPanelRows;
      const float inverse = 1.0f / t.sum[h];
      for_lanes<V>(count, [&](std::int64_t i, auto lanes) {
        auto x = lanes.load(from + i);
        if (t.chunk > 0)
          x = V::fma(x, V::set1(t.merge[h]), V::mul(lanes.load(total + i), V::set1(t.keep[h])));
        if (last)
          lanes.store(t.out[h] + column + i, V::mul(x, V::set1(inverse)));
        else
          lanes.store(total + i, x);
      });
    }
  }
}

template <class D>
void attend_shared(SharedTile& t, SharedPhase phase, int part, int parts) {
  switch (phase) {
    case SharedPhase::kCastQueries:
      return round_queries<D>(t, part, parts);
    case SharedPhase::kScores:
      return score_keys<D>(t, part, parts);
    case SharedPhase::kSoftmax:
      return softmax_heads<D>(t, part, parts);
    case SharedPhase::kValues:
      return accumulate_columns<D>(t, part, parts);
  }
}

}  // namespace sluice::cpu
