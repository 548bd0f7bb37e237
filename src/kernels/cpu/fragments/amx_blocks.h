// How GEMMs on AMX cut x and weights in fragments into blocks. Two tiles of w meet two of x in the
// registers. x of some columns stays in L2 while four such pairs pass.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/context.h"

namespace sluice::cpu {

inline constexpr std::int64_t kPairTiles = 2, kPairsAtOnce = 4;
// Rows of x that are laid out at once, and meet two tiles of w.
inline constexpr std::int64_t kMaxAmxBlockRows = 512, kAmxGroupRows = 32;
inline constexpr std::int64_t kMaxAmxGroups = kMaxAmxBlockRows / kAmxGroupRows;

// Rows of x of `row_bytes` that are laid out at once: 8 MiB of them, but at least 96.
inline std::int64_t amx_block_rows(std::int64_t row_bytes) {
  return std::clamp<std::int64_t>((8 << 20) / row_bytes / kAmxGroupRows * kAmxGroupRows, 96,
                                  kMaxAmxBlockRows);
}

// Tiles of w, of `tiles`, that a thread takes together: all pairs, where every thread has enough.
inline std::int64_t amx_tiles_at_once(const Context& ctx, std::int64_t tiles) {
  constexpr std::int64_t kAll = kPairsAtOnce * kPairTiles;
  const std::int64_t threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
  return tiles >= 4 * kAll * threads ? kAll : kPairTiles;
}

}  // namespace sluice::cpu
