// The formats of GGUF's super-blocks (K-quants): kernels/cpu/gemm/super_layout.h has their values.
// A CPU has them, in tiles. They follow the formats that every device knows.
#pragma once

#include "kernels/types/weight.h"

namespace sluice::ops {

inline constexpr int kFirstSuperFormat = static_cast<int>(Format::kMxFp4) + 1;
inline constexpr auto kQ2K = static_cast<Format>(kFirstSuperFormat);
inline constexpr auto kQ3K = static_cast<Format>(kFirstSuperFormat + 1);
inline constexpr auto kQ4K = static_cast<Format>(kFirstSuperFormat + 2);
inline constexpr auto kQ5K = static_cast<Format>(kFirstSuperFormat + 3);
inline constexpr auto kQ6K = static_cast<Format>(kFirstSuperFormat + 4);

// Columns of a super-block.
inline constexpr std::int64_t kSuperColumns = 256;

// Whether the format is one of super-blocks.
constexpr bool is_super(Format format) {
  return static_cast<int>(format) >= kFirstSuperFormat;
}

}  // namespace sluice::ops
