// Decode attention over bfloat16 panels (kv_plane.h), with few rows per KV head. It waits for
// memory only, so the vector units do it, in AMX's order of summation (amx.h), bit for bit.
// Included by isa_amx.cpp after attention_amx_impl.h.
//
// The order of reads decides the speed. A step is a block of 4 KiB: 32 columns of 64 keys, or 32
// keys of 64 columns of values. Blocks of two heads alternate, as two streams: head h and head h +
// kv_heads / 2. Each line is loaded right after the prefetch of the same line of its stream's next
// block. So processors with AMX read at their full bandwidth; head by head they read a quarter
// slower (docs/benchmarks/history/intel-amx.jsonl).
#pragma once

namespace sluice::cpu {
namespace {

inline constexpr std::int64_t kVectorRows = 4;         // maximum rows per KV head for this path
inline constexpr std::int64_t kBlockLine = 4 * kLine;  // four tiles side by side
inline constexpr std::int64_t kBlockBytes = kStepLines * kBlockLine;
// Lines of a block between a load and its prefetch into L1.
inline constexpr std::int64_t kNearLines = 4;

// out[MR, 16 NT] (+)= x[MR, 32] w^T for the first NT tiles of the block `lines`. `next` is the
// block that follows it in its stream. kFetch: this is the first read of the block, so prefetch.
template <int MR, int NT, bool kFetch>
void vector_block(const std::byte* x, std::int64_t x_stride, const std::byte* lines,
                  const std::byte* next, bool resume, float* out, std::int64_t stride) {
  const __m512i top = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  alignas(64) float columns[MR][kStepColumns];
  __m512 even[MR][NT], odd[MR][NT];
#pragma GCC unroll 2
  for (int m = 0; m < MR; ++m) {
    // Split the bfloat16 pairs of x into floats: even columns first, then odd ones.
    const __m512i pairs = _mm512_loadu_si512(x + m * x_stride);
    _mm512_store_si512(columns[m], _mm512_maskz_slli_epi32(0xFFFF, pairs, 16));
    _mm512_store_si512(columns[m] + kStepLines, _mm512_and_si512(pairs, top));
#pragma GCC unroll 4
    for (int t = 0; t < NT; ++t) even[m][t] = odd[m][t] = _mm512_setzero_ps();
  }
  // Lines [first, last). The L1 prefetch of the line at offset `at` is near_base + at.
  const auto some = [&](std::int64_t first, std::int64_t last,
                        const std::byte* near_base) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (std::int64_t l = first; l < last; ++l) {
#pragma GCC unroll 4
      for (int t = 0; t < NT; ++t) {
        const std::int64_t at = l * kBlockLine + t * kLine;
        __m512i v;
        if constexpr (kFetch)
          asm volatile("prefetcht1 (%3)\n\tprefetcht0 (%2)\n\tvmovdqu64 (%1), %0"
                       : "=v"(v)
                       : "r"(lines + at), "r"(near_base + at), "r"(next + at)
                       : "memory");
        else
          v = _mm512_loadu_si512(lines + at);
        // MR rows use each loaded line, with even and odd sums as TDPBF16PS has them.
        const __m512 low = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, v, 16)),
                     high = _mm512_castsi512_ps(_mm512_and_si512(v, top));
#pragma GCC unroll 2
        for (int m = 0; m < MR; ++m) {
          even[m][t] = _mm512_fmadd_ps(low, _mm512_set1_ps(columns[m][l]), even[m][t]);
          odd[m][t] = _mm512_fmadd_ps(high, _mm512_set1_ps(columns[m][kStepLines + l]), odd[m][t]);
        }
      }
    }
  };
  // The last lines of the block prefetch the first lines of the next one into L1.
  some(0, kStepLines - kNearLines, lines + kNearLines * kBlockLine);
  some(kStepLines - kNearLines, kStepLines, next - (kStepLines - kNearLines) * kBlockLine);
  // The order of TDPBF16PS: even + odd first, then the accumulator.
#pragma GCC unroll 2
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int t = 0; t < NT; ++t) {
      float* to = out + m * stride + t * 16;
      const __m512 sum = resume ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
      _mm512_storeu_ps(to, _mm512_add_ps(sum, _mm512_add_ps(even[m][t], odd[m][t])));
    }
}

// Row i of the tile belongs to KV head i / (rows / kv_heads). Only whole blocks: d is a multiple of
// 32, dv of 64.
template <class V>
struct DecodeProducts {
  static constexpr std::int64_t kPages = kChunk / kPageSize;
  static constexpr std::int64_t kPageSteps = kPageSize / kStepKeys;
  const AttendTile& t;
  const std::int64_t group;  // query rows of a KV head
  // Addresses of the chunk's pages; keys also have the page after the chunk.
  const std::byte* k[kPages + 1];
  const std::byte* v[kPages];
  bool more = false;  // the tile has keys after this chunk
  alignas(64) std::uint16_t queries[kTileQueries * ops::kMaxKeyDim];
  alignas(64) std::uint16_t weights[kTileQueries * kChunk];

  static bool fits(const AttendTile& tile) {
    return tile.rows / tile.kv_heads <= kVectorRows && tile.d % kStepColumns == 0 &&
           tile.dv % ops::kValueColumns == 0;
  }
  explicit DecodeProducts(const AttendTile& tile) : t(tile), group(tile.rows / tile.kv_heads) {
    for (int r = 0; r < t.rows; ++r) round_row<V>(t.q[r], t.d, queries + r * t.d);
  }
  void gather(std::int64_t c, std::int64_t u0, std::int64_t u1, std::int64_t last) {
    const std::int32_t* pages = t.keys.pages + c / kPageSize;
    const std::int64_t end = (u1 + kPageSize - 1) / kPageSize;
    // Only this tile's keys are read ahead: another thread may be writing the next tile's now.
    more = c + u1 < last;
    for (std::int64_t p = u0 / kPageSize; p < end + more; ++p) {
      k[p] =
          reinterpret_cast<const std::byte*>(static_cast<const BF16*>(t.k) + pages[p] * t.k_stride);
      if (p < end)
        v[p] = reinterpret_cast<const std::byte*>(static_cast<const BF16*>(t.v) +
                                                  pages[p] * t.v_stride);
    }
  }
  void score(std::int64_t u0, std::int64_t u1, float* scores) {
    const std::int64_t blocks = t.d / kStepColumns;
    for (std::int64_t p = u0 / kPageSize; p * kPageSize < u1; ++p) {
      const std::int64_t at = p * kPageSize;
      const auto tiles = static_cast<int>((std::min<std::int64_t>(kPageSize, u1 - at) + 15) / 16);
      // The last page of keys is followed by the first values.
      const Heads after = at + kPageSize < u1 ? keys_of(p + 1) : values_of(u0 / kStepKeys);
      in_turn(
          blocks, [&](std::int64_t i) { return k[p] + i * kBlockBytes; }, after,
          [&](std::int64_t i, const std::byte* lines, const std::byte* next) {
            const std::int64_t h = i / blocks, step = i % blocks;
            multiply(tiles, queries + h * group * t.d + step * kStepColumns, t.d, group, lines,
                     next, step > 0, scores + h * group * kChunk + at, kChunk);
          });
    }
  }
  // Functor that prefetches a few lines of the first values of both streams per call.
  struct FirstValues {
    const std::byte *first, *second;
    std::int64_t left;  // bytes left in each stream

    void operator()() {
      if (left <= 0) return;
      for (const std::byte* at : {first, first + kLine, second, second + kLine})
        _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
      first += 2 * kLine, second += 2 * kLine, left -= 2 * kLine;
    }
  };
  FirstValues fetch_values(std::int64_t u0) const {
    const Heads first = values_of(u0 / kStepKeys);
    return {first.first, first.middle, u0 % kPageSize == 0 ? first.middle - first.first : 0};
  }
  void accumulate(std::int64_t u0, std::int64_t u1, const float* scores, const std::int64_t* lo,
                  const std::int64_t* hi, float* part, std::int64_t width) {
    round_weights<V>(t.rows, scores, lo, hi, (u1 + kStepKeys - 1) / kStepKeys * kStepKeys, weights);
    accumulate_all<V>(*this, t.rows, u0, u1, lo, hi, part, width);
  }
  // Adds to rows that are zero: all rows over the keys of gather(), or one row over its own keys.
  void accumulate_rows(int r0, int r1, std::int64_t u0, std::int64_t u1, float* part,
                       std::int64_t width) {
    alignas(64) std::byte copy[kBlockBytes];
    const std::int64_t begin = u0 / kStepKeys, end = (u1 + kStepKeys - 1) / kStepKeys;
    // Page by page; a page holds kPageSteps steps of keys.
    for (std::int64_t first = begin, last; first < end; first = last) {
      last = std::min(end, (first / kPageSteps + 1) * kPageSteps);
      const std::int64_t steps = last - first, blocks = t.dv / ops::kValueColumns * steps;
      const Heads after = last < end ? values_of(last)
                          : more     ? keys_of(last / kPageSteps)
                                     : values_of(first);
      const auto place = [&](std::int64_t i) {
        return value_block(i / blocks, i % blocks / steps * ops::kValueColumns, first + i % steps);
      };
      in_turn(
          blocks, place, after, [&](std::int64_t i, const std::byte* lines, const std::byte* next) {
            const std::int64_t h = i / blocks, column = i % blocks / steps * ops::kValueColumns,
                               step = first + i % steps;
            // Rows of head h within [r0, r1).
            const std::int64_t row = std::max<std::int64_t>(r0, h * group),
                               rows = std::min<std::int64_t>(r1, (h + 1) * group) - row;
            if (rows <= 0) return;
            // A step with keys that are not visible uses a masked copy of its lines.
            if (step * kStepKeys < u0 || (step + 1) * kStepKeys > u1)
              lines =
                  seen_lines(lines, kBlockLine, u0 - step * kStepKeys, u1 - step * kStepKeys, copy);
            multiply(kValueTiles, weights + row * kChunk + step * kStepKeys, kChunk, rows, lines,
                     next, true, part + row * width + column, width);
          });
    }
  }

 private:
  // Where the first head of a page begins, and the middle one, which begins the second stream.
  struct Heads {
    const std::byte *first, *middle;
  };
  Heads keys_of(std::int64_t page) const {
    return {k[page], k[page] + t.kv_heads / 2 * t.d / kStepColumns * kBlockBytes};
  }
  Heads values_of(std::int64_t step) const {
    return {value_block(0, 0, step), value_block(t.kv_heads / 2, 0, step)};
  }
  const std::byte* value_block(std::int64_t h, std::int64_t column, std::int64_t step) const {
    return v[step / kPageSteps] +
           ((h * t.dv + column) / ops::kValueColumns * kPageSteps + step % kPageSteps) *
               kBlockBytes;
  }
  // Calls use(i, block, next block) for the `blocks` blocks of every head. i counts blocks over all
  // heads; blocks of the two streams alternate. place(i) is the address of block i.
  template <class Place, class Use>
  void in_turn(std::int64_t blocks, const Place& place, const Heads& after, const Use& use) const {
    const std::int64_t half = t.kv_heads / 2 * blocks;
    for (std::int64_t i = 0; i < half; ++i) {
      const bool ends = i + 1 == half;
      use(i, place(i), ends ? after.first : place(i + 1));
      use(half + i, place(half + i), ends ? after.middle : place(half + i + 1));
    }
    for (std::int64_t i = 2 * half; i < t.kv_heads * blocks; ++i)
      use(i, place(i), i + 1 < t.kv_heads * blocks ? place(i + 1) : after.first);
  }
  // The first `tiles` tiles of a block. `lines` is the block or a masked copy of it.
  static void multiply(int tiles, const std::uint16_t* x, std::int64_t x_stride, std::int64_t rows,
                       const std::byte* lines, const std::byte* next, bool resume, float* out,
                       std::int64_t stride) {
    switch (tiles) {
      case 4:
        return multiply_rows<4>(x, x_stride, rows, lines, next, resume, out, stride);
      case 3:
        return multiply_rows<3>(x, x_stride, rows, lines, next, resume, out, stride);
      case 2:
        return multiply_rows<2>(x, x_stride, rows, lines, next, resume, out, stride);
      default:
        return multiply_rows<1>(x, x_stride, rows, lines, next, resume, out, stride);
    }
  }
  template <int NT>
  static void multiply_rows(const std::uint16_t* x, std::int64_t x_stride, std::int64_t rows,
                            const std::byte* lines, const std::byte* next, bool resume, float* out,
                            std::int64_t stride) {
    const auto* bytes = reinterpret_cast<const std::byte*>(x);
    if (rows == 1)
      return vector_block<1, NT, true>(bytes, x_stride * 2, lines, next, resume, out, stride);
    vector_block<2, NT, true>(bytes, x_stride * 2, lines, next, resume, out, stride);
    // Three or four rows: a second pass over the lines, which are in L1 by then.
    if (rows == 3)
      vector_block<1, NT, false>(bytes + 4 * x_stride, x_stride * 2, lines, next, resume,
                                 out + 2 * stride, stride);
    if (rows == 4)
      vector_block<2, NT, false>(bytes + 4 * x_stride, x_stride * 2, lines, next, resume,
                                 out + 2 * stride, stride);
  }
};

}  // namespace
}  // namespace sluice::cpu
