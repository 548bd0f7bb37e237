// The rows of a batch that have queries and outputs. Keys, values and states are computed for all
// tokens. The last layer computes the rest only for rows whose logits are read. A prefill chunk
// that is not the last has no such row.
#pragma once

#include "tensor/context.h"

namespace sluice {

struct ForwardBatch;

struct OutputRows {
  Tensor rows;  // [R] int32, each in [0, tokens), grouped by sequence and ascending; undefined: all
                // rows
  // [R] int32, positions of these rows; undefined if all rows or none need output
  Tensor positions;
  Tensor row_seq;  // [R] int32, sequences of these rows; undefined as positions

  // Output rows from the batch's `rows`. The memory is in ctx.arena and lives as long as the
  // caller's scope.
  static OutputRows of_batch(Context& ctx, const ForwardBatch& fb, const Tensor& rows);

  bool all() const { return !rows.defined(); }
  bool none() const { return rows.defined() && rows.dim(0) == 0; }
  // The number of output rows in a batch of `tokens` tokens.
  std::int64_t count(std::int64_t tokens) const { return all() ? tokens : rows.dim(0); }
  // The output rows of x [tokens, n]: x itself, or a copy [R, n] in ctx.arena that lives as long as
  // the caller's scope.
  Tensor of(Context& ctx, const Tensor& x) const;
};

}  // namespace sluice
