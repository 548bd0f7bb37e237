// Memory layout of a weight: as in the checkpoint, or repacked for the instructions that multiply
// it.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace sluice::ops {

enum class WeightLayout : std::uint8_t {
  kRows,       // row-major, as stored: float32, bfloat16 or float16
  kBf16Tiles,  // bfloat16 in tiles of 16 rows by 2 columns, see kernels/cpu/isa/tiles.h
  // Quantised, with one scale per group of columns: see kernels/cpu/gemm/quant_layout.h.
  kInt8Tiles,     // a byte a weight; Q8_0 of GGUF files
  kInt4Tiles,     // half a byte, symmetric; Q4_0
  kInt4MinTiles,  // half a byte, with a minimum for each group; Q4_1
};

// Weight rows per tile; all layouts but kRows interleave this many.
inline constexpr std::int64_t kTileWeightRows = 16;
// Weight rows per panel of tiles; the last panel has the rows that are left. Panels are stored one
// after the other.
inline constexpr std::int64_t kPanelRows = 4 * kTileWeightRows;

// A matrix [rows, columns], or a stack of `count` matrices of one shape (experts, heads). A view:
// copied freely, never frees. In layouts other than kRows `data` is opaque, and its dimensions have
// no meaning.
struct WeightMatrix {
  WeightLayout layout = WeightLayout::kRows;
  // kRows: [rows, columns] or [count, rows, columns]; else [count, bytes of a matrix] u8
  Tensor data;
  std::int64_t count = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t group = 0;  // columns that share a scale; 0 where there are none

  WeightMatrix() = default;
  // A matrix or stack in the layout kRows.
  WeightMatrix(const Tensor& plain)  // NOLINT: a tensor of rows is a weight
      : data(plain), count(plain.rank == 3 ? plain.dim(0) : 1) {
    if (plain.rank < 2) return;
    rows = plain.dim(-2);
    columns = plain.dim(-1);
  }

  bool defined() const { return data.defined(); }
  bool plain() const { return layout == WeightLayout::kRows; }

  // Matrix `index` of the stack.
  WeightMatrix at(std::int64_t index) const {
    WeightMatrix one = *this;
    one.count = 1;
    if (!plain())
      one.data = data.rows(index, 1);
    else if (data.rank == 3)
      one.data = data.at(index);
    return one;
  }
};

}  // namespace sluice::ops
