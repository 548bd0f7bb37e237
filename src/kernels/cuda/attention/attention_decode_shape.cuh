// What the phases of decode attention share: arguments, shared memory and fragments of a CTA
// (attention_decode_phases.cuh).
#pragma once

#include "kernels/cuda/attention/attention_heads.cuh"
#include "kernels/cuda/common/cluster.cuh"

namespace sluice::cuda::decode {

inline constexpr int kDecodeWarps = kHeadWarps;
inline constexpr int kDecodeThreads = kDecodeWarps * kWarp;
inline constexpr int kShareBits = 20;  // fraction bits of DecodeArgs::share_inverse
inline constexpr int kWarpKeys = 16;   // keys of a page for each warp: the M side of one MMA
static_assert(kWarpKeys * kDecodeWarps == kPageSize);

struct DecodeArgs {
  PagedArgs a;
  NewHeads heads;
  int splits = 1, head_blocks = 1, heads_each = 1;
  bool is_cluster = false;  // the splits of a row are one cluster
  // Output elements that each CTA of a cluster merges, and 2^20 / share rounded up.
  int share = 0, share_inverse = 0;
  bool single_rows_only = false;
  // [units][splits][heads][dim], then [units][splits][heads] of log2 sums
  float* partial = nullptr;
  float* partial_lse = nullptr;
  std::uint32_t* counters = nullptr;  // [units]: splits that have ended
};

// Dynamic shared memory of a CTA, in bytes. Each warp has a pipeline of its own.
template <int kDim, int kHeads, int kStages, class Pages>
struct DecodeShape {
  // 16 bytes of padding put the 8 rows of an ldmatrix into different banks.
  static constexpr int kRowBytes = kDim * Pages::kBytes + 16;
  static constexpr int kTileBytes = kWarpKeys * kRowBytes;
  static constexpr int kStageBytes = 2 * kTileBytes;  // keys, then values
  static constexpr int kWarpBytes = kStages * kStageBytes;
  static constexpr int kPipeline = kDecodeWarps * kWarpBytes;
  static constexpr int kOutputRow = kDim + 4;  // padded against bank conflicts
  // The outputs of the warps reuse the memory of the pipeline.
  static constexpr int kOutput = kDecodeWarps * kOutputRow * kHeads * 4;
  static constexpr int kBytes = kPipeline > kOutput ? kPipeline : kOutput;
};

// Static shared memory of a CTA.
template <int kDim, int kHeads, class Pages>
struct DecodeShared {
  bool& is_last;
  PreparedHeads<kDim, kHeads>& prepared;
  // Keys and values that the pool does not have yet: of one row, or of a run. A run's lie where
  // `received` comes later.
  NewRow<kDim, Pages>* newest;
  // In a cluster: from every split, this CTA's share of the output and the log2 sums of all heads.
  float (&received)[kHeads * kDim + 2 * kMaxCluster];
  float (&received_lse)[kMaxCluster][kHeads];
  // Maximum and sum of each warp, by head.
  float (&warp_max)[kDecodeWarps][kHeads];
  float (&warp_sum)[kDecodeWarps][kHeads];
};

// Fragments of a warp that live for the whole row.
template <int kDim, int kHeadTiles>
struct DecodeFragments {
  std::uint32_t q_frag[kHeadTiles][kDim / 16][2];
  float score_scale[kHeadTiles][2];  // of e4m3 alone
  float row_max[kHeadTiles][2], row_sum[kHeadTiles][2], acc[kDim / 16][kHeadTiles][4];
};

// Fragments of a warp for one page: the scores, then the weights.
template <int kHeadTiles>
struct PageFragments {
  float score[kHeadTiles][4];
  std::uint32_t p_frag[kHeadTiles][2];
  float rescale[kHeadTiles][2];
};

}  // namespace sluice::cuda::decode
