// Shared memory of the weight pipeline (kernels/cuda/gemm/weight_pipeline.cuh), for the functions
// that plan launches.
#pragma once

#include <cstdint>

namespace sluice::cuda {

inline constexpr int kPipelineWarps = 8;
inline constexpr int kPipelineThreads = kPipelineWarps * 32;
// Bytes of a unit for one part of a tile: what a warp issues at once.
inline constexpr int kPartBytes = 2 << 10;
inline constexpr int kPipelineRows = 16;  // rows of weights for one part of a tile
// Elements between rows of x in shared memory, against bank conflicts.
inline constexpr int kXPadding = 32;
inline constexpr int kUnitColumns = kPartBytes / 2 / kPipelineRows;
inline constexpr int kTurnColumns = kPipelineWarps * kUnitColumns;  // each warp takes a unit

// Shared memory that lets an SM hold only one CTA of the kernel. With two on one SM another SM
// would be idle, and the kernel would take as long as both. A smaller CTA of the kernel before or
// after still fits beside it.
inline constexpr std::int64_t kAloneBytes = 113 * 1024 + 512;

// Stages of a warp's pipeline.
template <int kParts>
inline constexpr int kPipelineStages = kParts == 1 ? 5 : 3;
// One part, one CTA an SM (kAloneBytes).
inline constexpr int kAloneStages = 6;
// For GPUs and shapes with less shared memory.
template <int kParts>
inline constexpr int kFewPipelineStages = kParts == 1 ? 3 : 2;

constexpr std::int64_t pipeline_bytes(int parts, int stages) {
  return std::int64_t{kPipelineWarps} * stages * parts * kPartBytes;
}

// Sums of the warps: [turn][part][warp][row of x][row of w], padded against bank conflicts. Two
// turns, so that one barrier a tile is enough.
inline constexpr int kReductionStride = kPipelineRows + 4;
// Bytes for one part and one row of x.
inline constexpr std::int64_t kReductionBytes =
    std::int64_t{2} * kPipelineWarps * kReductionStride * 4;

}  // namespace sluice::cuda
