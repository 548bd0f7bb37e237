// Prologue of decode attention: norm and RoPE of the new heads of a row, in the kernel that attends
// with them. One warp takes one head at a time.
//
// 1. load_weights   norm weights, which no kernel writes, so they may load before the wait
// 2. load_heads     all loads of the warp before the first use, because each has a long latency
// 3. normalize      RMSNorm in registers
// 4. rotate         RoPE through a row of shared memory: the two halves meet in different lanes
#pragma once

#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/attention/attention_pages.cuh"
#include "kernels/cuda/common/common.cuh"

namespace sluice::cuda {

inline constexpr int kHeadWarps = 4;  // of a CTA

// New queries after norm and RoPE, for a CTA.
template <int kDim, int kHeads>
struct PreparedHeads {
  // Queries times the scale. The padding puts rows into different banks.
  alignas(16) Bf16 query[kHeads][kDim + 8];
  // A row of each warp: a head between norm and rotation. After that the caller keeps maxima and
  // sums of all heads there.
  float row[kHeadWarps][kDim];
};

// Key and value of a new row, as the pool keeps them.
template <int kDim, class Pages>
using NewRow = typename Pages::Element[2][kDim];

// The part of a warp: up to kMaxHeads queries, and keys and values.
template <int kDim, int kHeads, class Pages>
class HeadPrologue {
 public:
  static constexpr int kLaneElements = kDim / kWarp;
  static constexpr int kPairs = (kDim / 2 + kWarp - 1) / kWarp;  // rotated by a lane
  static constexpr int kMaxHeads = kHeads / kHeadWarps;
  static constexpr int kMaxKeys = kMaxNewRows / kHeadWarps;  // of a run
  using Element = typename Pages::Element;
  using Row = NewRow<kDim, Pages>;
  static_assert(kMaxNewRows % kHeadWarps == 0);

  // 1.
  __device__ void load_weights(const NewHeads& a) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) {
      q_weight_[j] = a.q_weight == nullptr ? 1.0f : a.q_weight[lane + j * kWarp];
      k_weight_[j] = a.k_weight == nullptr ? 1.0f : a.k_weight[lane + j * kWarp];
    }
  }

  // The queries of `token` from head `first` on. With `has_newest` also its key and value, which go
  // to the pool when `stores_newest`: one CTA of a KV head stores them.
  __device__ void prepare(const PagedArgs& paged, const NewHeads& a, std::int64_t token,
                          int kv_head, std::int64_t first, int num_heads, bool has_newest,
                          bool stores_newest, PreparedHeads<kDim, kHeads>& prepared, Row& newest) {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    // Warps 0 and 1 have key and value.
    const bool has_kv = has_newest && warp < 2;
    // 2. Loads.
    float query[kMaxHeads][kLaneElements], kv_row[kLaneElements];
    Angles angles;
    std::int64_t slot = 0;
    load_queries(paged, token, first, num_heads, query);
    const float* from = warp == 0 ? a.k + token * a.k_token + kv_head * kDim
                                  : a.v + token * a.v_token + kv_head * kDim;
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) kv_row[j] = has_kv ? from[lane + j * kWarp] : 0.0f;
    load_angles(a, token, angles);
    if (has_kv) expect_below(slot = a.slots[token], paged.num_slots);

    // 3. and 4. of the key, the value as it is, then the queries.
    const float* scales = warp == 0 ? paged.k_scales : paged.v_scales;
    const float factor =
        Pages::kHasScales && has_kv && scales != nullptr ? 1.0f / scales[kv_head] : 1.0f;
    if (has_kv && warp == 0)
      put_key(paged, a, kv_row, angles, factor, kv_head, slot, stores_newest, prepared, newest);
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
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const auto row_of = [&](int i) { return warp + i * kHeadWarps; };
    // 2. Loads.
    float query[kMaxHeads][kLaneElements], key[kMaxKeys][kLaneElements],
        value[kMaxKeys][kLaneElements];
    Angles angles, key_angles[kMaxKeys];
    std::int64_t slot = 0;
    load_queries(paged, token, first, num_heads, query);
    load_angles(a, token, angles);
#pragma unroll
    for (int i = 0; i < kMaxKeys; ++i) {
      if (row_of(i) >= num_rows) continue;
      const std::int64_t row = first_row + row_of(i);
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) {
        key[i][j] = a.k[row * a.k_token + kv_head * kDim + lane + j * kWarp];
        value[i][j] = a.v[row * a.v_token + kv_head * kDim + lane + j * kWarp];
      }
      load_angles(a, row, key_angles[i]);
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
      put_key(paged, a, key[i], key_angles[i], k_factor, kv_head, slot, is_stored, prepared, to);
      put_value(paged, a, value[i], v_factor, kv_head, slot, is_stored, to);
    }
    put_queries(paged, a, query, angles, num_heads, prepared);
  }

 private:
  // Cosines and sines of a row. Where a.half ends, the lane rotates by nothing.
  struct Angles {
    float cosine[kPairs], sine[kPairs];
  };

  // Warp 0 has a key in any case, so the queries are dealt from the last warp on.
  __device__ static int head_of(int i) {
    return kHeadWarps - 1 - static_cast<int>(threadIdx.x / kWarp) + i * kHeadWarps;
  }

  // 2.
  __device__ __forceinline__ void load_queries(const PagedArgs& paged, std::int64_t token,
                                               std::int64_t first, int num_heads,
                                               float (&query)[kMaxHeads][kLaneElements]) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < kMaxHeads; ++i)
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j)
        query[i][j] = head_of(i) < num_heads
                          ? paged.q[token * paged.q_token + (first + head_of(i)) * paged.q_head +
                                    lane + j * kWarp]
                          : 0.0f;
  }
  __device__ __forceinline__ void load_angles(const NewHeads& a, std::int64_t token, Angles& to) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int at = lane + i * kWarp;
      to.cosine[i] = at < a.half ? a.cos_sin[token * a.cos_sin_stride + at] : 1.0f;
      to.sine[i] = at < a.half ? a.cos_sin[token * a.cos_sin_stride + a.half + at] : 0.0f;
    }
  }

  // 3. and 4. to shared memory, and to the pool where `is_stored`.
  __device__ __forceinline__ void put_key(const PagedArgs& paged, const NewHeads& a,
                                          float (&x)[kLaneElements], const Angles& angles,
                                          float factor, int kv_head, std::int64_t slot,
                                          bool is_stored, PreparedHeads<kDim, kHeads>& prepared,
                                          Row& newest) {
    normalize_and_rotate(
        a, x, k_weight_, a.k_weight != nullptr, angles, prepared.row[threadIdx.x / kWarp],
        [&](int i, float y) {
          newest[0][i] = Pages::narrowed(y, factor);
          if (is_stored)
            static_cast<Element*>(a.k_plane)[slot * paged.k_slot + kv_head * kDim + i] =
                newest[0][i];
        });
  }
  __device__ __forceinline__ void put_value(const PagedArgs& paged, const NewHeads& a,
                                            const float (&x)[kLaneElements], float factor,
                                            int kv_head, std::int64_t slot, bool is_stored,
                                            Row& newest) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) {
      const int i = lane + j * kWarp;
      newest[1][i] = Pages::narrowed(x[j], factor);
      if (is_stored)
        static_cast<Element*>(a.v_plane)[slot * paged.v_slot + kv_head * kDim + i] = newest[1][i];
    }
  }
  __device__ __forceinline__ void put_queries(const PagedArgs& paged, const NewHeads& a,
                                              float (&query)[kMaxHeads][kLaneElements],
                                              const Angles& angles, int num_heads,
                                              PreparedHeads<kDim, kHeads>& prepared) {
#pragma unroll
    for (int i = 0; i < kMaxHeads; ++i)
      if (head_of(i) < num_heads)
        normalize_and_rotate(a, query[i], q_weight_, a.q_weight != nullptr, angles,
                             prepared.row[threadIdx.x / kWarp], [&](int at, float x) {
                               prepared.query[head_of(i)][at] = narrow<Bf16>(x * paged.scale_log2);
                             });
  }

  // Calls store(i, element i of the head after norm and rotation).
  template <class Store>
  __device__ void normalize_and_rotate(const NewHeads& a, float (&x)[kLaneElements],
                                       const float (&weight)[kLaneElements], bool has_norm,
                                       const Angles& angles, float* row, Store&& store) {
    const int lane = threadIdx.x % kWarp;
    if (has_norm) {  // 3.
      float squares = 0;
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) squares = fmaf(x[j], x[j], squares);
      const float factor = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(kDim) + a.eps);
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) x[j] = x[j] * factor * weight[j];
    }
    __syncwarp();  // all lanes have read the row of the head before
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) {
      row[lane + j * kWarp] = x[j];
      if (lane + j * kWarp >= 2 * a.half) store(lane + j * kWarp, x[j]);
    }
    __syncwarp();
    // 4. Elements past 2 half are not rotated and were stored above.
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int at = lane + i * kWarp;
      if (at >= a.half) continue;
      const int first = a.interleaved ? 2 * at : at,
                second = a.interleaved ? 2 * at + 1 : a.half + at;
      const float u = row[first], v = row[second];
      store(first, u * angles.cosine[i] - v * angles.sine[i]);
      store(second, v * angles.cosine[i] + u * angles.sine[i]);
    }
  }

  float q_weight_[kLaneElements], k_weight_[kLaneElements];
};

}  // namespace sluice::cuda
