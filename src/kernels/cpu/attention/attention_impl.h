// Attention of one tile of query rows, and the indexer's scores, over a vector type V. Included by
// isa_*.cpp after isa_prelude.h.
//
// FlashAttention of a tile, in attend_with():
// 1. scores of one chunk of keys,
// 2. score mods (soft cap, ALiBi slopes), softmax within the chunk,
// 3. values of the chunk, times the probabilities,
// 4. merge into the running result of the row, or store as a partial result (KV split),
// 5. division by the sum, after the last chunk.
#pragma once

namespace sluice::cpu {

using ops::kMaxValueDim;
inline constexpr std::int64_t kChunk = ops::kKeyChunk;

// part[r, col ..] += sum over keys [k0, k1), ascending, of p[r, key] * v[key, col ..], for MR rows
// and NV vectors. With `lanes` < kLanes only that many columns of the (single) vector exist.
template <class V, class TV, int MR, int NV>
inline void accumulate_block(const float* p, const TV* const* v, std::int64_t k0, std::int64_t k1,
                             std::int64_t col, int lanes, float* part, std::int64_t part_stride) {
  // MR x NV accumulators: every loaded value vector serves MR rows.
  typename V::F acc[MR][NV];
#pragma GCC unroll 4
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) acc[r][j] = V::load(part + r * part_stride + col + j * V::kLanes);
  for (std::int64_t key = k0; key < k1; ++key) {
    typename V::F value[NV];
    if (NV > 1 || lanes == V::kLanes) {
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) value[j] = V::load(v[key] + col + j * V::kLanes);
    } else {
      value[0] = V::load_n(v[key] + col, lanes);
    }
#pragma GCC unroll 4
    for (int r = 0; r < MR; ++r) {
      const auto weight = V::set1(p[r * kChunk + key]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) acc[r][j] = V::fma(weight, value[j], acc[r][j]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) V::store(part + r * part_stride + col + j * V::kLanes, acc[r][j]);
}

template <class V, class TV, int MR>
inline void accumulate_rows(const float* p, const TV* const* v, std::int64_t k0, std::int64_t k1,
                            std::int64_t dv, float* part, std::int64_t part_stride) {
  if (k0 >= k1) return;
  std::int64_t col = 0;
  for (; col + 4 * V::kLanes <= dv; col += 4 * V::kLanes)
    accumulate_block<V, TV, MR, 4>(p, v, k0, k1, col, V::kLanes, part, part_stride);
  for (; col < dv; col += V::kLanes)
    accumulate_block<V, TV, MR, 1>(p, v, k0, k1, col,
                                   static_cast<int>(std::min<std::int64_t>(V::kLanes, dv - col)),
                                   part, part_stride);
}

// Adds the values of one chunk for all rows. Row r sees keys [lo[r], hi[r]) of the chunk, and no
// other value is read for it: it may hold a NaN.
template <class V, class TV>
inline void accumulate_chunk(int rows, const float* p, const TV* const* v, const std::int64_t* lo,
                             const std::int64_t* hi, std::int64_t dv, float* part,
                             std::int64_t part_stride) {
  constexpr int kGroup = V::kLanes == 16 ? 4 : 2;
  int r = 0;
  for (; r + kGroup <= rows; r += kGroup) {
    // Keys that all rows of the group see are processed together, the others row by row.
    const std::int64_t first = *std::max_element(lo + r, lo + r + kGroup);
    const std::int64_t last = *std::min_element(hi + r, hi + r + kGroup);
    if (first >= last) {
      for (int i = r; i < r + kGroup; ++i)
        accumulate_rows<V, TV, 1>(p + i * kChunk, v, lo[i], hi[i], dv, part + i * part_stride,
                                  part_stride);
      continue;
    }
    for (int i = r; i < r + kGroup; ++i)
      accumulate_rows<V, TV, 1>(p + i * kChunk, v, lo[i], first, dv, part + i * part_stride,
                                part_stride);
    accumulate_rows<V, TV, kGroup>(p + r * kChunk, v, first, last, dv, part + r * part_stride,
                                   part_stride);
    for (int i = r; i < r + kGroup; ++i)
      accumulate_rows<V, TV, 1>(p + i * kChunk, v, last, hi[i], dv, part + i * part_stride,
                                part_stride);
  }
  for (; r < rows; ++r)
    accumulate_rows<V, TV, 1>(p + r * kChunk, v, lo[r], hi[r], dv, part + r * part_stride,
                              part_stride);
}

// Softmax of one row within a chunk: scores [lo, hi) become exp(scale * score - max). Other entries
// of the touched vectors become 0. scale > 0. fetch() is called once per vector, so that memory is
// busy meanwhile.
template <class V, class Fetch>
inline void softmax(float* s, std::int64_t lo, std::int64_t hi, float scale, float& max_out,
                    float& sum_out, Fetch& fetch) {
  const std::int64_t begin = lo / V::kLanes * V::kLanes;
  const std::int64_t end = (hi + V::kLanes - 1) / V::kLanes * V::kLanes;
  // Entries outside [lo, hi) become -inf, hence exp = 0.
  const float nothing = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = begin; i < lo; ++i) s[i] = nothing;
  for (std::int64_t i = hi; i < end; ++i) s[i] = nothing;
  const auto factor = V::set1(scale);
  auto top = V::set1(nothing);
  for (std::int64_t i = begin; i < end; i += V::kLanes) {
    const auto value = V::mul(V::load(s + i), factor);
    V::store(s + i, value);
    top = V::max(top, value);
  }
  const float highest = V::max_lane(top);
  const auto shift = V::set1(highest);
  auto sum = V::zero();
  for (std::int64_t i = begin; i < end; i += V::kLanes) {
    const auto e = vec_exp<V>(V::sub(V::load(s + i), shift));
    V::store(s + i, e);
    sum = V::add(sum, e);
    fetch();
  }
  max_out = highest;
  sum_out = V::sum(sum);
}

// The numbers 0, 1, 2, ..., for ALiBi distances.
struct ChunkNumbers {
  alignas(64) float of[kChunk];
  constexpr ChunkNumbers() : of{} {
    for (std::int64_t i = 0; i < kChunk; ++i) of[i] = static_cast<float>(i);
  }
};
inline constexpr ChunkNumbers kChunkNumbers;

// Applies soft cap and ALiBi slope of row r to scores [lo, hi) of the chunk that begins at key
// `first`. The softmax then uses scale 1.
template <class V>
inline void apply_score_mods(const AttendTile& t, int r, std::int64_t first, float* s,
                             std::int64_t lo, std::int64_t hi) {
  const bool capped = t.softcap > 0;
  const auto scale = V::set1(capped ? t.scale / t.softcap : t.scale);
  // Distances are counted from the row's own position: small numbers, and exact, where they matter.
  const auto origin = V::set1(static_cast<float>(first - (t.end[r] - 1)));
  for (std::int64_t i = lo / V::kLanes * V::kLanes; i < hi; i += V::kLanes) {
    auto value = V::mul(V::load(s + i), scale);
    if (capped) value = V::mul(vec_tanh<V>(value), V::set1(t.softcap));
    if (t.has_slopes)
      value = V::fma(V::add(V::load(kChunkNumbers.of + i), origin), V::set1(t.slope[r]), value);
    V::store(s + i, value);
  }
}

template <class V>
inline float exp_one(float x) {
  return V::first(vec_exp<V>(V::set1(x)));
}

// Online softmax state of the rows of a tile: the running maximum, the sum, and the unnormalised
// output.
template <class V>
struct ChunkSums {
  const AttendTile& t;
  const std::int64_t width = (t.dv + V::kLanes - 1) / V::kLanes * V::kLanes;
  alignas(64) float total[kTileQueries * kMaxValueDim];
  float max[kTileQueries], sum[kTileQueries];
  bool seen[kTileQueries] = {};

  explicit ChunkSums(const AttendTile& tile) : t(tile) {}
  // Merges a chunk into row r. part[width]: sum of the chunk's values times exp(score - chunk_max);
  // chunk_sum: the sum of these exponentials.
  void merge(int r, const float* part, float chunk_max, float chunk_sum) {
    float* to = total + r * width;
    if (!seen[r]) {
      std::memcpy(to, part, sizeof(float) * static_cast<std::size_t>(width));
      max[r] = chunk_max;
      sum[r] = chunk_sum;
      seen[r] = true;
      return;
    }
    // Rescale the old result and scale the new one to the common maximum.
    const float top = std::max(max[r], chunk_max);
    const float keep = exp_one<V>(max[r] - top), merge = exp_one<V>(chunk_max - top);
    for (std::int64_t i = 0; i < width; i += V::kLanes)
      V::store(to + i,
               V::fma(V::load(part + i), V::set1(merge), V::mul(V::load(to + i), V::set1(keep))));
    sum[r] = sum[r] * keep + chunk_sum * merge;
    max[r] = top;
  }
  // Normalises and stores the rows. A sink only adds to the sum of exponentials.
  void finish() const {
    for (int r = 0; r < t.rows; ++r) {
      float inverse = seen[r] ? 1.0f / sum[r] : 0.0f;
      if (t.has_sinks && seen[r]) {
        const float top = std::max(max[r], t.sink[r]);
        const float keep = exp_one<V>(max[r] - top);
        inverse = keep / (sum[r] * keep + exp_one<V>(t.sink[r] - top));
      }
      for_lanes<V>(t.dv, [&](std::int64_t i, auto lanes) {
        lanes.store(t.out[r] + i,
                    seen[r] ? V::mul(V::load(total + r * width + i), V::set1(inverse)) : V::zero());
      });
      if (t.lse[r] != nullptr)
        *t.lse[r] = seen[r] ? static_cast<float>(static_cast<double>(max[r]) +
                                                 std::log(static_cast<double>(sum[r])))
                            : -std::numeric_limits<float>::infinity();
    }
  }
};

// FlashAttention of a tile. `Products` reads keys and values:
// - gather(c, u0, u1, last) locates keys [c + u0, c + u1) of the sequence; last - 1 is the tile's
//   last.
// - score() fills scores[r, u0 .. u1) of all rows.
// - fetch_values() returns a functor; each call prefetches some of the chunk's values.
// - The last member adds the values to `part`, which is zero. Row r sees keys [lo[r], hi[r]).
template <class V, class Products>
inline void attend_with(const AttendTile& t, Products& products) {
  alignas(64) float scores[kTileQueries * kChunk];
  alignas(64) float part[kTileQueries * kMaxValueDim];
  ChunkSums<V> sums(t);
  const std::int64_t width = sums.width;
  const bool has_score_mods = t.softcap > 0 || t.has_slopes;

  // Keys of the tile: the union of the rows' ranges, cut to the chunks of this KV split. Chunks are
  // counted from key 0.
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
  for (int r = 0; r < t.rows; ++r) {
    if (t.end[r] <= t.begin[r]) continue;
    first = std::min(first, t.begin[r]);
    last = std::max(last, t.end[r]);
  }
  first = std::max(first, t.chunks_from);
  last = std::min(last, t.chunks_until);
  for (std::int64_t c = first < last ? first / kChunk * kChunk : last; c < last; c += kChunk) {
    const std::int64_t u0 = std::max(first, c) - c, u1 = std::min(last, c + kChunk) - c;
    // 1. Scores.
    products.gather(c, u0, u1, last);
    products.score(u0, u1, scores);

    // 2. Softmax within the chunk.
    std::int64_t lo[kTileQueries], hi[kTileQueries];
    float chunk_max[kTileQueries], chunk_sum[kTileQueries];
    auto fetch = products.fetch_values(u0);
    for (int r = 0; r < t.rows; ++r) {
      lo[r] = std::max(t.begin[r], c) - c;
      hi[r] = std::min(t.end[r], c + kChunk) - c;
      if (lo[r] >= hi[r]) {
        lo[r] = hi[r] = 0;
        continue;
      }
      if (has_score_mods) apply_score_mods<V>(t, r, c, scores + r * kChunk, lo[r], hi[r]);
      softmax<V>(scores + r * kChunk, lo[r], hi[r], has_score_mods ? 1.0f : t.scale, chunk_max[r],
                 chunk_sum[r], fetch);
    }
    // 3. Values.
    std::memset(part, 0, sizeof(float) * static_cast<std::size_t>(t.rows * width));
    products.accumulate(u0, u1, scores, lo, hi, part, width);

    // 4. Merge, or store for merge_chunks().
    for (int r = 0; r < t.rows; ++r) {
      if (lo[r] >= hi[r]) continue;
      if (t.parts == nullptr || t.merges_chunks)
        sums.merge(r, part + r * width, chunk_max[r], chunk_sum[r]);
      else
        t.part(r, c).put(part + r * width, width, chunk_max[r], chunk_sum[r]);
    }
  }
  // 5. Normalise.
  if (t.parts == nullptr) return sums.finish();
  if (t.merges_chunks && first < last)
    for (int r = 0; r < t.rows; ++r)
      t.part(r, last - 1).put(sums.total + r * width, width, sums.max[r], sums.sum[r]);
}

// Second pass of the KV split: merges the partial results that attend() stored for all chunks of
// the rows.
template <class V>
void merge_chunks(const AttendTile& t) {
  ChunkSums<V> sums(t);
  for (int r = 0; r < t.rows; ++r)
    for (std::int64_t c = std::max(t.begin[r], t.chunks_from) / kChunk * kChunk; c < t.end[r];
         c += kChunk) {
      const ChunkPart part = t.part(r, c);
      sums.merge(r, part.values, *part.max, *part.sum);
    }
  sums.finish();
}

struct NothingToFetch {
  void operator()() const {}
};

// KernelTable::widen_latents.
template <class V>
void widen_latents(const LatentCodes& codes, const KeySource& keys, std::int64_t first,
                   std::int64_t count, BF16* rows) {
  const ops::LatentRow& row = codes.row;
  const auto widen = [&](const auto* from, std::int64_t n, float scale, BF16* to) {
    for_lanes<V>(n, [&](std::int64_t i, auto lanes) {
      lanes.store(to + i, V::mul(lanes.load(from + i), V::set1(scale)));
    });
  };
  for (std::int64_t i = 0; i < count; ++i, rows += row.latent + row.rope) {
    const std::uint8_t* from = codes.plane + keys.slot(first + i) * codes.stride;
    for (std::int64_t g = 0; g < row.groups(); ++g) {
      const std::int64_t begin = g * ops::kLatentGroup,
                         n = std::min(ops::kLatentGroup, row.latent - begin);
      // The bits of 2^(e - 127); 255 would be an infinity.
      const std::uint32_t exponent = from[row.exponents_at() + g];
      const float scale = exponent == 255 ? std::numeric_limits<float>::quiet_NaN()
                                          : std::bit_cast<float>(exponent << 23);
      if (codes.is_e4m3)
        widen(reinterpret_cast<const ops::E4M3*>(from) + begin, n, scale, rows + begin);
      else
        widen(reinterpret_cast<const std::int8_t*>(from) + begin, n, scale, rows + begin);
    }
    std::memcpy(rows + row.latent, from + row.rope_at(), static_cast<std::size_t>(2 * row.rope));
  }
}

// Keys [c + u0, c + u1) of a tile of codes become rows of bfloat16. False: the tile has other keys.
template <class V, class TK>
inline bool gather_codes(const AttendTile& t, std::int64_t c, std::int64_t u0, std::int64_t u1,
                         const TK** k, const TK** v) {
  if constexpr (std::is_same_v<TK, BF16>) {
    if (t.codes == nullptr) return false;
    widen_latents<V>(*t.codes, t.keys, c + u0, u1 - u0, t.widened + u0 * t.d);
    for (std::int64_t i = u0; i < u1; ++i) k[i] = v[i] = t.widened + i * t.d;
    return true;
  }
  return false;
}

// Keys and values as they lie in the plane, widened if they are narrow.
template <class V, class TK>
struct PlainProducts {
  const AttendTile& t;
  const TK* k[kChunk];
  const TK* v[kChunk];

  void gather(std::int64_t c, std::int64_t u0, std::int64_t u1, std::int64_t) {
    if (gather_codes<V, TK>(t, c, u0, u1, k, v)) return;
    for (std::int64_t i = u0; i < u1; ++i) {
      const std::int64_t slot = t.keys.slot(c + i);
      k[i] = static_cast<const TK*>(t.k) + slot * t.k_stride;
      v[i] = static_cast<const TK*>(t.v) + slot * t.v_stride;
    }
  }
  // The kTileRows x 4 register tile of GEMM, with row pointers into the pages.
  void score(std::int64_t u0, std::int64_t u1, float* scores) const {
    const auto row = [&](std::int64_t i) { return k[u0 + i]; };
    for (int r = 0; r < t.rows; r += V::kTileRows)
      dot_some_rows<V, float, TK>(std::min(V::kTileRows, t.rows - r), t.q + r, row, u1 - u0, t.d,
                                  scores + r * kChunk + u0, kChunk);
  }
  NothingToFetch fetch_values(std::int64_t) const { return {}; }
  void accumulate(std::int64_t, std::int64_t, const float* scores, const std::int64_t* lo,
                  const std::int64_t* hi, float* part, std::int64_t width) const {
    accumulate_chunk<V, TK>(t.rows, scores, v, lo, hi, t.dv, part, width);
  }
};

template <class V, class TK>
void attend_tile(const AttendTile& t) {
  PlainProducts<V, TK> products{.t = t, .k = {}, .v = {}};
  attend_with<V>(t, products);
}

// total[i] += sum over `heads` heads, ascending: fma(weight, relu(dot), sum). `dots` holds a page
// of dots per head. `first`: total starts at 0.
template <class V>
inline void add_index_heads(const float* dots, const float* weights, std::int64_t heads,
                            std::int64_t count, bool first, float* total) {
  for_lanes<V>(count, [&](std::int64_t i, auto lanes) {
    auto sum = first ? V::zero() : lanes.load(total + i);
    for (std::int64_t h = 0; h < heads; ++h)
      sum =
          V::fma(V::set1(weights[h]), V::max(V::zero(), lanes.load(dots + h * kPageSize + i)), sum);
    lanes.store(total + i, sum);
  });
}

template <class V, class TK>
void index_scores_range(const IndexScoreArgs& a) {
  alignas(64) float dots[V::kTileRows * kPageSize];
  const TK* k[kPageSize];
  for (std::int64_t begin = a.begin; begin < a.end; begin += kPageSize) {
    const std::int64_t count = std::min<std::int64_t>(kPageSize, a.end - begin);
    for (std::int64_t i = 0; i < count; ++i)
      k[i] = static_cast<const TK*>(a.k) + a.keys.slot(begin + i) * a.k_stride;
    const auto row = [&](std::int64_t i) { return k[i]; };
    for (std::int64_t t = 0; t < a.tokens; ++t) {
      float* total = a.scores + t * a.scores_stride + begin;
      for (std::int64_t h = 0; h < a.heads; h += V::kTileRows) {
        const int rows = static_cast<int>(std::min<std::int64_t>(V::kTileRows, a.heads - h));
        const float* q[V::kTileRows];
        for (int i = 0; i < rows; ++i) q[i] = a.q + t * a.q_stride + (h + i) * a.q_head_stride;
        dot_some_rows<V, float, TK>(rows, q, row, count, a.d, dots, kPageSize);
        add_index_heads<V>(dots, a.weights + t * a.weights_stride + h, rows, count, h == 0, total);
      }
    }
  }
}

}  // namespace sluice::cpu
