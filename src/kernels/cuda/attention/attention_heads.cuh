// New heads of a row of attention, normalised and rotated by the kernel that attends with them.
#pragma once

#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/common/common.cuh"

namespace sluice::cuda {

inline constexpr int kHeadWarps = 4;  // of a block

// What new heads become, for a block.
template <int kDim, int kHeads>
struct MadeHeads {
  alignas(16) Bf16 query[kHeads][kDim + 8];  // times the scale; rows lie in different banks
  alignas(16) Bf16 newest[2][kDim];          // key, value
  float row[kHeadWarps]
           [kDim];  // a warp's: a head between norm and rotation, then what it knows of all heads
};

// A warp's part of new heads: what it reads, all asked for together, as each has a long way to
// come.
template <int kDim, int kHeads>
class HeadMaker {
 public:
  static constexpr int kEach = kDim / kWarp, kTurns = (kDim / 2 + kWarp - 1) / kWarp,
                       kMost = kHeads / kHeadWarps;

  // The weights of the norms, which no kernel writes.
  __device__ void load_weights(const NewHeads& a) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      q_weight_[j] = a.q_weight == nullptr ? 1.0f : a.q_weight[lane + j * kWarp];
      k_weight_[j] = a.k_weight == nullptr ? 1.0f : a.k_weight[lane + j * kWarp];
    }
  }

  // The queries of row t from head `first` on; with `newest` its key and value too, which are
  // stored when `stores`.
  __device__ void make(const PagedArgs& paged, const NewHeads& a, std::int64_t t, int kv,
                       std::int64_t first, int heads, bool newest, bool stores,
                       MadeHeads<kDim, kHeads>& made) {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    // Key and value are the first warps' and the queries begin with the last.
    const auto head_of = [&](int i) { return kHeadWarps - 1 - warp + i * kHeadWarps; };
    const bool owns = newest && warp < 2;
    float query[kMost][kEach], own[kEach], cosine[kTurns], sine[kTurns];
    std::int64_t slot = 0;
#pragma unroll
    for (int i = 0; i < kMost; ++i)
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        query[i][j] =
            head_of(i) < heads
                ? paged
                      .q[t * paged.q_token + (first + head_of(i)) * paged.q_head + lane + j * kWarp]
                : 0.0f;
    const float* from =
        warp == 0 ? a.k + t * a.k_token + kv * kDim : a.v + t * a.v_token + kv * kDim;
#pragma unroll
    for (int j = 0; j < kEach; ++j) own[j] = owns ? from[lane + j * kWarp] : 0.0f;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int at = lane + i * kWarp;
      cosine[i] = at < a.half ? a.cos_sin[t * a.cos_sin_stride + at] : 1.0f;
      sine[i] = at < a.half ? a.cos_sin[t * a.cos_sin_stride + a.half + at] : 0.0f;
    }
    if (owns) expect_below(slot = a.slots[t], paged.num_slots);

    float* row = made.row[warp];
    if (owns && warp == 0)
      turn(a, own, k_weight_, a.k_weight != nullptr, cosine, sine, row, [&](int i, float x) {
        made.newest[0][i] = narrow<Bf16>(x);
        if (stores)
          static_cast<Bf16*>(a.k_plane)[slot * paged.k_slot + kv * kDim + i] = narrow<Bf16>(x);
      });
    if (owns && warp == 1)
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int i = lane + j * kWarp;
        made.newest[1][i] = narrow<Bf16>(own[j]);
        if (stores)
          static_cast<Bf16*>(a.v_plane)[slot * paged.v_slot + kv * kDim + i] = narrow<Bf16>(own[j]);
      }
#pragma unroll
    for (int i = 0; i < kMost; ++i)
      if (head_of(i) < heads)
        turn(a, query[i], q_weight_, a.q_weight != nullptr, cosine, sine, row,
             [&](int at, float x) {
               made.query[head_of(i)][at] = narrow<Bf16>(x * paged.scale_log2);
             });
  }

 private:
  // put(i, element i of the head x, normalised and rotated).
  template <class Put>
  __device__ void turn(const NewHeads& a, float (&x)[kEach], const float (&weight)[kEach],
                       bool normalises, const float (&cosine)[kTurns], const float (&sine)[kTurns],
                       float* row, Put&& put) {
    const int lane = threadIdx.x % kWarp;
    if (normalises) {
      float squares = 0;
#pragma unroll
      for (int j = 0; j < kEach; ++j) squares = fmaf(x[j], x[j], squares);
      const float factor = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(kDim) + a.eps);
#pragma unroll
      for (int j = 0; j < kEach; ++j) x[j] = x[j] * factor * weight[j];
    }
    __syncwarp();  // the head before is done with
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      row[lane + j * kWarp] = x[j];
      if (lane + j * kWarp >= 2 * a.half) put(lane + j * kWarp, x[j]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int at = lane + i * kWarp;
      if (at >= a.half) continue;
      const int first = a.interleaved ? 2 * at : at,
                second = a.interleaved ? 2 * at + 1 : a.half + at;
      const float u = row[first], v = row[second];
      put(first, u * cosine[i] - v * sine[i]);
      put(second, v * cosine[i] + u * sine[i]);
    }
  }

  float q_weight_[kEach], k_weight_[kEach];
};

}  // namespace sluice::cuda
