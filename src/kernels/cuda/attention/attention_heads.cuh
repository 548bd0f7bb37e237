// Prologue of decode attention: norm and RoPE of a row's new heads, in the kernel that attends. A
// warp takes one head at a time, and a lane has neighbouring elements of it.
//
// 1. load_weights   norm weights, which no kernel writes, so they may load before the wait
// 2. load_queries, load_angles
//                   all loads of the warp before the first use, because each has a long latency
// 3. normalize      RMSNorm in registers
// 4. rotate         RoPE: the other element of a pair comes by a shuffle, or from the same lane
#pragma once

#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/attention/attention_pages.cuh"
#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/lane_elements.cuh"

namespace sluice::cuda {

inline constexpr int kHeadWarps = 4;  // of a CTA

// New queries after norm and RoPE, for a CTA.
template <int kDim, int kHeads>
struct PreparedHeads {
  // Queries times the scale. The padding puts rows into different banks.
  alignas(16) Bf16 query[kHeads][kDim + 8];
};

// Key and value of a new row, as the pool keeps them.
template <int kDim, class Pages>
using NewRow = typename Pages::Element[2][kDim];

// The part of a warp: up to kMaxHeads queries, and keys and values.
template <int kDim, int kHeads, class Pages>
class HeadPrologue {
 public:
  static constexpr int kLaneElements = kDim / kWarp;
  static constexpr int kMaxHeads = kHeads / kHeadWarps;
  static constexpr int kMaxKeys = kMaxNewRows / kHeadWarps;  // of a run
  using Element = typename Pages::Element;
  using Row = NewRow<kDim, Pages>;
  static_assert(kMaxNewRows % kHeadWarps == 0);

  // The queries of `token` from head `first` on. With `has_newest` also its key and value. They go
  // to the pool when `stores_newest`, in one CTA of a KV head. The wait for earlier kernels comes
  // after all loads that do not depend on them.
  __device__ void prepare(const PagedArgs& paged, const NewHeads& a, std::int64_t token,
                          int kv_head, std::int64_t first, int num_heads, bool has_newest,
                          bool stores_newest, PreparedHeads<kDim, kHeads>& prepared, Row& newest) {
    const int warp = threadIdx.x / kWarp;
    // Warps 0 and 1 have key and value.
    const bool has_kv = has_newest && warp < 2;
    const float* const queries = paged.q + token * paged.q_token + first * paged.q_head + own();
    const float* const from =
        (warp == 0 ? a.k + token * a.k_token : a.v + token * a.v_token) + kv_head * kDim + own();
    const float* const cosines = a.cos_sin + token * a.cos_sin_stride;
    const float* const scales = warp == 0 ? paged.k_scales : paged.v_scales;
    const float factor =
        Pages::kHasScales && has_kv && scales != nullptr ? 1.0f / scales[kv_head] : 1.0f;
    std::int64_t slot = 0;
    if (has_kv) expect_below(slot = a.slots[token], paged.num_slots);
    load_weights(a);
    wait_for_earlier_kernels();

    // 2. Loads.
    float query[kMaxHeads][kLaneElements], kv_row[kLaneElements];
    Angles angles;
    load_queries(paged, queries, num_heads, query);
    if (has_kv) load_elements(from, kv_row);
    load_angles(a, cosines, angles);

    // 3. and 4. of the key, the value as it is, then the queries.
    if (has_kv && warp == 0)
      put_key(paged, a, kv_row, angles, factor, kv_head, slot, stores_newest, newest);
    if (has_kv && warp == 1)
      put_value(paged, a, kv_row, factor, kv_head, slot, stores_newest, newest);
    put_queries(paged, a, query, angles, num_heads, prepared);
  }

  // The same with the keys and values of the rows [first_row, first_row + num_rows), up to
  // kMaxNewRows. Those of `token`, if it is one of them, go to the pool when `stores_newest`.
  __device__ void prepare_run(const PagedArgs& paged, const NewHeads& a, std::int64_t token,
                              int kv_head, std::int64_t first, int num_heads,
                              std::int64_t first_row, int num_rows, bool stores_newest,
                              PreparedHeads<kDim, kHeads>& prepared, Row* newest) {
    const int warp = threadIdx.x / kWarp;
    const auto row_of = [&](int i) { return warp + i * kHeadWarps; };
    load_weights(a);
    wait_for_earlier_kernels();
    // 2. Loads.
    float query[kMaxHeads][kLaneElements], key[kMaxKeys][kLaneElements],
        value[kMaxKeys][kLaneElements];
    Angles angles, key_angles[kMaxKeys];
    std::int64_t slot = 0;
    load_queries(paged, paged.q + token * paged.q_token + first * paged.q_head + own(), num_heads,
                 query);
    load_angles(a, a.cos_sin + token * a.cos_sin_stride, angles);
#pragma unroll
    for (int i = 0; i < kMaxKeys; ++i) {
      if (row_of(i) >= num_rows) continue;
      const std::int64_t row = first_row + row_of(i);
      load_elements(a.k + row * a.k_token + kv_head * kDim + own(), key[i]);
      load_elements(a.v + row * a.v_token + kv_head * kDim + own(), value[i]);
      load_angles(a, a.cos_sin + row * a.cos_sin_stride, key_angles[i]);
      if (row == token) expect_below(slot = a.slots[row], paged.num_slots);
    }
    float k_factor = 1, v_factor = 1;
    if (Pages::kHasScales && warp < num_rows) {
      if (paged.k_scales != nullptr) k_factor = 1.0f / paged.k_scales[kv_head];
      if (paged.v_scales != nullptr) v_factor = 1.0f / paged.v_scales[kv_head];
    }

    // 3. and 4. of the keys, the values as they are, then the queries.
#pragma unroll
    for (int i = 0; i < kMaxKeys; ++i) {
      if (row_of(i) >= num_rows) continue;
      const bool is_stored = stores_newest && first_row + row_of(i) == token;
      Row& to = newest[row_of(i)];
      put_key(paged, a, key[i], key_angles[i], k_factor, kv_head, slot, is_stored, to);
      put_value(paged, a, value[i], v_factor, kv_head, slot, is_stored, to);
    }
    put_queries(paged, a, query, angles, num_heads, prepared);
  }

 private:
  // Cosines and sines for the elements of this lane. A sine has the sign of its term in rotate().
  struct Angles {
    float cosine[kLaneElements], sine[kLaneElements];
  };

  // The first element of this lane.
  __device__ static int own() { return static_cast<int>(threadIdx.x) % kWarp * kLaneElements; }

  // Warp 0 has a key in any case, so the queries are dealt from the last warp on.
  __device__ static int head_of(int i) {
    return kHeadWarps - 1 - static_cast<int>(threadIdx.x / kWarp) + i * kHeadWarps;
  }

  // 1.
  __device__ void load_weights(const NewHeads& a) {
    if (a.q_weight != nullptr) load_elements(a.q_weight + own(), q_weight_);
    if (a.k_weight != nullptr) load_elements(a.k_weight + own(), k_weight_);
  }

  // 2. from: the elements of this lane of the first query.
  __device__ __forceinline__ void load_queries(const PagedArgs& paged, const float* from,
                                               int num_heads,
                                               float (&query)[kMaxHeads][kLaneElements]) {
#pragma unroll
    for (int i = 0; i < kMaxHeads; ++i)
      if (head_of(i) < num_heads) load_elements(from + head_of(i) * paged.q_head, query[i]);
  }
  __device__ __forceinline__ void load_angles(const NewHeads& a, const float* cosines, Angles& to) {
    if (own() >= 2 * a.half) return;
    if (a.interleaved) {
#pragma unroll
      for (int e = 0; e < kLaneElements; ++e) {
        const int pair = (own() + e) / 2;
        to.cosine[e] = cosines[pair];
        to.sine[e] = e % 2 == 0 ? -cosines[a.half + pair] : cosines[a.half + pair];
      }
    } else {
      const bool is_first = own() < a.half;
      const int pair = own() - (is_first ? 0 : a.half);
      load_elements(cosines + pair, to.cosine);
      load_elements(cosines + a.half + pair, to.sine);
#pragma unroll
      for (int e = 0; e < kLaneElements; ++e) to.sine[e] = is_first ? -to.sine[e] : to.sine[e];
    }
  }

  // 3. and 4. to shared memory, and to the pool where `is_stored`.
  __device__ __forceinline__ void put_key(const PagedArgs& paged, const NewHeads& a,
                                          float (&x)[kLaneElements], const Angles& angles,
                                          float factor, int kv_head, std::int64_t slot,
                                          bool is_stored, Row& newest) {
    if (a.k_weight != nullptr) normalize(x, k_weight_, a.eps);
    rotate(a, x, angles);
    const auto narrowed = NarrowElements<Element, kLaneElements>::of(
        x, [&](float y) { return Pages::narrowed(y, factor); });
    narrowed.store(newest[0] + own());
    if (is_stored)
      narrowed.store(static_cast<Element*>(a.k_plane) + slot * paged.k_slot + kv_head * kDim +
                     own());
  }
  __device__ __forceinline__ void put_value(const PagedArgs& paged, const NewHeads& a,
                                            const float (&x)[kLaneElements], float factor,
                                            int kv_head, std::int64_t slot, bool is_stored,
                                            Row& newest) {
    const auto narrowed = NarrowElements<Element, kLaneElements>::of(
        x, [&](float y) { return Pages::narrowed(y, factor); });
    narrowed.store(newest[1] + own());
    if (is_stored)
      narrowed.store(static_cast<Element*>(a.v_plane) + slot * paged.v_slot + kv_head * kDim +
                     own());
  }
  __device__ __forceinline__ void put_queries(const PagedArgs& paged, const NewHeads& a,
                                              float (&query)[kMaxHeads][kLaneElements],
                                              const Angles& angles, int num_heads,
                                              PreparedHeads<kDim, kHeads>& prepared) {
#pragma unroll
    for (int i = 0; i < kMaxHeads; ++i) {
      if (head_of(i) >= num_heads) continue;
      if (a.q_weight != nullptr) normalize(query[i], q_weight_, a.eps);
      rotate(a, query[i], angles);
      NarrowElements<Bf16, kLaneElements>::of(query[i], [&](float x) {
        return narrow<Bf16>(x * paged.scale_log2);
      }).store(prepared.query[head_of(i)] + own());
    }
  }

  // 3.
  __device__ static void normalize(float (&x)[kLaneElements], const float (&weight)[kLaneElements],
                                   float eps) {
    float squares = 0;
#pragma unroll
    for (int e = 0; e < kLaneElements; ++e) squares = fmaf(x[e], x[e], squares);
    const float factor = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(kDim) + eps);
#pragma unroll
    for (int e = 0; e < kLaneElements; ++e) x[e] = x[e] * factor * weight[e];
  }

  // 4. Pairs are neighbours if interleaved. Otherwise they are half / kLaneElements lanes apart.
  __device__ static void rotate(const NewHeads& a, float (&x)[kLaneElements],
                                const Angles& angles) {
    const int lane = threadIdx.x % kWarp, lanes = a.half / kLaneElements,
              partner = lane < lanes ? lane + lanes : lane - lanes;
    float other[kLaneElements];
#pragma unroll
    for (int e = 0; e < kLaneElements; ++e)
      other[e] = a.interleaved ? x[(e ^ 1) % kLaneElements]
                               : __shfl_sync(kAllLanes, x[e], partner % kWarp);
    if (own() >= 2 * a.half) return;
#pragma unroll
    for (int e = 0; e < kLaneElements; ++e)
      x[e] = x[e] * angles.cosine[e] + other[e] * angles.sine[e];
  }

  float q_weight_[kLaneElements], k_weight_[kLaneElements];
};

}  // namespace sluice::cuda
