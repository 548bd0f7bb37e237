// GEMMs with weights in fragments inside kernels/cuda (kernels/types/int_fragments.h). kFp8:
// experts alone. kFp4: MXFP4. kNvFp4: NVFP4. From kQ2K on: kernels/types/block_units.h.
#pragma once

#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/int_plan.h"
#include "kernels/types/block_units.h"
#include "kernels/types/weight.h"

namespace sluice::cuda {

enum class IntKind : std::uint8_t {
  kInt4,
  kInt8,
  kFp8,
  kFp4,
  kNvFp4,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kQ41,
  kQ50,
  kQ51,
  kIQ4XS,
  kIQ4NL
};

struct BlockKind {
  IntKind kind;
  ops::Format format;
};
inline constexpr BlockKind kBlockKinds[] = {
    {IntKind::kQ2K, ops::kQ2K},     {IntKind::kQ3K, ops::kQ3K},
    {IntKind::kQ4K, ops::kQ4K},     {IntKind::kQ5K, ops::kQ5K},
    {IntKind::kQ6K, ops::kQ6K},     {IntKind::kQ41, ops::Format::kInt4Min},
    {IntKind::kQ50, ops::kQ50},     {IntKind::kQ51, ops::kQ51},
    {IntKind::kIQ4XS, ops::kIQ4XS}, {IntKind::kIQ4NL, ops::kIQ4NL}};
// Of another kind: no unit.
constexpr ops::BlockUnit block_unit_of(IntKind kind) {
  for (const BlockKind& row : kBlockKinds)
    if (row.kind == kind) return ops::block_unit(row.format);
  return {};
}

// Weights of a GEMM; GemmArgs::w is not read.
struct IntWeights {
  const unsigned char* of = nullptr;
  const std::int32_t* order = nullptr;  // columns of x; null: in ascending order
  IntKind kind = IntKind::kInt4;
  int units = 0;       // of a tile of 16 rows
  int unit_bytes = 0;  // a multiple of 16
  int runs = 1;        // of a unit: pieces of at most 2048 bytes, for map_of_runs()
  int groups = 1;      // of a unit
  bool has_zeros = false;
  bool in_bf16 = false;  // scales
};

// Of one matrix, or of the first one of a stack.
IntWeights weights_of(const ops::Weight& w);

// Few rows, bfloat16 or, with a norm, float32 (int_plan.h); fused operations as gemm_skinny() has
// them.
void gemm_int_skinny(Context& ctx, const GemmArgs& args, const IntWeights& w,
                     const RowsAround& around, const IntSkinnyPlan& plan);
// Any number of rows on Hopper, bfloat16 on 16 bytes, in the order of the weights' columns. `add`
// and a bfloat16 `out` as options of GemmArgs.
void gemm_int_tiles(Context& ctx, const GemmArgs& args, const IntWeights& w);
// out[m, i] := x[m, order[i]]; bfloat16. A null order copies.
void order_columns(Context& ctx, const void* x, std::int64_t x_stride, const std::int32_t* order,
                   std::int64_t m, std::int64_t k, void* out, std::int64_t out_stride);

// out[n, i] := the first `rows` rows of the weights, rounded to bfloat16, in the order of x's
// columns; whole tiles of 16 rows are written. Two bytes of each of k columns fit in shared memory.
void widen_fragments(Context& ctx, const IntWeights& w, std::int64_t rows, std::int64_t k,
                     void* out);

// out[t, i] := row ids[t] of a table [rows, k], with the numbers of widen_fragments(); float32. A
// row outside the table traps. k is even; kFp8 is no table.
void embed_fragments(Context& ctx, const IntWeights& w, std::int64_t rows, std::int64_t k,
                     const std::int32_t* ids, std::int64_t num_ids, float* out,
                     std::int64_t out_stride);

// GEMMs of many rows by way of bfloat16 weights (linear_widened.cpp). False: nothing was launched.
// Arguments as those of linear_fragments() and the like.
bool linear_widened(Context& ctx, const Tensor& x, const ops::Weight& w, const Tensor& bias,
                    const Tensor& out);
bool linear_add_widened(Context& ctx, const Tensor& x, const ops::Weight& w, const Tensor& bias,
                        const Tensor& branch, const Tensor& sum);
bool gate_up_widened(Context& ctx, const Tensor& x, const ops::Weight& w, const Tensor& bias,
                     Activation activation, const Tensor& both, const Tensor& out);

}  // namespace sluice::cuda
