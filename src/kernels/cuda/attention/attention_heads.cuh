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

// New heads after norm and RoPE, for a CTA.
template <int kDim, int kHeads, class Pages>
struct PreparedHeads {
  // Queries times the scale. The padding puts rows into different banks.
  alignas(16) Bf16 query[kHeads][kDim + 8];
  alignas(16) typename Pages::Element newest[2][kDim];  // key, value
  // A row of each warp: a head between norm and rotation. After that the caller keeps maxima and
  // sums of all heads there.
  float row[kHeadWarps][kDim];
};

// The part of a warp: up to kMaxHeads queries, and for the first two warps the key or the value.
template <int kDim, int kHeads, class Pages>
class HeadPrologue {
 public:
  static constexpr int kLaneElements = kDim / kWarp;
  static constexpr int kPairs = (kDim / 2 + kWarp - 1) / kWarp;  // rotated by a lane
  static constexpr int kMaxHeads = kHeads / kHeadWarps;

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
                          bool stores_newest, PreparedHeads<kDim, kHeads, Pages>& prepared) {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    // Warps 0 and 1 have key and value, so the queries are dealt from the last warp on.
    const auto head_of = [&](int i) { return kHeadWarps - 1 - warp + i * kHeadWarps; };
    const bool has_kv = has_newest && warp < 2;
    // 2. Loads.
    float query[kMaxHeads][kLaneElements], kv_row[kLaneElements], cosine[kPairs], sine[kPairs];
    std::int64_t slot = 0;
#pragma unroll
    for (int i = 0; i < kMaxHeads; ++i)
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j)
        query[i][j] = head_of(i) < num_heads
                          ? paged.q[token * paged.q_token + (first + head_of(i)) * paged.q_head +
                                    lane + j * kWarp]
                          : 0.0f;
    const float* from = warp == 0 ? a.k + token * a.k_token + kv_head * kDim
                                  : a.v + token * a.v_token + kv_head * kDim;
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) kv_row[j] = has_kv ? from[lane + j * kWarp] : 0.0f;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int at = lane + i * kWarp;
      cosine[i] = at < a.half ? a.cos_sin[token * a.cos_sin_stride + at] : 1.0f;
      sine[i] = at < a.half ? a.cos_sin[token * a.cos_sin_stride + a.half + at] : 0.0f;
    }
    if (has_kv) expect_below(slot = a.slots[token], paged.num_slots);

    // 3. and 4. of the key, the value as it is, then the queries.
    float* row = prepared.row[warp];
    using Element = typename Pages::Element;
    const float* scales = warp == 0 ? paged.k_scales : paged.v_scales;
    const float factor =
        Pages::kHasScales && has_kv && scales != nullptr ? 1.0f / scales[kv_head] : 1.0f;
    if (has_kv && warp == 0)
      normalize_and_rotate(
          a, kv_row, k_weight_, a.k_weight != nullptr, cosine, sine, row, [&](int i, float x) {
            prepared.newest[0][i] = Pages::narrowed(x, factor);
            if (stores_newest)
              static_cast<Element*>(a.k_plane)[slot * paged.k_slot + kv_head * kDim + i] =
                  prepared.newest[0][i];
          });
    if (has_kv && warp == 1)
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) {
        const int i = lane + j * kWarp;
        prepared.newest[1][i] = Pages::narrowed(kv_row[j], factor);
        if (stores_newest)
          static_cast<Element*>(a.v_plane)[slot * paged.v_slot + kv_head * kDim + i] =
              prepared.newest[1][i];
      }
#pragma unroll
    for (int i = 0; i < kMaxHeads; ++i)
      if (head_of(i) < num_heads)
        normalize_and_rotate(a, query[i], q_weight_, a.q_weight != nullptr, cosine, sine, row,
                             [&](int at, float x) {
                               prepared.query[head_of(i)][at] = narrow<Bf16>(x * paged.scale_log2);
                             });
  }

 private:
  // Calls store(i, element i of the head after norm and rotation).
  template <class Store>
  __device__ void normalize_and_rotate(const NewHeads& a, float (&x)[kLaneElements],
                                       const float (&weight)[kLaneElements], bool has_norm,
                                       const float (&cosine)[kPairs], const float (&sine)[kPairs],
                                       float* row, Store&& store) {
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
      store(first, u * cosine[i] - v * sine[i]);
      store(second, v * cosine[i] + u * sine[i]);
    }
  }

  float q_weight_[kLaneElements], k_weight_[kLaneElements];
};

}  // namespace sluice::cuda
