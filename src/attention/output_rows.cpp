#include "attention/output_rows.h"

#include "attention/forward_batch.h"
#include "ops/elementwise.h"

namespace sluice {

OutputRows OutputRows::of_batch(Context& ctx, const ForwardBatch& fb, const Tensor& rows) {
  OutputRows wanted{.rows = rows, .positions = {}, .row_seq = {}};
  if (wanted.none()) return wanted;
  const auto column = [&](const Tensor& x) {
    return wanted.of(ctx, x.reshape({x.dim(0), 1})).reshape({rows.dim(0)});
  };
  wanted.positions = column(fb.positions);
  wanted.row_seq = column(fb.row_seq);
  return wanted;
}

Tensor OutputRows::of(Context& ctx, const Tensor& x) const {
  if (all()) return x;
  const Tensor picked = ctx.arena->take(x.dtype, {rows.dim(0), x.dim(1)});
  if (!none()) ops::gather_rows(ctx, x, rows, picked);
  return picked;
}

}  // namespace sluice
