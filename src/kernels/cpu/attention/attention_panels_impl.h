// Attention and the indexer's scores over bfloat16 planes in panels (kv_plane.h). The GEMM tiles of
// tiles_impl.h read panels in place. The arithmetic equals that of attention_bf16_impl.h, element
// for element. Included by isa_*.cpp after it.
//
// A head's keys of a page take 128 dim bytes, and so do its values. While one panel is multiplied,
// the next one is prefetched line by line, so that memory is read as one stream.
#pragma once

namespace sluice::cpu {

// Bytes of two columns (one line of a key panel) of a page.
inline constexpr std::int64_t kPageLine = kPageSize * 4;
inline constexpr std::int64_t kChunkPages = kChunk / kPageSize;

// A panel, and how many of its bytes are worth prefetching.
struct Panel {
  const std::byte* at = nullptr;
  std::int64_t bytes = 0;

  // With few keys only one cache line in four of a page is used. The hardware prefetcher follows
  // such strides, so nothing is prefetched here.
  static Panel keys(const void* at, std::int64_t count, std::int64_t dim) {
    return {static_cast<const std::byte*>(at), count > kPageSize / 2 ? kPageLine * dim / 2 : 0};
  }
  static Panel values(const void* at, std::int64_t count, std::int64_t dim) {
    return {static_cast<const std::byte*>(at), (std::min<std::int64_t>(kPageSize, count) + 1) / 2 *
                                                   std::min(ops::kValueColumns, dim) * 4};
  }
};

// Prefetch distance into L2 of a stream of panels, in bytes. Zen 4 reaches most of its memory
// bandwidth at 2 KiB, Zen 5 at 4 KiB, which is also the GEMV distance on both.
inline std::int64_t panel_ahead() {
  return first_level_holds_fetches() ? kAheadOneRow : 2048;
}

// One GEMM of attention: out[rows, 16 tiles] (+)= x w^T over pairs [begin, end) of x and w.
template <class D>
struct PanelBlock {
  const std::byte* w = nullptr;  // pair 0 of the first tile
  std::int64_t w_step = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool resume = false;
  const std::byte* x = nullptr;  // pair 0 of row 0
  std::int64_t x_stride = 0;     // bytes
  std::int64_t rows = 0;
  std::int64_t tiles = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  Panel next = {};  // the panel that is read after this one

  void multiply() {
    if (begin >= end) return;
    // A few rows wait for memory only: read panel after panel as one stream. With many rows, each
    // group of rows prefetches a part of the next panel.
    if (rows <= D::kMaxRows && tiles <= D::max_tiles(rows) && w_step == tiles * kTileBytes)
      return stream();
    // Lines per pair depend on how many passes share the next panel.
    const std::int64_t groups = (rows + D::kMaxRows - 1) / D::kMaxRows;
    Panel left = next;
    for (std::int64_t tile = 0; tile < tiles; tile += D::max_tiles(rows)) {
      const auto count = static_cast<int>(std::min<std::int64_t>(D::max_tiles(rows), tiles - tile));
      for (std::int64_t g = 0; g < groups; ++g) {
        const std::int64_t m = rows * g / groups, some = rows * (g + 1) / groups - m;
        const int lines = left.bytes <= 0 ? 0 : groups > 3 ? 1 : groups > 1 || count < 4 ? 2 : 4;
        some_rows(m, static_cast<int>(some), tile, count, lines, left.at, begin, end);
        left.at += lines * kTileBytes * (end - begin);
        left.bytes -= lines * kTileBytes * (end - begin);
      }
    }
  }

 private:
  // One pass over the panel. If the next panel does not follow in memory, the last part of the pass
  // prefetches the beginning of that panel instead of the bytes behind this one.
  void stream() {
    const auto all = static_cast<int>(rows), count = static_cast<int>(tiles);
    const std::byte* from = w + begin * w_step;
    // The stream continues into the next panel.
    const bool goes_on = next.at == w + end * w_step;
    const std::int64_t bytes_ahead = panel_ahead(),
                       cut = goes_on ? end : std::max(begin, end - bytes_ahead / w_step);
    if (begin < cut) some_rows(0, all, 0, count, count, from + bytes_ahead, begin, cut);
    if (cut == end) return;
    PanelBlock rest = *this;
    rest.resume = resume || begin < cut;
    rest.some_rows(0, all, 0, count, next.bytes > 0 ? count : 0, next.at, cut, end);
  }

  // Rows [m, m + some) with `count` tiles. `lines` lines from `ahead` on are prefetched with each
  // pair.
  void some_rows(std::int64_t m, int some, std::int64_t tile, int count, int lines,
                 const std::byte* ahead, std::int64_t first, std::int64_t last) const {
    const std::byte* row[D::kMaxRows];
    for (std::int64_t i = 0; i < some; ++i) row[i] = x + (m + i) * x_stride;
    TileBlock b;
    b.x = row;
    b.w = w + tile * kTileBytes;
    b.w_step = w_step;
    b.pair_begin = first;
    b.pair_end = last;
    b.resume = resume;
    b.ahead = ahead;
    b.out = out + m * out_stride + tile * 16;
    b.out_stride = out_stride;
    if (lines >= 4)
      tile_block_any<D, 4>(some, count, b);
    else if (lines >= 2)
      tile_block_any<D, 2>(some, count, b);
    else if (lines == 1)
      tile_block_any<D, 1>(some, count, b);
    else
      tile_block_any<D, 0>(some, count, b);
  }
};

// Functor that prefetches the beginning of a memory range, a few lines per call.
struct LinesToFetch {
  static constexpr int kLines = 4;
  const std::byte* at;
  const std::byte* end;

  void operator()() {
    if (at >= end) return;
    for (int i = 0; i < kLines; ++i)
      _mm_prefetch(reinterpret_cast<const char*>(at + i * kTileBytes), _MM_HINT_T1);
    at += kLines * kTileBytes;
  }
};

// Attention over panels. Row i of the tile belongs to KV head i / (rows / kv_heads). Pages are read
// one after the other, and within a page the heads in memory order: a core reads pieces of 64 KiB
// half as fast again as the 16 KiB pieces of a single head.
template <class D>
struct PanelProducts {
  using V = typename D::Vector;
  const AttendTile& t;
  const std::int64_t group;  // query rows of a KV head
  // First head's panels of the chunk's pages. The entry after the last page names what is read
  // next: for keys the first values, for values whatever follows the chunk.
  Panel k[kChunkPages + 1];
  Panel v[kChunkPages + 1];
  alignas(64) std::uint16_t queries[kTileQueries * ops::kMaxKeyDim];
  alignas(64) std::uint16_t weights[kTileQueries * kChunk];

  explicit PanelProducts(const AttendTile& tile) : t(tile), group(tile.rows / tile.kv_heads) {
    for (int r = 0; r < t.rows; ++r) round_row<V>(t.q[r], t.d, queries + r * t.d);
  }
  void gather(std::int64_t c, std::int64_t u0, std::int64_t u1, std::int64_t last) {
    const std::int32_t* pages = t.keys.pages + c / kPageSize;
    const std::int64_t first = u0 / kPageSize, end = (u1 + kPageSize - 1) / kPageSize;
    const auto keys = [&](std::int64_t p, std::int64_t count) {
      return Panel::keys(static_cast<const BF16*>(t.k) + pages[p] * t.k_stride, count, t.d);
    };
    // Panels of the chunk's pages.
    for (std::int64_t p = first; p < end; ++p) {
      const std::int64_t count = u1 - p * kPageSize;
      k[p] = keys(p, count);
      v[p] = Panel::values(static_cast<const BF16*>(t.v) + pages[p] * t.v_stride, count, t.dv);
    }
    k[end] = v[first];
    v[end] = c + u1 < last ? keys(end, last - c - u1) : Panel::keys(t.next, t.next_keys, t.d);
  }
  void score(std::int64_t u0, std::int64_t u1, float* scores) {
    for (std::int64_t p = u0 / kPageSize; p * kPageSize < u1; ++p) {
      const std::int64_t at = p * kPageSize;
      // Tiles of 16 keys that some row sees.
      const std::int64_t first = std::max<std::int64_t>(0, u0 - at) / 16;
      const std::int64_t end = (std::min<std::int64_t>(kPageSize, u1 - at) + 15) / 16;
      for (std::int64_t h = 0; h < t.kv_heads; ++h) {
        const std::byte* panel = k[p].at + h * kPageLine * t.d / 2;
        const Panel next =
            h + 1 < t.kv_heads ? Panel{panel + kPageLine * t.d / 2, k[p].bytes} : k[p + 1];
        PanelBlock<D>{.w = panel + first * kTileBytes,
                      .w_step = kPageLine,
                      .begin = 0,
                      .end = t.d / 2,
                      .x = reinterpret_cast<const std::byte*>(queries + h * group * t.d),
                      .x_stride = t.d * 2,
                      .rows = group,
                      .tiles = end - first,
                      .out = scores + h * group * kChunk + at + first * 16,
                      .out_stride = kChunk,
                      .next = next}
            .multiply();
      }
    }
  }
  LinesToFetch fetch_values(std::int64_t u0) const {
    // All heads of the first page; if the page is not full, only its first head.
    const Panel& first = v[u0 / kPageSize];
    const bool full = first.bytes == kPageSize / 2 * std::min(ops::kValueColumns, t.dv) * 4;
    return {first.at, first.at + (full ? t.kv_heads * kPageSize * t.dv * 2 : first.bytes)};
  }
  void accumulate(std::int64_t u0, std::int64_t u1, const float* scores, const std::int64_t* lo,
                  const std::int64_t* hi, float* part, std::int64_t width) {
    round_weights<V>(t.rows, scores, lo, hi, (u1 + 1) / 2 * 2, weights);
    accumulate_all<V>(*this, t.rows, u0, u1, lo, hi, part, width);
  }
  void accumulate_rows(int r0, int r1, std::int64_t u0, std::int64_t u1, float* part,
                       std::int64_t width) {
    // Common arguments; each call of add() fills in the rest.
    PanelBlock<D> b = {.x_stride = kChunk * 2, .out_stride = width};
    // Adds pairs [begin, end) of the chunk's keys. `first` is the first pair of their page.
    // place(head, column) is the address that pair `first` has, or would have. next(head, column)
    // is the panel that is read after the one at (head, column).
    const auto add = [&](std::int64_t first, std::int64_t begin, std::int64_t end,
                         const auto& place, const auto& next) {
      for (std::int64_t h = r0 / group; h * group < r1; ++h)
        for (std::int64_t column = 0; column < t.dv; column += ops::kValueColumns) {
          const std::int64_t row = std::max<std::int64_t>(r0, h * group),
                             columns = std::min(ops::kValueColumns, t.dv - column);
          b.rows = std::min<std::int64_t>(r1, (h + 1) * group) - row;
          b.tiles = columns / 16;
          b.w = place(h, column);
          b.w_step = columns * 4;
          b.x = reinterpret_cast<const std::byte*>(weights + row * kChunk + 2 * first);
          b.begin = begin - first;
          b.end = end - first;
          b.out = part + row * width + column;
          b.next = next(h, column);
          b.multiply();
        }
      b.resume = true;
    };
    const auto panel = [&](std::int64_t page, std::int64_t h, std::int64_t column) {
      return v[page].at + (h * t.dv + column) * kPageSize * 2;
    };
    // A pair with only one visible key: a masked copy, in which the other key's values are zero.
    alignas(64) std::uint32_t line[ops::kValueColumns];
    // Clear the half of each pair that belongs to the other key.
    const auto half_pair = [&](std::int64_t key) {
      const auto masked = [&](std::int64_t h, std::int64_t column) {
        const std::int64_t columns = std::min(ops::kValueColumns, t.dv - column);
        const std::byte* from =
            panel(key / kPageSize, h, column) + key % kPageSize / 2 * columns * 4;
        for (std::int64_t i = 0; i < columns; ++i) {
          std::uint32_t pair;
          std::memcpy(&pair, from + i * 4, sizeof pair);
          line[i] = pair & (key % 2 == 0 ? 0x0000FFFFu : 0xFFFF0000u);
        }
        return reinterpret_cast<const std::byte*>(line);
      };
      add(key / 2, key / 2, key / 2 + 1, masked,
          [](std::int64_t, std::int64_t) { return Panel{}; });
    };
    // Odd first key, whole pairs page by page, odd last key.
    if (u0 % 2 != 0) half_pair(u0++);
    const std::int64_t whole = u1 / 2 * 2;
    for (std::int64_t key = u0; key < whole;) {
      const std::int64_t page = key / kPageSize, first = page * kPageSize;
      const std::int64_t end = std::min(whole, first + kPageSize);
      add(
          first / 2, key / 2, end / 2,
          [&](std::int64_t h, std::int64_t column) { return panel(page, h, column); },
          [&](std::int64_t h, std::int64_t column) {
            const bool more = column + ops::kValueColumns < t.dv;
            if (!more && h + 1 == t.kv_heads) return v[page + 1];
            return Panel{more ? panel(page, h, column + ops::kValueColumns) : panel(page, h + 1, 0),
                         v[page].bytes};
          });
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

// Index keys of panels with one head, read in place.
template <class D>
struct PanelIndexKeys {
  const IndexScoreArgs& a;

  const std::byte* panel(std::int64_t key) const {
    return reinterpret_cast<const std::byte*>(static_cast<const BF16*>(a.k) +
                                              a.keys.pages[key / kPageSize] * a.k_stride);
  }
  void product(IndexQueries<D>& q, std::int64_t begin, std::int64_t count, std::int64_t next) {
    PanelBlock<D>{.w = panel(begin),
                  .w_step = kPageLine,
                  .begin = 0,
                  .end = a.d / 2,
                  .x = reinterpret_cast<const std::byte*>(q.queries),
                  .x_stride = a.d * 2,
                  .rows = q.rows(),
                  .tiles = (count + 15) / 16,
                  .out = q.dots,
                  .out_stride = kPageSize,
                  .next = next < a.end ? Panel{panel(next), kPageLine * a.d / 2} : Panel{}}
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
