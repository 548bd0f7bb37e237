// GEMM with bfloat16 tiles (tiles.h) on AMX: one line of a weight tile is one row of a B register.
//
// Order of summation of an element: for each 32 columns, the even ones are summed from zero, and so
// are the odd ones. Both sums are then added to the accumulator (amx.h).
//
// GEMV leaves the matrix units idle, and the vector units read memory faster. They compute the same
// bits.
//
// Included after amx.h, inside a target pragma.
#pragma once

namespace sluice::cpu {
namespace {

constexpr std::int64_t kPanelTiles = 4;

float bias_at(const WeightVector& bias, std::int64_t i) {
  if (bias.dtype == DType::kBF16)
    return std::bit_cast<float>(
        static_cast<std::uint32_t>(static_cast<const BF16*>(bias.data)[i].bits) << 16);
  if (bias.dtype == DType::kF16) return _cvtsh_ss(static_cast<const F16*>(bias.data)[i].bits);
  return static_cast<const float*>(bias.data)[i];
}

__mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}

// Some tiles of a panel.
struct PanelPart {
  const std::byte* w = nullptr;  // line 0 of the first tile
  std::int64_t step = 0;         // bytes from one line to the next
  int tiles = 0;
  int last_lanes = 16;  // existing rows of the last tile
};

PanelPart panel_part(const TileProduct& a, std::int64_t t, std::int64_t t1) {
  // Position of the panel, its width (4, or less for the last panel), and the tiles of it before
  // t1.
  const std::int64_t tiles = (a.rows + 15) / 16, pairs = (a.columns + 1) / 2;
  const std::int64_t panel = t / kPanelTiles,
                     width = std::min(kPanelTiles, tiles - panel * kPanelTiles);
  const std::int64_t count = std::min(t1 - t, width - t % kPanelTiles);
  return {
      .w = a.w + panel * kPanelTiles * kLine * pairs + t % kPanelTiles * kLine,
      .step = width * kLine,
      .tiles = static_cast<int>(count),
      .last_lanes = static_cast<int>(std::min<std::int64_t>(16, a.rows - (t + count - 1) * 16))};
}

// The lines of the last, incomplete step of a part, padded with zeros to a whole step.
struct TailLines {
  alignas(64) std::byte lines[kStepLines * kPanelTiles * kLine];
  TailLines(const PanelPart& part, std::int64_t first, std::int64_t count) {
    std::memset(lines, 0, sizeof lines);
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(lines + i * kPanelTiles * kLine, part.w + (first + i) * part.step,
                  static_cast<std::size_t>(part.tiles * kLine));
  }
};

// ---- GEMV: one row ----

// Prefetch distances in bytes. Two panels are read side by side if there are two: processors with
// AMX read memory fastest that way.
constexpr std::int64_t kTwoStreamsAhead = 3072;
constexpr std::int64_t kOneStreamAhead = 3072, kOneStreamNear = 2048;

// One step (32 columns) of kStreams * NT tiles. `x` points at its columns.
template <int kStreams, int NT>
[[gnu::always_inline]] inline void row_step(const std::byte* const* w, std::int64_t step,
                                            const std::byte* x, __m512* sum) {
  constexpr int kAll = kStreams * NT;
  // Split the bfloat16 pairs of x into floats: even columns first, then odd ones.
  alignas(64) float columns[kStepColumns];
  const __m512i pairs = _mm512_loadu_si512(x);
  const __m512i top = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  _mm512_store_si512(columns, _mm512_maskz_slli_epi32(0xFFFF, pairs, 16));
  _mm512_store_si512(columns + kStepLines, _mm512_and_si512(pairs, top));
  // AMX sums even and odd columns in temporaries of their own; so do these registers.
  __m512 even[kAll], odd[kAll];
#pragma GCC unroll 8
  for (int i = 0; i < kAll; ++i) even[i] = odd[i] = _mm512_setzero_ps();
#pragma GCC unroll 2
  for (std::int64_t l = 0; l < kStepLines; ++l) {
    const __m512 low = _mm512_set1_ps(columns[l]), high = _mm512_set1_ps(columns[kStepLines + l]);
#pragma GCC unroll 2
    for (int s = 0; s < kStreams; ++s)
#pragma GCC unroll 4
      for (int t = 0; t < NT; ++t) {
        // Every load is preceded by the prefetch of a line further along its own stream.
        const __m512i v =
            kStreams > 1
                ? next_line<__m512i, kTwoStreamsAhead, 0>(w[s] + l * step + t * kLine)
                : next_line<__m512i, kOneStreamNear, kOneStreamAhead>(w[s] + l * step + t * kLine);
        const int i = s * NT + t;
        even[i] = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, v, 16)), low,
                                  even[i]);
        odd[i] = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(v, top)), high, odd[i]);
      }
  }
  // The order of TDPBF16PS: even + odd first, then the accumulator.
#pragma GCC unroll 8
  for (int i = 0; i < kAll; ++i) sum[i] = _mm512_add_ps(sum[i], _mm512_add_ps(even[i], odd[i]));
}

// Rows of NT tiles from each of kStreams panel parts. All parts have the same shape.
template <int kStreams, int NT>
void row_parts(const PanelPart* const* parts, const std::byte* x, std::int64_t columns,
               float* const* out) {
  __m512 sum[kStreams * NT];
#pragma GCC unroll 8
  for (int i = 0; i < kStreams * NT; ++i) sum[i] = _mm512_setzero_ps();
  const std::int64_t step = parts[0]->step, steps = columns / kStepColumns,
                     rest = columns % kStepColumns;
  const std::byte* w[kStreams];
  for (int s = 0; s < kStreams; ++s) w[s] = parts[s]->w;
  for (std::int64_t k = 0; k < steps; ++k) {
    row_step<kStreams, NT>(w, step, x + k * kStepColumns * 2, sum);
    for (int s = 0; s < kStreams; ++s) w[s] += kStepLines * step;
  }
  // The incomplete last step, with x and weights padded with zeros.
  if (rest > 0) {
    alignas(64) std::byte last[kLine] = {};
    std::memcpy(last, x + steps * kStepColumns * 2, static_cast<std::size_t>(rest * 2));
    for (int s = 0; s < kStreams; ++s) {
      const TailLines tail(*parts[s], steps * kStepLines, (rest + 1) / 2);
      const std::byte* lines = tail.lines;
      row_step<1, NT>(&lines, kPanelTiles * kLine, last, sum + s * NT);
    }
  }
  for (int s = 0; s < kStreams; ++s)
    for (int t = 0; t < NT; ++t)
      _mm512_mask_storeu_ps(out[s] + t * 16, first_lanes(t + 1 < NT ? 16 : parts[s]->last_lanes),
                            sum[s * NT + t]);
}

// GEMV of row m. in_streams(one, two) enumerates the tiles (streams.h).
template <class InStreams>
void one_row(const TileProduct& a, std::int64_t m, const InStreams& in_streams) {
  const FlushDenormals flush;
  const std::byte* x = a.x + (a.x_rows == nullptr ? m : a.x_rows[m]) * a.x_stride;
  float* out = a.out + m * a.out_stride;
  // A part of one panel: the number of tiles is a template argument.
  const auto one_part = [&](std::int64_t at, std::int64_t end) {
    const PanelPart part = panel_part(a, at, end);
    const PanelPart* parts[] = {&part};
    float* to[] = {out + at * 16};
    switch (part.tiles) {
      case 4:
        row_parts<1, 4>(parts, x, a.columns, to);
        break;
      case 3:
        row_parts<1, 3>(parts, x, a.columns, to);
        break;
      case 2:
        row_parts<1, 2>(parts, x, a.columns, to);
        break;
      default:
        row_parts<1, 1>(parts, x, a.columns, to);
        break;
    }
    return at + part.tiles;
  };
  // Two whole panels of equal shape, side by side.
  const auto two_panels = [&](std::int64_t t, std::int64_t u) {
    const PanelPart first = panel_part(a, t, t + kPanelTiles),
                    second = panel_part(a, u, u + kPanelTiles);
    const PanelPart* parts[] = {&first, &second};
    float* to[] = {out + t * 16, out + u * 16};
    row_parts<2, 4>(parts, x, a.columns, to);
  };
  in_streams(one_part, two_panels);
}

// ---- GEMM: several rows ----

// Loads register kTile with the sums at `out` (or zeros), and stores it back. Only `lanes` of the
// 16 columns exist in `out`; a copy of full width stands in for an edge tile.
template <int kTile>
void take_sums(bool resume, const float* out, std::int64_t stride, int rows, int lanes) {
  if (!resume) return amx_zero<kTile>();
  if (lanes == 16) return amx_load<kTile>(out, stride * 4);
  alignas(64) float whole[kAmxRows * 16];
  for (int r = 0; r < rows; ++r)
    _mm512_store_ps(whole + r * 16, _mm512_maskz_loadu_ps(first_lanes(lanes), out + r * stride));
  amx_load<kTile>(whole, kLine);
}
template <int kTile>
void put_sums(float* out, std::int64_t stride, int rows, int lanes) {
  if (lanes == 16) return amx_store<kTile>(out, stride * 4);
  alignas(64) float whole[kAmxRows * 16];
  amx_store<kTile>(whole, kLine);
  for (int r = 0; r < rows; ++r)
    _mm512_mask_storeu_ps(out + r * stride, first_lanes(lanes), _mm512_load_ps(whole + r * 16));
}

// Columns of one call of block(): steps [begin, end), then an incomplete step of `rest` columns.
struct Span {
  std::int64_t begin = 0, end = 0;
  std::int64_t rest = 0;    // columns of an incomplete last step, processed after `end`
  bool resume = false;      // `out` holds the sums of earlier columns
  bool first_time = false;  // the weights come from memory: prefetch them
};

// Sums of up to 32 rows of x with the tiles [at, at + NT) of a panel part. Registers 0 to 3 hold 1
// x NT or 2 x NT tiles of C.
template <int kRowTiles, int NT>
void block(const RowGroup& x, const RowGroup& last, const PanelPart& part, int at, const Span& span,
           float* out, std::int64_t stride) {
  const auto lanes = [&](int t) { return at + t + 1 < part.tiles ? 16 : part.last_lanes; };
  float* below = out + x.first * stride;
  take_sums<0>(span.resume, out, stride, x.first, lanes(0));
  // Registers 2 and 3 belong to the second 16 rows, or to tiles 2 and 3 of 16 rows.
  if constexpr (kRowTiles == 2) {
    take_sums<2>(span.resume, below, stride, x.second, lanes(0));
    if constexpr (NT > 1) take_sums<1>(span.resume, out + 16, stride, x.first, lanes(1));
    if constexpr (NT > 1) take_sums<3>(span.resume, below + 16, stride, x.second, lanes(1));
  } else {
    if constexpr (NT > 1) take_sums<1>(span.resume, out + 16, stride, x.first, lanes(1));
    if constexpr (NT > 2) take_sums<2>(span.resume, out + 32, stride, x.first, lanes(2));
    if constexpr (NT > 3) take_sums<3>(span.resume, out + 48, stride, x.first, lanes(3));
  }
  const std::byte* w = part.w + span.begin * kStepLines * part.step + at * kLine;
  const std::int64_t count = span.end - span.begin;
  // Only the first pass over the weights prefetches; later ones find them in L2.
  if (span.first_time && at == 0)
    steps<kRowTiles, NT, Fetch::kStream>(x, w, part.step, count);
  else
    steps<kRowTiles, NT, Fetch::kNothing>(x, w, part.step, count);
  // The incomplete last step reads padded copies of x and w.
  if (span.rest > 0) {
    const TailLines tail(part, span.end * kStepLines, (span.rest + 1) / 2);
    steps<kRowTiles, NT, Fetch::kNothing>(last, tail.lines + at * kLine, kPanelTiles * kLine, 1);
  }
  put_sums<0>(out, stride, x.first, lanes(0));
  if constexpr (kRowTiles == 2) {
    put_sums<2>(below, stride, x.second, lanes(0));
    if constexpr (NT > 1) put_sums<1>(out + 16, stride, x.first, lanes(1));
    if constexpr (NT > 1) put_sums<3>(below + 16, stride, x.second, lanes(1));
  } else {
    if constexpr (NT > 1) put_sums<1>(out + 16, stride, x.first, lanes(1));
    if constexpr (NT > 2) put_sums<2>(out + 32, stride, x.first, lanes(2));
    if constexpr (NT > 3) put_sums<3>(out + 48, stride, x.first, lanes(3));
  }
}

// More than 16 rows: 2 x 2 register tiles. 16 rows or fewer: 1 x 4, which loads each row of x once
// per step.
void part_product(const RowGroup& x, const RowGroup& last, const PanelPart& part, const Span& span,
                  float* out, std::int64_t stride) {
  if (x.second > 0) {
    for (int at = 0; at < part.tiles; at += 2)
      if (part.tiles - at > 1)
        block<2, 2>(x, last, part, at, span, out + at * 16, stride);
      else
        block<2, 1>(x, last, part, at, span, out + at * 16, stride);
    return;
  }
  switch (part.tiles) {
    case 4:
      return block<1, 4>(x, last, part, 0, span, out, stride);
    case 3:
      return block<1, 3>(x, last, part, 0, span, out, stride);
    case 2:
      return block<1, 2>(x, last, part, 0, span, out, stride);
    default:
      return block<1, 1>(x, last, part, 0, span, out, stride);
  }
}

// Rows per group: two A registers.
constexpr std::int64_t kGroupRows = 2 * kAmxRows;
// Columns per block: the weights of kPartsAtOnce panels stay in L2 while all groups of rows pass.
constexpr std::int64_t kColumnsAtOnce = 1024;
constexpr std::int64_t kPartsAtOnce = 4;
// Rows per block: their sums stay in L2 too from one block of columns to the next.
constexpr std::int64_t kRowsAtOnce = 512;

// Rows [m0, m1) of x in the form that AMX loads.
class Rows {
 public:
  Rows(const TileProduct& a, std::int64_t m0, std::int64_t m1)
      : a_(a),
        m0_(m0),
        first_(static_cast<int>(std::min<std::int64_t>(kAmxRows, m1 - m0))),
        second_(static_cast<int>(m1 - m0) - first_) {}

  // Steps [begin, end). Listed rows (x_rows) are gathered into `copy`, since tileloadd needs a
  // stride.
  template <class Copy>
  RowGroup steps(std::int64_t begin, std::int64_t end, Copy& copy) const {
    RowGroup x = group(at(0) + begin * kLine, a_.x_stride);
    if (a_.x_rows == nullptr) return x;
    x = group(copy, kColumnsAtOnce * 2);
    for (std::int64_t i = 0; i < first_ + second_; ++i)
      std::memcpy(copy + i * x.stride, at(i) + begin * kLine,
                  static_cast<std::size_t>((end - begin) * kLine));
    return x;
  }
  // The incomplete step of `columns` columns after `step`, padded with zeros.
  template <class Copy>
  RowGroup last_step(std::int64_t step, std::int64_t columns, Copy& copy) const {
    std::memset(copy, 0, sizeof copy);
    for (std::int64_t i = 0; i < first_ + second_; ++i)
      std::memcpy(copy + i * kLine, at(i) + step * kLine, static_cast<std::size_t>(columns * 2));
    return group(copy, kLine);
  }

 private:
  const std::byte* at(std::int64_t i) const {
    return a_.x + (a_.x_rows == nullptr ? m0_ + i : a_.x_rows[m0_ + i]) * a_.x_stride;
  }
  RowGroup group(const std::byte* x, std::int64_t stride) const {
    return {
        .x = x, .stride = stride, .second_at = first_ * stride, .first = first_, .second = second_};
  }

  const TileProduct& a_;
  std::int64_t m0_;
  int first_, second_;
};

void more_rows(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0,
               std::int64_t t1) {
  alignas(64) std::byte listed[kGroupRows * kColumnsAtOnce * 2], filled[kGroupRows * kLine];
  AmxShapes shapes;
  const std::int64_t all = a.columns / kStepColumns, rest = a.columns % kStepColumns;
  const bool one_group = m1 - m0 <= kGroupRows;
  // With a single group the weights are read once, so each panel is read whole, in memory order.
  const std::int64_t at_once = one_group && a.x_rows == nullptr ? std::max<std::int64_t>(all, 1)
                                                                : kColumnsAtOnce / kStepColumns;
  for (std::int64_t t = t0; t < t1;) {
    // Up to four panel parts share the rows of x of one block of columns.
    PanelPart parts[kPartsAtOnce];
    std::int64_t tile[kPartsAtOnce];
    int count = 0;
    for (; count < kPartsAtOnce && t < t1; t += parts[count++].tiles) {
      parts[count] = panel_part(a, t, t1);
      tile[count] = t;
    }
    for (std::int64_t begin = 0; begin == 0 || begin < all; begin += at_once) {
      Span span = {.begin = begin, .end = std::min(all, begin + at_once), .resume = begin > 0};
      if (span.end == all) span.rest = rest;
      // All rows pass over this block of weights before the next block is read.
      for (std::int64_t m = m0; m < m1; m += kGroupRows) {
        const Rows rows(a, m, std::min(m1, m + kGroupRows));
        const RowGroup x = rows.steps(span.begin, span.end, listed);
        const RowGroup last = span.rest > 0 ? rows.last_step(all, rest, filled) : x;
        shapes.set({.first = x.first, .second = x.second, .a_bytes = kLine});
        span.first_time = m == m0;
        for (int p = 0; p < count; ++p)
          part_product(x, last, parts[p], span, a.out + m * a.out_stride + tile[p] * 16,
                       a.out_stride);
      }
    }
  }
}

void add_bias(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0,
              std::int64_t t1) {
  if (a.bias.data == nullptr) return;
  for (std::int64_t m = m0; m < m1; ++m)
    for (std::int64_t n = t0 * 16; n < std::min(a.rows, t1 * 16); ++n)
      a.out[m * a.out_stride + n] += bias_at(a.bias, n);
}

void amx_product(const TileProduct& a, std::int64_t m0, std::int64_t m1, std::int64_t t0,
                 std::int64_t t1) {
  if (m1 - m0 == 1)
    one_row(a, m0, [&](const auto& one, const auto& two) {
      in_two_streams<kPanelTiles>(t0, t1, one, two);
    });
  else
    for (std::int64_t m = m0; m < m1; m += kRowsAtOnce)
      more_rows(a, m, std::min(m1, m + kRowsAtOnce), t0, t1);
  add_bias(a, m0, m1, t0, t1);
}

void amx_paired_row(const TileProduct& a, std::int64_t m, std::int64_t t0, std::int64_t t1,
                    std::int64_t tile_distance) {
  one_row(a, m, [&](const auto& one, const auto& two) {
    in_paired_streams<kPanelTiles>(t0, t1, tile_distance, one, two);
  });
  add_bias(a, m, m + 1, t0, t1);
  add_bias(a, m, m + 1, tile_distance + t0, tile_distance + t1);
}

}  // namespace
}  // namespace sluice::cpu
