// GEMMs with weights of the checkpoint. A row of a table says how a weight is stored and
// multiplied.
//
// Linear::weight is opaque beyond rows, columns and layout. A method repacks while it loads
// (Weights::fill on a WeightMatrix). Only its `apply`, ops::embedding and ops::fused_experts read
// the bytes.
#pragma once

#include <string_view>

#include "attention/output_rows.h"
#include "layers/weights.h"
#include "tensor/context.h"

namespace sluice {

struct Linear;

// One way to store and apply a weight.
struct LinearMethod {
  std::string_view name;
  // Whether this method holds the parts, stacked by rows.
  bool (*accepts)(const Weights& weights, const WeightParts& parts);
  // Fills linear.weight.
  void (*load)(const Weights& weights, const WeightParts& parts, std::int64_t columns, Shard shard,
               Linear& linear);
  // out [T, rows] f32 = x [T, columns] weight^T + bias, without the sum over ranks. x: f32 or
  // Linear::input.
  void (*apply)(Context& ctx, const Linear& linear, const Tensor& x, const Tensor& out);
};

struct Linear {
  const LinearMethod* method = nullptr;
  ops::WeightMatrix weight;
  Tensor bias;                // [rows] f32, or undefined
  DType input = DType::kF32;  // type to which x is rounded; quantised weights quantise float32 rows
                              // themselves
  bool reduce = false;        // out is this rank's summand: the ranks' outputs must be summed

  // Parts are stacked by rows. `bias`: read the parts' biases too.
  static Linear load(const Weights& weights, const WeightParts& parts, std::int64_t columns,
                     Shard shard, bool bias);
  std::int64_t rows() const { return weight.rows; }
  std::int64_t columns() const { return weight.columns; }
  bool defined() const { return weight.defined(); }

  // x [T, columns] f32 or bf16, strided rows; out [T, rows] f32. x and out do not overlap.
  void forward(Context& ctx, const Tensor& x, const Tensor& out) const;
  // As forward(), for x in the form of input_for().
  void forward_prepared(Context& ctx, const Tensor& x, const Tensor& out) const;

  // Whether the GEMM may be fused with its neighbours (ops/fused.h): a plain matrix on a single
  // rank.
  bool can_fuse() const {
    return weight.plain() && weight.data.dtype == DType::kBF16 && input == DType::kBF16 && !reduce;
  }
  // sum [T, rows] f32 += x weight^T. Only if can_fuse().
  void add_forward(Context& ctx, const Tensor& x, const Tensor& sum) const;
};

// The output of stacked rows, split by columns. The first `num_first` columns are computed only for
// the output rows: [R, num_first], undefined if R is 0. The other columns are computed for all
// rows: [T, rows - num_first]. f32, in ctx.arena.
struct SplitProduct {
  Tensor first, others;
};
SplitProduct split_forward(Context& ctx, const Linear& linear, const Tensor& x,
                           std::int64_t num_first, const OutputRows& wanted);

// x := the sum of x over the tensor-parallel ranks.
void sum_over_ranks(Context& ctx, const Tensor& x);

// x [T, columns] f32 or bf16 in the form that GEMMs with w read: in `plain` unless w's layout needs
// another. Either x itself, or memory of ctx.arena that lives as long as the caller's scope.
Tensor input_for(Context& ctx, const Tensor& x, const ops::WeightMatrix& w, DType plain);

// x in `dtype`: x itself, or rounded into memory of ctx.arena that lives as long as the caller's
// scope.
Tensor rounded_to(Context& ctx, const Tensor& x, DType dtype);

}  // namespace sluice
