// Attention and the indexer's scores over bfloat16 planes in panels (kv_plane.h) on AMX, which
// reads panels in place. Included by isa_amx.cpp after attention_panels_impl.h.
//
// Order of summation (amx.h): a score adds 32 columns at a time, a value 32 keys at a time, counted
// from the chunk's first key. Keys that a row does not see get probability 0, so a row's bits do
// not depend on other rows.
#pragma once

namespace sluice::cpu {
namespace {

inline constexpr std::int64_t kStepKeys = kStepColumns;
inline constexpr std::int64_t kChunkSteps = kChunk / kStepKeys;
inline constexpr std::int64_t kValueTiles = ops::kValueColumns / 16;
inline constexpr int kGroupRows = 2 * kAmxRows;

// Lines of one step. `ahead`, the lines of the next step, is read meanwhile; `further` is
// prefetched from memory. Null: read before, or nothing follows.
struct PanelStep {
  const std::byte* lines;
  const std::byte* ahead;
  const std::byte* further;
};

// The steps of one GEMM with `tiles` tiles of weights.
struct PanelSteps {
  PanelStep step[std::max<std::int64_t>(ops::kMaxKeyDim / kStepColumns + 1, kChunkSteps)];
  std::int64_t count = 0;
  std::int64_t line_step = 0;
  int tiles = 0;

  void add(const std::byte* lines, const std::byte* ahead, const std::byte* further) {
    step[count++] = {lines, ahead, further};
  }
};

// Accumulates all steps in registers of 1 x NT or 2 x NT tiles of C.
template <int kRowTiles, int NT>
void panel_block(RowGroup x, const PanelSteps& w, int at, bool resume, float* out,
                 std::int64_t stride) {
  // Load the sums, or zero the registers that this shape uses.
  float* below = kRowTiles == 2 ? out + x.first * stride : out + 32;
  const std::int64_t bytes = stride * 4;
  if (resume) {
    amx_load<0>(out, bytes);
    if constexpr (NT > 1) amx_load<1>(out + 16, bytes);
    if constexpr (kRowTiles == 2 || NT > 2) amx_load<2>(below, bytes);
    if constexpr (kRowTiles == 2 ? NT > 1 : NT > 3) amx_load<3>(below + 16, bytes);
  } else {
    amx_zero<0>();
    if constexpr (NT > 1) amx_zero<1>();
    if constexpr (kRowTiles == 2 || NT > 2) amx_zero<2>();
    if constexpr (kRowTiles == 2 ? NT > 1 : NT > 3) amx_zero<3>();
  }
  for (std::int64_t i = 0; i < w.count; ++i, x.x += kLine) {
    const PanelStep& step = w.step[i];
    // The first column of tiles touches the next step, for all tiles of it.
    if (step.ahead != nullptr && at == 0)
      steps<kRowTiles, NT, Fetch::kTouch>(x, step.lines, w.line_step, 1, step.ahead, step.further);
    else
      steps<kRowTiles, NT, Fetch::kNothing>(x, step.lines + at * kLine, w.line_step, 1);
  }
  amx_store<0>(out, bytes);
  if constexpr (NT > 1) amx_store<1>(out + 16, bytes);
  if constexpr (kRowTiles == 2 || NT > 2) amx_store<2>(below, bytes);
  if constexpr (kRowTiles == 2 ? NT > 1 : NT > 3) amx_store<3>(below + 16, bytes);
}

// out[rows, 16 tiles] (+)= x w^T. x is bfloat16; all steps are whole.
void panel_times(AmxShapes& shapes, const std::byte* x, std::int64_t x_stride, std::int64_t rows,
                 const PanelSteps& w, bool resume, float* out, std::int64_t stride) {
  // Groups of up to 32 rows: two A registers.
  for (std::int64_t m = 0; m < rows; m += kGroupRows) {
    const auto some = static_cast<int>(std::min<std::int64_t>(kGroupRows, rows - m));
    RowGroup group = {.x = x + m * x_stride, .stride = x_stride, .first = std::min(kAmxRows, some)};
    group.second = some - group.first;
    group.second_at = group.first * x_stride;
    shapes.set({.first = group.first, .second = group.second, .a_bytes = kLine});
    float* to = out + m * stride;
    // More than 16 rows: 2 x 2 register tiles; otherwise 1 x 4.
    if (group.second > 0) {
      for (int at = 0; at < w.tiles; at += 2)
        if (w.tiles - at > 1)
          panel_block<2, 2>(group, w, at, resume, to + at * 16, stride);
        else
          panel_block<2, 1>(group, w, at, resume, to + at * 16, stride);
      continue;
    }
    switch (w.tiles) {
      case 4:
        panel_block<1, 4>(group, w, 0, resume, to, stride);
        break;
      case 3:
        panel_block<1, 3>(group, w, 0, resume, to, stride);
        break;
      case 2:
        panel_block<1, 2>(group, w, 0, resume, to, stride);
        break;
      default:
        panel_block<1, 1>(group, w, 0, resume, to, stride);
        break;
    }
  }
}

inline constexpr std::int64_t kStepBytes = kStepLines * kPageLine;  // four tiles

// bfloat16 query rows, padded with zeros to whole steps, and their GEMM with key panels.
struct PanelQueries {
  std::int64_t d = 0;
  std::int64_t stride = 0;  // elements

  explicit PanelQueries(std::int64_t dim)
      : d(dim), stride((dim + kStepColumns - 1) / kStepColumns * kStepColumns) {}
  template <class V>
  void put(const float* from, std::uint16_t* to) const {
    round_row<V>(from, d, to);
    std::fill(to + d, to + stride, std::uint16_t{0});
  }
  std::int64_t panel_bytes() const { return kPageLine * d / 2; }
  // out[rows, 16 tiles] for `tiles` tiles of a key panel, from tile `first` on. `next` is what is
  // read after the panel: null, or at least a step's bytes.
  void times(AmxShapes& shapes, const std::uint16_t* rows, std::int64_t num_rows,
             const std::byte* panel, std::int64_t first, int tiles, const std::byte* next,
             float* out, std::int64_t out_stride) const {
    const std::int64_t whole = d / kStepColumns;
    PanelSteps w;
    w.line_step = kPageLine;
    w.tiles = tiles;
    const auto step = [&](std::int64_t s) {
      return s < whole         ? panel + s * kStepBytes
             : next == nullptr ? nullptr
                               : next + (s - whole) * kStepBytes;
    };
    const bool goes_on = next == panel + panel_bytes();
    // If `next` follows in memory, prefetch a fixed distance ahead; otherwise two steps ahead.
    for (std::int64_t s = 0; s < whole; ++s) {
      const std::byte *ahead = step(s + 1), *elsewhere = goes_on ? nullptr : step(s + 2);
      w.add(step(s) + first * kLine, ahead,
            ahead == nullptr       ? nullptr
            : elsewhere != nullptr ? elsewhere
                                   : ahead + kFurther);
    }
    alignas(64) std::byte last[kStepBytes];
    // The incomplete last step, padded with zeros.
    if (d % kStepColumns != 0) {
      std::memset(last, 0, sizeof last);
      for (std::int64_t l = 0; l < d % kStepColumns / 2; ++l)
        std::memcpy(last + l * kPageLine,
                    panel + (whole * kStepLines + l) * kPageLine + first * kLine,
                    static_cast<std::size_t>(tiles * kLine));
      w.add(last, nullptr, nullptr);
    }
    panel_times(shapes, reinterpret_cast<const std::byte*>(rows), stride * 2, num_rows, w, false,
                out, out_stride);
  }
};

// Copies the step's lines at `at`, with keys outside [first, last) zeroed: their values may be
// anything, and 0 * inf is NaN.
inline const std::byte* seen_lines(const std::byte* at, std::int64_t line, std::int64_t first,
                                   std::int64_t last, std::byte* to) {
  for (std::int64_t pair = 0; pair < kStepLines; ++pair) {
    const std::uint32_t low = 2 * pair >= first && 2 * pair < last ? 0x0000FFFFu : 0;
    const std::uint32_t high = 2 * pair + 1 >= first && 2 * pair + 1 < last ? 0xFFFF0000u : 0;
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(low | high));
    for (std::int64_t i = 0; i < line; i += kLine)
      _mm512_store_si512(to + pair * line + i,
                         _mm512_and_si512(_mm512_loadu_si512(at + pair * line + i), mask));
  }
  return to;
}

// Attention over panels on AMX. Row i of the tile belongs to KV head i / (rows / kv_heads). Pages
// are read one after the other, and within a page the heads in memory order.
template <class V>
struct AmxProducts {
  static constexpr std::int64_t kPages = kChunk / kPageSize;
  static constexpr std::int64_t kPageSteps = kPageSize / kStepKeys;
  const AttendTile& t;
  const std::int64_t group;  // query rows of a KV head
  const PanelQueries form;
  // Addresses of the chunk's pages. The entry after the last page is what is read next: for keys
  // the first page of values, for values the next chunk's keys.
  const std::byte* k[kPages + 1];
  const std::byte* v[kPages + 1];
  AmxShapes shapes;
  alignas(64) std::uint16_t queries[kTileQueries * (ops::kMaxKeyDim + kStepColumns)];
  alignas(64) std::uint16_t weights[kTileQueries * kChunk];

  explicit AmxProducts(const AttendTile& tile)
      : t(tile), group(tile.rows / tile.kv_heads), form(tile.d) {
    for (int r = 0; r < t.rows; ++r) form.put<V>(t.q[r], queries + r * form.stride);
  }
  void gather(std::int64_t c, std::int64_t u0, std::int64_t u1, std::int64_t last) {
    const std::int32_t* pages = t.keys.pages + c / kPageSize;
    const auto page = [&](const void* plane, std::int64_t stride, std::int64_t p) {
      return reinterpret_cast<const std::byte*>(static_cast<const BF16*>(plane) +
                                                pages[p] * stride);
    };
    const std::int64_t first = u0 / kPageSize, end = (u1 + kPageSize - 1) / kPageSize;
    for (std::int64_t p = first; p < end; ++p) {
      k[p] = page(t.k, t.k_stride, p);
      v[p] = page(t.v, t.v_stride, p);
    }
    // The look-ahead reads a step of four tiles, which pages with few columns do not have.
    const bool wide = t.d * kPageSize * 2 >= kStepBytes && t.dv * kPageSize * 2 >= kStepBytes;
    k[end] = wide ? v[first] : nullptr;
    // t.next is not read: another thread may be writing that page now.
    v[end] = wide && c + u1 < last ? page(t.k, t.k_stride, end) : nullptr;
  }
  void score(std::int64_t u0, std::int64_t u1, float* scores) {
    for (std::int64_t p = u0 / kPageSize; p * kPageSize < u1; ++p) {
      const std::int64_t at = p * kPageSize;
      const std::int64_t first = std::max<std::int64_t>(0, u0 - at) / 16;
      const std::int64_t end = (std::min<std::int64_t>(kPageSize, u1 - at) + 15) / 16;
      // Heads in memory order: the next head's panel follows this one's.
      for (std::int64_t h = 0; h < t.kv_heads; ++h) {
        const std::byte* panel = k[p] + h * form.panel_bytes();
        form.times(shapes, queries + h * group * form.stride, group, panel, first,
                   static_cast<int>(end - first),
                   h + 1 < t.kv_heads ? panel + form.panel_bytes() : k[p + 1],
                   scores + h * group * kChunk + at + first * 16, kChunk);
      }
    }
  }
  NothingToFetch fetch_values(std::int64_t) const { return {}; }
  void accumulate(std::int64_t u0, std::int64_t u1, const float* scores, const std::int64_t* lo,
                  const std::int64_t* hi, float* part, std::int64_t width) {
    round_weights<V>(t.rows, scores, lo, hi, (u1 + kStepKeys - 1) / kStepKeys * kStepKeys, weights);
    accumulate_all<V>(*this, t.rows, u0, u1, lo, hi, part, width);
  }
  // Adds to rows that are zero. Few rows wait for memory, so pages are read in memory order. Many
  // rows keep their sums in registers over the whole chunk.
  void accumulate_rows(int r0, int r1, std::int64_t u0, std::int64_t u1, float* part,
                       std::int64_t width) {
    const std::int64_t begin = u0 / kStepKeys, end = (u1 + kStepKeys - 1) / kStepKeys;
    // Few rows go page by page, many rows chunk by chunk.
    const std::int64_t at_once = group <= kAmxRows ? kPageSteps : kChunkSteps;
    for (std::int64_t s = begin, next; s < end; s = next) {
      next = std::min(end, (s / at_once + 1) * at_once);
      for (std::int64_t h = r0 / group; h * group < r1; ++h)
        for (std::int64_t column = 0; column < t.dv; column += ops::kValueColumns) {
          const std::int64_t row = std::max<std::int64_t>(r0, h * group),
                             rows = std::min<std::int64_t>(r1, (h + 1) * group) - row;
          add_values(h, column, s, next, u0, u1, weights + row * kChunk, rows, s > begin,
                     part + row * width + column, width);
        }
    }
  }

 private:
  // Columns from `column` on of head h: values of steps [first, last) of the chunk, limited to keys
  // [u0, u1).
  void add_values(std::int64_t h, std::int64_t column, std::int64_t first, std::int64_t last,
                  std::int64_t u0, std::int64_t u1, const std::uint16_t* row, std::int64_t rows,
                  bool resume, float* out, std::int64_t width) {
    // At most two steps of a chunk are partly visible: the first and the last.
    alignas(64) std::byte edge[2][kStepLines * kValueTiles * kLine];
    int edges = 0;
    const std::int64_t columns = std::min(ops::kValueColumns, t.dv - column),
                       head_bytes = t.dv * kPageSize * 2;
    PanelSteps w;
    w.line_step = columns * 4;
    w.tiles = static_cast<int>(columns / 16);
    for (std::int64_t s = first; s < last; ++s) {
      const std::int64_t page = s / kPageSteps;
      const std::byte* lines = v[page] + h * head_bytes + column * kPageSize * 2 +
                               s % kPageSteps * kStepLines * w.line_step;
      // Look ahead to the next step, or to the next page at the end of this one.
      const std::byte* ahead = lines + kStepLines * w.line_step;
      if (ahead + kStepLines * w.line_step > v[page] + t.kv_heads * head_bytes) ahead = v[page + 1];
      if (s * kStepKeys < u0 || (s + 1) * kStepKeys > u1)
        w.add(seen_lines(lines, w.line_step, u0 - s * kStepKeys, u1 - s * kStepKeys, edge[edges++]),
              nullptr, nullptr);
      else
        w.add(lines, ahead, ahead == nullptr ? nullptr : ahead + kFurther);
    }
    panel_times(shapes, reinterpret_cast<const std::byte*>(row + first * kStepKeys), kChunk * 2,
                rows, w, resume, out, width);
  }
};

// Index keys in panels, on AMX.
template <class D>
struct AmxIndexKeys {
  const IndexScoreArgs& a;
  const PanelQueries form;
  AmxShapes shapes;
  alignas(64) std::uint16_t filled[IndexQueries<D>::kRows * (ops::kMaxKeyDim + kStepColumns)];

  explicit AmxIndexKeys(const IndexScoreArgs& args) : a(args), form(args.d) {}
  void product(IndexQueries<D>& q, std::int64_t begin, std::int64_t count, std::int64_t next) {
    const std::uint16_t* rows = q.queries;
    // If d is not a whole number of steps, pad the queries with zeros.
    if (form.stride != a.d) {
      for (std::int64_t r = 0; r < q.rows(); ++r) {
        std::copy_n(q.queries + r * a.d, a.d, filled + r * form.stride);
        std::fill(filled + r * form.stride + a.d, filled + (r + 1) * form.stride, std::uint16_t{0});
      }
      rows = filled;
    }
    const auto page = [&](std::int64_t key) {
      return reinterpret_cast<const std::byte*>(static_cast<const BF16*>(a.k) +
                                                a.keys.pages[key / kPageSize] * a.k_stride);
    };
    form.times(shapes, rows, q.rows(), page(begin), 0, static_cast<int>((count + 15) / 16),
               next < a.end && form.panel_bytes() >= kStepBytes ? page(next) : nullptr, q.dots,
               kPageSize);
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
