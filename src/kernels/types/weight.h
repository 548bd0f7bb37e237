// A weight: what its numbers are, and how one device lays them out in memory.
#pragma once

#include <cstdint>

#include "kernels/types/fp8.h"
#include "tensor/tensor.h"

namespace sluice::ops {

// What the numbers of a weight are, on every device.
enum class Format : std::uint8_t {
  kF32,
  kBf16,
  kF16,
  kFp8,  // e4m3 with float32 scales, by which rows of e4m3 are multiplied: kernels/types/fp8.h
  // Integers with a float16 scale for each group of columns: kernels/cpu/gemm/quant_layout.h.
  kInt8,      // a byte a weight; Q8_0 of GGUF files
  kInt4,      // half a byte, symmetric; Q4_0
  kInt4Min,   // half a byte, with a minimum for each group; Q4_1
  kInt4Zero,  // half a byte, with a zero point for each group; AWQ, GPTQ
  kMxFp4,     // e2m1 with a scale 2^n for 32 columns: MXFP4
  kNvFp4,     // e2m1 with a scale of e4m3 for 16 columns, in fragments alone: NVFP4
};

constexpr bool is_quantised(Format format) {
  return format >= Format::kFp8;
}

// The format of a tensor that holds its numbers as they are; kF32 for any other type.
constexpr Format format_of(DType dtype) {
  return dtype == DType::kBF16 ? Format::kBf16 : dtype == DType::kF16 ? Format::kF16 : Format::kF32;
}

// How a device lays the numbers out. Only that device's kernels read another layout than kRows.
enum class Layout : std::uint8_t {
  kRows,   // row-major, as stored: kF32, kBf16, kF16, kFp8, or kInt8 with a scale a row
  kTiles,  // the CPU's tiles of 16 rows: kernels/cpu/isa/tiles.h
  // Units of 16 rows and 128 columns in the order of MMA fragments: kernels/types/int_fragments.h.
  kFragments,
};

inline constexpr std::int64_t kFragmentRows = 16, kFragmentColumns = 128;

// A matrix [rows, columns], or a stack of `count` equal ones (experts, heads). A view: copied
// freely, never frees.
struct Weight {
  Format format = Format::kF32;
  Layout layout = Layout::kRows;
  // kRows: [rows, columns] or [count, rows, columns]; else [count, bytes of a matrix] u8
  Tensor data;
  // Of groups, where the layout keeps them beside `data`; else undefined. kFp8:
  // kernels/types/fp8.h, with an axis for the stack where `data` has one. kInt8: of rows.
  Tensor scales;
  // kFragments: column of x that each column of the weight multiplies, int32 [columns]; undefined:
  // its own.
  Tensor order;
  std::int64_t count = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t group = 0;     // columns that share a scale; 0 where there are none
  DType input = DType::kF32;  // a GEMM's rows of x are rounded to this; integers in tiles: kF32
  DType scale = DType::kF16;  // kFragments: kF16 or kBF16
  // kInt8 with one scale a row, in rows or (on a CPU) in fragments: rows of x are rounded to int8
  // (kernels/types/int8_rows.h).
  bool int8_rows = false;

  Weight() = default;
  // A matrix or stack of plain numbers.
  Weight(const Tensor& tensor)  // NOLINT: a tensor of rows is a weight
      : format(format_of(tensor.dtype)), data(tensor), count(tensor.rank == 3 ? tensor.dim(0) : 1) {
    if (tensor.rank < 2) return;
    rows = tensor.dim(-2);
    columns = tensor.dim(-1);
  }

  bool defined() const { return data.defined(); }
  bool is_row_major() const { return layout == Layout::kRows; }

  // Matrix `index` of the stack.
  Weight at(std::int64_t index) const {
    Weight one = *this;
    one.count = 1;
    if (!is_row_major())
      one.data = data.rows(index, 1);
    else if (data.rank == 3) {
      one.data = data.at(index);
      if (scales.defined()) one.scales = scales.at(index);
    }
    return one;
  }

  // Whether slice() may begin at this row.
  bool begins_at(std::int64_t row) const {
    if (layout == Layout::kFragments) return row % kFragmentRows == 0;
    return is_row_major() && (format != Format::kFp8 || row % 128 == 0);
  }
  // Rows [begin, begin + n) of one matrix, which begins_at(begin).
  Weight slice(std::int64_t begin, std::int64_t n) const {
    Weight some = *this;
    some.rows = n;
    if (layout == Layout::kFragments) {
      const auto tiles = [](std::int64_t count) {
        return (count + kFragmentRows - 1) / kFragmentRows;
      };
      const std::int64_t bytes = data.dim(1) / tiles(rows);
      some.data = data.slice(1, begin / kFragmentRows * bytes, tiles(n) * bytes);
      return some;
    }
    some.data = data.rows(begin, n);
    if (scales.defined())
      some.scales = group == 0 ? scales.rows(begin, n)
                               : scales.slice(1, begin / kFp8ScaleRows,
                                              (n + kFp8ScaleRows - 1) / kFp8ScaleRows);
    return some;
  }
};

}  // namespace sluice::ops
