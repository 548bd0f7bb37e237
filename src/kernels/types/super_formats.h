// The formats of GGUF's blocks that a CPU has in tiles: kernels/cpu/gemm/super_layout.h has their
// values. They follow the formats that every device knows. A CPU has MXFP4 in tiles, too. A GPU has
// most in fragments: kernels/types/block_units.h.
#pragma once

#include "kernels/types/weight.h"

namespace sluice::ops {

inline constexpr int kFirstSuperFormat = static_cast<int>(Format::kNvFp4) + 1;
// Super-blocks of 256 columns (K-quants and their relative with a table of values).
inline constexpr auto kQ2K = static_cast<Format>(kFirstSuperFormat);
inline constexpr auto kQ3K = static_cast<Format>(kFirstSuperFormat + 1);
inline constexpr auto kQ4K = static_cast<Format>(kFirstSuperFormat + 2);
inline constexpr auto kQ5K = static_cast<Format>(kFirstSuperFormat + 3);
inline constexpr auto kQ6K = static_cast<Format>(kFirstSuperFormat + 4);
inline constexpr auto kIQ4XS = static_cast<Format>(kFirstSuperFormat + 5);
// Blocks of 32 columns.
inline constexpr auto kQ50 = static_cast<Format>(kFirstSuperFormat + 6);
inline constexpr auto kQ51 = static_cast<Format>(kFirstSuperFormat + 7);
inline constexpr auto kIQ4NL = static_cast<Format>(kFirstSuperFormat + 8);

// Whether a CPU holds the format in the tiles of super_layout.h.
constexpr bool is_super(Format format) {
  return static_cast<int>(format) >= kFirstSuperFormat || format == Format::kMxFp4;
}

// Columns of a block.
constexpr std::int64_t super_columns(Format format) {
  return is_super(format) && format != Format::kMxFp4 && format <= kIQ4XS ? 256 : 32;
}

}  // namespace sluice::ops
