// Linear layers with weights of the checkpoint. Their format and layout are rows of
// ops/weight_table.h.
//
// Linear::weight is opaque beyond format, rows and columns: it is packed while it is read
// (Weights::fill), and only operations of ops/ read the bytes.
#pragma once

#include "attention/forward_batch.h"
#include "layers/norm.h"
#include "layers/weights/weights.h"
#include "ops/packing.h"
#include "tensor/context.h"

namespace sluice {

struct Linear {
  // Without memory where the parts have different forms; then `pieces` have the weights.
  ops::Weight weight;
  Tensor bias;                      // [rows] f32, or undefined
  std::vector<Linear> pieces = {};  // rows of parts with one form each, in their order
  bool reduce = false;              // out is this rank's summand

  // Parts are stacked by rows. `bias`: read the parts' biases too.
  // `may_round`: see Weights::packed.
  static Linear load(const Weights& weights, const WeightParts& parts, std::int64_t columns,
                     Shard shard, bool bias, bool may_round = true);
  std::int64_t rows() const { return weight.rows; }
  std::int64_t columns() const { return weight.columns; }
  // The type that rows of x are rounded to; quantised weights read float32 rows.
  DType input() const { return weight.input; }
  bool defined() const { return weight.defined() || !pieces.empty(); }

  // x [T, columns] f32 or bf16, or as the weight reads it (ops::prepared), strided rows; or a norm
  // of a residual stream. out [T, rows] f32. x and out do not overlap.
  void forward(Context& ctx, const ops::NormedRows& x, const Tensor& out) const;
  // stream += the same, at once or by the next norm.
  void add(Context& ctx, const Tensor& x, ops::Residual& stream) const;
};

// The outputs of a linear layer whose first ones are of queries, f32, in ctx.arena: those of the
// batch's query rows, [query rows, num_queries], undefined where there are none; and the others of
// all rows, [T, rows - num_queries].
struct QueriesAndRest {
  Tensor queries, rest;
};
QueriesAndRest split_forward(Context& ctx, const Linear& linear, const ForwardBatch& fb,
                             const ops::NormedRows& x, std::int64_t num_queries);

}  // namespace sluice
