// The numbers of a block of a GGUF file.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm/super_layout.h"

namespace sluice::cpu {

struct BlockNumbers {
  // Bits of float16, or (kMxFp4) a byte; d_min is m where there are no groups.
  std::uint16_t d = 0, d_min = 0;
  std::uint8_t u[256] = {};
  // By half of a group, or by group; with a sign in two's complement.
  std::uint8_t scale[16] = {}, minimum[16] = {};
};

void read_block(SuperKind kind, const std::uint8_t* block, BlockNumbers& out);

// Of a format for which ops::is_super().
SuperKind super_kind_of(ops::Format format);

}  // namespace sluice::cpu
