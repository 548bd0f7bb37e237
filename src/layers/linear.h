// Matrix products with weights of the checkpoint. How a weight is stored and multiplied is a row of
// a table.
//
// Linear::weight is opaque beyond rows, columns and layout: a method repacks while it loads
// (Weights::fill on a WeightMatrix), and nobody but its `apply`, ops::embedding and
// ops::fused_experts reads the bytes.
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
  // Whether this is how the parts, fused, are to be held.
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
  Tensor bias;  // [rows] f32, or undefined
  DType input =
      DType::kF32;      // that x is rounded to; quantised weights quantise float32 rows themselves
  bool reduce = false;  // out is this rank's summand

  // Parts are fused by rows. `bias`: read the parts' biases too.
  static Linear load(const Weights& weights, const WeightParts& parts, std::int64_t columns,
                     Shard shard, bool bias);
  std::int64_t rows() const { return weight.rows; }
  std::int64_t columns() const { return weight.columns; }
  bool defined() const { return weight.defined(); }

  // x [T, columns] f32 or bf16, strided rows; out [T, rows] f32. x and out do not overlap.
  void forward(Context& ctx, const Tensor& x, const Tensor& out) const;
  // The same for x as input_for() gives it.
  void forward_prepared(Context& ctx, const Tensor& x, const Tensor& out) const;

  // Whether the product may be joined with what stands around it (ops/fused.h): a plain matrix of
  // this rank alone.
  bool can_fuse() const {
    return weight.plain() && weight.data.dtype == DType::kBF16 && input == DType::kBF16 && !reduce;
  }
  // sum [T, rows] f32 += the product. Only where it joins().
  void add_forward(Context& ctx, const Tensor& x, const Tensor& sum) const;
};

// A product of fused rows whose first `num_first` columns are wanted of some rows only: of these
// [R, num_first], or undefined where there are none, and the others of all rows, [T, rows -
// num_first]. f32, in ctx.arena.
struct SplitProduct {
  Tensor first, others;
};
SplitProduct split_forward(Context& ctx, const Linear& linear, const Tensor& x,
                           std::int64_t num_first, const OutputRows& wanted);

// x := the sum of x over the ranks that share the model's matrices.
void sum_over_ranks(Context& ctx, const Tensor& x);

// x [T, columns] f32 or bf16 in the form in which products with w read it: in `plain` unless w says
// otherwise. x itself, or memory of ctx.arena that lives as long as the caller's scope.
Tensor input_for(Context& ctx, const Tensor& x, const ops::WeightMatrix& w, DType plain);

// x in `dtype`: x itself, or rounded into memory of ctx.arena that lives as long as the caller's
// scope.
Tensor rounded_to(Context& ctx, const Tensor& x, DType dtype);

}  // namespace sluice
