// How weights that stream past few rows lie in shared memory
// (kernels/cuda/gemm/weight_pipeline.cuh), for those who plan launches.
#pragma once

#include <cstdint>

namespace sluice::cuda {

inline constexpr int kPipelineWarps = 8;
inline constexpr int kPipelineThreads = kPipelineWarps * 32;
// of a unit: what a warp asks for at once, of a part of a tile
inline constexpr int kPartBytes = 2 << 10;
inline constexpr int kPipelineRows = 16;  // of weights, of a part of a tile
// elements between rows of x in shared memory, against bank conflicts
inline constexpr int kXPadding = 32;
inline constexpr int kUnitColumns = kPartBytes / 2 / kPipelineRows;
inline constexpr int kTurnColumns = kPipelineWarps * kUnitColumns;  // each warp takes a unit

// Shared memory of a block of which a multiprocessor holds one: two would leave another without,
// and the kernel would take as long as both. Beside it there is room for a block of the kernel
// before or after with less.
inline constexpr std::int64_t kAloneBytes = 113 * 1024 + 512;

// Units that a warp's ring holds.
template <int kParts>
inline constexpr int kPipelineStages = kParts == 1 ? 5 : 3;
// of one part, in a block that is alone of its kernel: see kAloneBytes
inline constexpr int kAloneStages = 6;
// Where a block may not have that much.
template <int kParts>
inline constexpr int kFewPipelineStages = kParts == 1 ? 3 : 2;

constexpr std::int64_t pipeline_bytes(int parts, int stages) {
  return std::int64_t{kPipelineWarps} * stages * parts * kPartBytes;
}

// The sums of a block's warps, to be joined: [turn][part][warp][row of x][row of w], padded so that
// a warp's stores do not collide. Two turns, so that one barrier a tile is enough.
inline constexpr int kReductionStride = kPipelineRows + 4;
// of a part, for a row of x
inline constexpr std::int64_t kReductionBytes =
    std::int64_t{2} * kPipelineWarps * kReductionStride * 4;

}  // namespace sluice::cuda
