// Filling weights in fragments (kernels/types/block_units.h) with the blocks of a GGUF file.
#pragma once

#include "kernels/types/weight.h"
#include "tensor/tensor.h"

namespace sluice {

// Writes rows of blocks as a file has them, u8 [rows, bytes of a row], to rows [first, ...) of w,
// which begin a tile. Any thread; disjoint tiles.
void put_block_rows(const ops::Weight& w, std::int64_t first, const Tensor& blocks);

}  // namespace sluice
