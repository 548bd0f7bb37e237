// Attention and the indexer's scores over bfloat16 planes in panels (kv_plane.h): the tiles of tiles_impl.h multiply them
// as they lie. The arithmetic is that of attention_bf16_impl.h, element for element. Included by isa_*.cpp after it.
//
// A head's keys and values of a page are 128 dim bytes each. While one panel is multiplied the next one that will be
// needed, which lies elsewhere, is fetched line by line: the processor sees a stream and runs ahead of it.
#pragma once

namespace sluice::cpu {

inline constexpr std::int64_t kPageLine = ops::kPageTokens * 4;  // bytes of two columns of a page of keys
inline constexpr std::int64_t kChunkPages = kChunk / ops::kPageTokens;

// out[rows, 16 tiles] += or = x w^T over pairs [begin, end) of x and w; `ahead` moves on by what was fetched of it.
template <class D>
struct PanelBlock {
  const std::byte* w = nullptr;  // the first tile's pair 0
  std::int64_t w_step = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool resume = false;
  const std::byte* x = nullptr;  // row 0, pair 0
  std::int64_t x_stride = 0;     // bytes
  std::int64_t rows = 0;
  std::int64_t tiles = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  const std::byte* ahead = nullptr;
  std::int64_t ahead_bytes = 0;  // that are left of it

  void multiply() {
    if (begin >= end) return;
    const std::int64_t groups = (rows + D::kMaxRows - 1) / D::kMaxRows;
    for (std::int64_t tile = 0; tile < tiles; tile += D::kMaxTiles) {
      const auto count = static_cast<int>(std::min<std::int64_t>(D::kMaxTiles, tiles - tile));
      TileBlock b;
      b.w = w + tile * kTileBytes;
      b.w_step = w_step;
      b.pair_begin = begin;
      b.pair_end = end;
      b.resume = resume;
      b.out_stride = out_stride;
      for (std::int64_t g = 0; g < groups; ++g) {
        const std::int64_t m = rows * g / groups, some = rows * (g + 1) / groups - m;
        const std::byte* row[D::kMaxRows];
        for (std::int64_t i = 0; i < some; ++i) row[i] = x + (m + i) * x_stride;
        b.x = row;
        b.out = out + m * out_stride + tile * 16;
        b.ahead = ahead;
        const int lines = ahead_bytes <= 0 ? 0 : groups > 3 ? 1 : groups > 1 || count < 4 ? 2 : 4;
        ahead += lines * kTileBytes * (end - begin);
        ahead_bytes -= lines * kTileBytes * (end - begin);
        if (lines == 4)
          tile_block_any<D, 4>(static_cast<int>(some), count, b);
        else if (lines == 2)
          tile_block_any<D, 2>(static_cast<int>(some), count, b);
        else if (lines == 1)
          tile_block_any<D, 1>(static_cast<int>(some), count, b);
        else
          tile_block_any<D, 0>(static_cast<int>(some), count, b);
      }
    }
  }
};

// A panel, and how many of its bytes are worth fetching ahead.
struct Panel {
  const std::byte* at = nullptr;
  std::int64_t bytes = 0;

  // Few keys of a page lie apart, a line in four; the processor follows such steps by itself.
  static Panel keys(const void* at, std::int64_t count, std::int64_t dim) {
    return {static_cast<const std::byte*>(at), count > ops::kPageTokens / 2 ? kPageLine * dim / 2 : 0};
  }
  static Panel values(const void* at, std::int64_t count, std::int64_t dim) {
    return {static_cast<const std::byte*>(at), (std::min(ops::kPageTokens, count) + 1) / 2 * dim * 4};
  }
};

template <class D>
struct PanelProducts {
  using V = typename D::Vector;
  const AttendTile& t;
  // The pages of a chunk; keys end with its first panel of values, values with what is read after the chunk.
  Panel k[kChunkPages + 1];
  Panel v[kChunkPages + 1];
  alignas(64) std::uint16_t queries[kTileQueries * ops::kMaxKeyDim];
  alignas(64) std::uint16_t weights[kTileQueries * kChunk];

  explicit PanelProducts(const AttendTile& tile) : t(tile) {
    for (int r = 0; r < t.rows; ++r) round_row<V>(t.q[r], t.d, queries + r * t.d);
  }
  void gather(std::int64_t c, std::int64_t u0, std::int64_t u1, std::int64_t last) {
    const std::int32_t* pages = t.keys.pages + c / ops::kPageTokens;
    const std::int64_t first = u0 / ops::kPageTokens, end = (u1 + ops::kPageTokens - 1) / ops::kPageTokens;
    const auto keys = [&](std::int64_t p, std::int64_t count) {
      return Panel::keys(static_cast<const BF16*>(t.k) + pages[p] * t.k_stride, count, t.d);
    };
    for (std::int64_t p = first; p < end; ++p) {
      const std::int64_t count = u1 - p * ops::kPageTokens;
      k[p] = keys(p, count);
      v[p] = Panel::values(static_cast<const BF16*>(t.v) + pages[p] * t.v_stride, count, t.dv);
    }
    k[end] = v[first];
    v[end] = c + u1 < last ? keys(end, last - c - u1) : Panel::keys(t.next, t.next_keys, t.d);
  }
  void score(std::int64_t u0, std::int64_t u1, float* scores) {
    for (std::int64_t p = u0 / ops::kPageTokens; p * ops::kPageTokens < u1; ++p) {
      const std::int64_t at = p * ops::kPageTokens;
      const std::int64_t first = std::max<std::int64_t>(0, u0 - at) / 16;
      const std::int64_t end = (std::min(ops::kPageTokens, u1 - at) + 15) / 16;
      PanelBlock<D>{.w = k[p].at + first * kTileBytes,
                    .w_step = kPageLine,
                    .begin = 0,
                    .end = t.d / 2,
                    .x = reinterpret_cast<const std::byte*>(queries),
                    .x_stride = t.d * 2,
                    .rows = t.rows,
                    .tiles = end - first,
                    .out = scores + at + first * 16,
                    .out_stride = kChunk,
                    .ahead = k[p + 1].at,
                    .ahead_bytes = k[p + 1].bytes}
          .multiply();
    }
  }
  void weigh(std::int64_t u0, std::int64_t u1, const float* scores, const std::int64_t* lo, const std::int64_t* hi,
             float* part, std::int64_t width) {
    round_weights<V>(t.rows, scores, lo, hi, (u1 + 1) / 2 * 2, weights);
    weigh_all<V>(*this, t.rows, u0, u1, lo, hi, part, width);
  }
  void weigh_rows(int r0, int r1, std::int64_t u0, std::int64_t u1, float* part, std::int64_t width) {
    PanelBlock<D> b = {.w_step = t.dv * 4,
                       .x_stride = kChunk * 2,
                       .rows = r1 - r0,
                       .tiles = t.dv / 16,
                       .out = part + r0 * width,
                       .out_stride = width};
    const auto* x = reinterpret_cast<const std::byte*>(weights + r0 * kChunk);
    // A pair of which one key is not wanted: that one's values count as zeros, whatever lies there.
    alignas(64) std::uint32_t line[ops::kMaxValueDim];
    const auto half_pair = [&](std::int64_t key) {
      const std::byte* from = v[key / ops::kPageTokens].at + key % ops::kPageTokens / 2 * b.w_step;
      for (std::int64_t i = 0; i < t.dv; ++i) {
        std::uint32_t pair;
        std::memcpy(&pair, from + i * 4, sizeof pair);
        line[i] = pair & (key % 2 == 0 ? 0x0000FFFFu : 0xFFFF0000u);
      }
      b.w = reinterpret_cast<const std::byte*>(line);
      b.x = x + key / 2 * 4;
      b.begin = 0;
      b.end = 1;
      b.ahead_bytes = 0;
      b.multiply();
      b.resume = true;
    };
    if (u0 % 2 != 0) half_pair(u0++);
    const std::int64_t whole = u1 / 2 * 2;
    for (std::int64_t key = u0; key < whole;) {
      const std::int64_t page = key / ops::kPageTokens, first = page * ops::kPageTokens;
      const std::int64_t end = std::min(whole, first + ops::kPageTokens);
      b.w = v[page].at;
      b.x = x + first * 2;
      b.begin = (key - first) / 2;
      b.end = (end - first) / 2;
      b.ahead = v[page + 1].at;
      b.ahead_bytes = v[page + 1].bytes;
      b.multiply();
      b.resume = true;
      key = end;
    }
    if (whole < u1) half_pair(whole);
  }
};

template <class D>
void attend_tile_bf16(const AttendTile& t) {
  if (t.panels) {
    PanelProducts<D> products(t);
    attend_with<typename D::Vector>(t, products);
  } else {
    PackedProducts<D> products(t);
    attend_with<typename D::Vector>(t, products);
  }
}

template <class D>
struct PanelIndexKeys {
  const IndexScoreArgs& a;

  const std::byte* panel(std::int64_t key) const {
    return reinterpret_cast<const std::byte*>(static_cast<const BF16*>(a.k) +
                                              a.keys.pages[key / ops::kPageTokens] * a.k_stride);
  }
  void product(IndexQueries<D>& q, std::int64_t begin, std::int64_t count) {
    PanelBlock<D>{.w = panel(begin),
                  .w_step = kPageLine,
                  .begin = 0,
                  .end = a.d / 2,
                  .x = reinterpret_cast<const std::byte*>(q.queries),
                  .x_stride = a.d * 2,
                  .rows = q.rows(),
                  .tiles = (count + 15) / 16,
                  .out = q.dots,
                  .out_stride = ops::kPageTokens,
                  .ahead = begin + count < a.end ? panel(begin + count) : nullptr,
                  .ahead_bytes = begin + count < a.end ? kPageLine * a.d / 2 : 0}
        .multiply();
  }
};

template <class D>
void index_scores_bf16(const IndexScoreArgs& a) {
  if (a.panels)
    index_scores_over<D>(a, PanelIndexKeys<D>{a});
  else
    index_scores_over<D>(a, PackedIndexKeys<D>(a));
}

}  // namespace sluice::cpu
