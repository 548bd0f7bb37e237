// The format of each type of GGUF's blocks, with the same values.
#pragma once

#include <optional>

#include "checkpoint/tensors/quantized_blocks.h"
#include "kernels/types/block_units.h"
#include "kernels/types/super_formats.h"

namespace sluice {

struct BlockFormat {
  BlockType blocks;
  ops::Format format;
};
inline constexpr BlockFormat kBlockFormats[] = {{BlockType::kQ8_0, ops::Format::kInt8},
                                                {BlockType::kQ4_0, ops::Format::kInt4},
                                                {BlockType::kQ4_1, ops::Format::kInt4Min},
                                                {BlockType::kQ5_0, ops::kQ50},
                                                {BlockType::kQ5_1, ops::kQ51},
                                                {BlockType::kIQ4NL, ops::kIQ4NL},
                                                {BlockType::kQ2K, ops::kQ2K},
                                                {BlockType::kQ3K, ops::kQ3K},
                                                {BlockType::kQ4K, ops::kQ4K},
                                                {BlockType::kQ5K, ops::kQ5K},
                                                {BlockType::kQ6K, ops::kQ6K},
                                                {BlockType::kIQ4XS, ops::kIQ4XS},
                                                {BlockType::kMxFp4, ops::Format::kMxFp4}};

constexpr ops::Format format_of_blocks(BlockType blocks) {
  for (const BlockFormat& row : kBlockFormats)
    if (row.blocks == blocks) return row.format;
  return ops::Format::kF32;
}
// Nothing: no blocks have the format.
constexpr std::optional<BlockType> blocks_of_format(ops::Format format) {
  for (const BlockFormat& row : kBlockFormats)
    if (row.format == format) return row.blocks;
  return {};
}

// Whether a GPU holds the type in units of its own (kernels/types/block_units.h). Others are
// integers or MXFP4 in fragments.
constexpr bool has_block_units(BlockType blocks) {
  return ops::block_unit(format_of_blocks(blocks)).exists();
}

}  // namespace sluice
