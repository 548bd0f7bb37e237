// How weights that stream past few rows lie in shared memory (kernels/cuda/weight_ring.cuh), for those who plan launches.
#pragma once

#include <cstdint>

namespace sluice::cuda {

inline constexpr int kRingWarps = 8;
inline constexpr int kRingThreads = kRingWarps * 32;
inline constexpr int kPartBytes = 2 << 10;   // of a unit: what a warp asks for at once, of a part of a tile
inline constexpr int kRingRows = 16;         // of weights, of a part of a tile
inline constexpr int kXPadding = 32;         // elements between rows of x in shared memory, against bank conflicts
inline constexpr int kUnitColumns = kPartBytes / 2 / kRingRows;
inline constexpr int kTurnColumns = kRingWarps * kUnitColumns;   // each warp takes a unit

// Shared memory of a block of which a multiprocessor holds one: two would leave another without, and the kernel would take
// as long as both. Beside it there is room for a block of the kernel before or after with less.
inline constexpr std::int64_t kAloneBytes = 113 * 1024 + 512;

// Units that a warp's ring holds.
template <int kParts>
inline constexpr int kRingStages = kParts == 1 ? 5 : 3;
inline constexpr int kAloneStages = 6;   // of one part, in a block that is alone of its kernel: see kAloneBytes
// Where a block may not have that much.
template <int kParts>
inline constexpr int kFewRingStages = kParts == 1 ? 3 : 2;

constexpr std::int64_t ring_bytes(int parts, int stages) { return std::int64_t{kRingWarps} * stages * parts * kPartBytes; }

// The sums of a block's warps, to be joined: [turn][part][warp][row of x][row of w], padded so that a warp's stores do not
// collide. Two turns, so that one barrier a tile is enough.
inline constexpr int kJoinStride = kRingRows + 4;
inline constexpr std::int64_t kJoinBytes = std::int64_t{2} * kRingWarps * kJoinStride * 4;   // of a part, for a row of x

}  // namespace sluice::cuda
