// GEMM with weights in fragments (kernels/types/int_fragments.h) on a CPU.
//
// The numbers of a group are multiplied with their scale after the sum. A zero point is subtracted
// as z times the sum of x. Sums are float32, one for each lane of a vector, over ascending columns.
// No sum depends on the number of rows of x, on threads, or on how rows are blocked.
#pragma once

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
  explicit FragmentColumns(const Weight& w);

  std::int64_t piece_columns() const { return piece_; }
  std::int64_t width() const { return width_; }
  // Floats of a row: `width()` columns, then 16 sums of x for each piece, lane by lane.
  std::int64_t row_floats() const { return width_ + width_ / piece_ * 16; }
  // `x` [w.columns] float32 or bfloat16.
  void arrange(const Tensor& x, std::int64_t row, float* out) const;

 private:
  std::int64_t columns_, piece_, width_;
  const std::int32_t* order_;  // of Weight::order, or null
};

// Rows [0, num_rows) of x against tiles of 16 rows of the weight: out[m, n] = x[m] . w[n].
struct FragmentProduct {
  const std::uint8_t* w = nullptr;  // of the matrix
  ops::FragmentUnit form;
  Format format = Format::kInt4;
  bool scale_is_bf16 = false;
  std::int64_t units = 0;     // of a tile
  const float* x = nullptr;   // rows as FragmentColumns has them
  std::int64_t x_stride = 0;  // in floats
  std::int64_t num_rows = 0;
  float* out = nullptr;  // [num_rows, rows of w]
  std::int64_t out_stride = 0;
  std::int64_t out_rows = 0;
};
using FragmentRows = void (*)(const FragmentProduct& args, std::int64_t first_tile,
                              std::int64_t last_tile);

FragmentRows avx2_fragment_rows();
FragmentRows avx512_fragment_rows();
FragmentRows fragment_rows(CpuIsa isa);

}  // namespace sluice::cpu
