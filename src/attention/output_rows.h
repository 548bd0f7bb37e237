// The rows of a batch that somebody asks for. Keys, values and states are those of all tokens, but
// of a model's last layer only the rows whose logits are wanted are worth computing; a prefill
// chunk that is not the last has none.
#pragma once

#include "attention/forward_batch.h"
#include "tensor/context.h"

namespace sluice {

struct OutputRows {
  Tensor rows;       // [R] int32, each in [0, tokens), those of a sequence together and ascending;
                     // undefined: all rows
  Tensor positions;  // [R] int32, of these rows; undefined where all or none are wanted
  Tensor row_seq;    // [R] int32, likewise

  // `rows` of the batch, with memory of ctx.arena that lives as long as the caller's scope.
  static OutputRows of_batch(Context& ctx, const ForwardBatch& fb, const Tensor& rows);

  bool all() const { return !rows.defined(); }
  bool none() const { return rows.defined() && rows.dim(0) == 0; }
  // How many of a batch of so many tokens.
  std::int64_t count(std::int64_t tokens) const { return all() ? tokens : rows.dim(0); }
  // Those of x [tokens, n]: x itself, or a copy [R, n] in memory of ctx.arena that lives as long as
  // the caller's scope.
  Tensor of(Context& ctx, const Tensor& x) const;
};

}  // namespace sluice
