// GEMM with weights in fragments (kernels/types/int_fragments.h) on a CPU.
//
// The numbers of a group, less their zero point, are multiplied with their scale after the sum.
// Sums are float32, one for each lane of a vector, over ascending columns. No sum depends on the
// number of rows of x, on threads, or on how rows are blocked. The forms of instruction sets order
// sums differently.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/types/int_fragments.h"
#include "tensor/context.h"

namespace sluice::cpu {

using ops::Format;
using ops::Weight;

// Rows of x for a weight, in the order of its bytes. Codes of four bits lie in pieces of 64
// columns, those of eight bits in pieces of 32.
class FragmentColumns {
 public:
  // `type`: of the arranged numbers, float32 or bfloat16. `by_groups`: 32 numbers that follow each
  // other belong to one group of columns; bfloat16 alone.
  FragmentColumns(const Weight& w, DType type, bool by_groups = false);

  std::int64_t width() const { return width_; }
  std::int64_t row_bytes() const { return width_ * dtype_size(type_); }
  // `x` [w.columns] float32 or bfloat16; float32 for arranged float32 only.
  void arrange(const Tensor& x, std::int64_t row, std::byte* out) const;

 private:
  template <class From, class To>
  void fill(const From* from, std::int64_t first, To* out) const;
  void fill_pairs(const BF16* from, BF16* out) const;

  DType type_;
  bool splits_piece_;  // of four bits into two groups of 32 columns
  std::int64_t columns_, piece_, width_;
  const std::uint8_t* places_;  // of the columns of a piece
  const std::int32_t* order_;   // of Weight::order, or null
};

// Rows [0, num_rows) of x against tiles of 16 rows of the weight: out[m, n] = x[m] . w[n].
struct FragmentProduct {
  const std::uint8_t* w = nullptr;  // of the matrix
  ops::FragmentUnit form;
  Format format = Format::kInt4;
  bool scale_is_bf16 = false;
  std::int64_t units = 0;        // of a tile
  const std::byte* x = nullptr;  // rows as FragmentColumns has them, or FragmentTiles; on 64 bytes
  std::int64_t x_stride = 0;     // in bytes
  std::int64_t num_rows = 0;
  float* out = nullptr;  // [num_rows, rows of w]
  std::int64_t out_stride = 0;
  std::int64_t out_rows = 0;
};

// Rows of x that are laid out at once, without AMX: each block of them reads the weights again.
inline constexpr std::int64_t kFragmentBlockRows = 96;

// Rows of x as tiles of AMX: [16 rows][32 columns], 16 lines with a pair of each of these rows.
struct FragmentTiles {
  static constexpr std::int64_t kRows = 16, kColumns = 32;
  std::int64_t line = 0;    // bytes
  std::int64_t stride = 0;  // bytes from 16 rows to the next
  static std::int64_t count(std::int64_t num_rows) { return (num_rows + kRows - 1) / kRows; }
  FragmentTiles(std::int64_t num_rows, std::int64_t width)
      : line(std::min(num_rows, kRows) * 4), stride(width / kColumns * kRows * line) {}
};

struct FragmentRows {
  DType input = DType::kF32;  // of arranged rows
  // Null, or: turns `count` rows of the arranged ones, at most 16, in tiles [first, last) of
  // columns. One row needs none, as it is its own tiles.
  void (*to_tiles)(const std::byte* x, std::int64_t x_stride, std::int64_t count,
                   std::int64_t first, std::int64_t last, std::int64_t line,
                   std::byte* out) = nullptr;
  // For more than one row; null: nothing.
  std::int64_t (*scratch_bytes)(std::int64_t rows, std::int64_t units) = nullptr;
  // `scratch`: on 64 bytes, or null for one row.
  void (*multiply)(const FragmentProduct& args, std::int64_t first_tile, std::int64_t last_tile,
                   std::byte* scratch) = nullptr;
};

FragmentRows avx2_fragment_rows();
FragmentRows avx512_fragment_rows();
FragmentRows bf16_fragment_rows();
FragmentRows amx_fragment_rows();
// Whether the processor has the instructions of bf16_fragment_rows(): beyond AVX-512 BF16 it
// shuffles bytes (VBMI).
bool has_bf16_fragment_rows(CpuIsa isa);
// `x`: the type of rows of x.
FragmentRows fragment_rows(CpuIsa isa, DType x, Format format);

// linear_fragments() of a weight that has no kernels of its own (int8_rows.h, block_fragments.h).
void linear_fragment_rows(Context& ctx, const FragmentRows& kernel, const Tensor& x,
                          const Weight& w, const Tensor& bias, const Tensor& out);

}  // namespace sluice::cpu
