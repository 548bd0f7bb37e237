// Filling weights in fragments (kernels/types/block_units.h, kernels/types/int_fragments.h) with
// the blocks of a GGUF file.
#pragma once

#include <functional>
#include <optional>

#include "checkpoint/tensors/quantized_blocks.h"
#include "checkpoint/weight_source.h"
#include "kernels/types/weight.h"
#include "tensor/tensor.h"

namespace sluice {

// A row of blocks as a file has them.
using BlockRowOf = std::function<const std::uint8_t*(std::int64_t)>;

// A rank's columns of a matrix in blocks. They may begin or end within a super-block, whose halves
// are units; then whole blocks are read.
struct BlockColumns {
  AxisRange read;            // whole blocks
  std::int64_t skipped = 0;  // columns of the first block that are another rank's
};
// Nothing: ranks share a unit, or a block of 32 columns.
std::optional<BlockColumns> block_columns(BlockType blocks, AxisRange columns);

// Writes whole tiles of matrix `index` of w from row `first` on, which begins a tile: row_of(i) is
// row first + i, of `rows`, from BlockColumns::read on. Any thread; disjoint tiles.
void put_block_rows(const ops::Weight& w, std::int64_t index, std::int64_t first, std::int64_t rows,
                    std::int64_t skipped_columns, const BlockRowOf& row_of);
// The same of the rows of `blocks`, u8 [rows, bytes of a row].
void put_block_rows(const ops::Weight& w, std::int64_t index, std::int64_t first,
                    std::int64_t skipped_columns, const Tensor& blocks);

}  // namespace sluice
