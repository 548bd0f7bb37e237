// The format of each type of GGUF's blocks, with the same values.
#pragma once

#include "checkpoint/tensors/quantized_blocks.h"
#include "kernels/types/block_units.h"
#include "kernels/types/super_formats.h"

namespace sluice {

constexpr ops::Format format_of_blocks(BlockType blocks) {
  switch (blocks) {
    case BlockType::kQ8_0:
      return ops::Format::kInt8;
    case BlockType::kQ4_0:
      return ops::Format::kInt4;
    case BlockType::kQ4_1:
      return ops::Format::kInt4Min;
    case BlockType::kQ5_0:
      return ops::kQ50;
    case BlockType::kQ5_1:
      return ops::kQ51;
    case BlockType::kIQ4NL:
      return ops::kIQ4NL;
    case BlockType::kQ2K:
      return ops::kQ2K;
    case BlockType::kQ3K:
      return ops::kQ3K;
    case BlockType::kQ4K:
      return ops::kQ4K;
    case BlockType::kQ5K:
      return ops::kQ5K;
    case BlockType::kQ6K:
      return ops::kQ6K;
    case BlockType::kIQ4XS:
      return ops::kIQ4XS;
    case BlockType::kMxFp4:
      return ops::Format::kMxFp4;
  }
  return ops::Format::kF32;
}

// Whether a GPU holds linear layers of this type in fragments. Q8_0 and Q4_0 are integers there.
constexpr bool has_fragments_of(BlockType blocks) {
  return blocks == BlockType::kQ8_0 || blocks == BlockType::kQ4_0 ||
         ops::block_unit(format_of_blocks(blocks)).exists();
}

}  // namespace sluice
