#include "ops/kv.h"

#include "ops/arguments.h"
#include "ops/op_table.h"

namespace sluice::ops {

void kv_write(Context& ctx, const Tensor& src, const Tensor& slots, const Tensor& plane) {
  expect(ctx, "kv_write src", src, {-1, -1}, kFloat);
  expect(ctx, "kv_write slots", slots, {src.dim(0)}, kSlot);
  expect(ctx, "kv_write plane", plane, {-1, src.dim(1)}, kPlane);
  if (runs(ctx)) bodies(ctx).kv_write(ctx, src, slots, plane);
}

void kv_gather(Context& ctx, const Tensor& plane, const Tensor& slots, const Tensor& out) {
  expect(ctx, "kv_gather plane", plane, {-1, -1}, kPlane);
  expect(ctx, "kv_gather slots", slots, {-1}, kIndex);
  expect(ctx, "kv_gather out", out, {slots.dim(0), plane.dim(1)}, kFloat);
  if (runs(ctx)) bodies(ctx).kv_gather(ctx, plane, slots, out);
}

void kv_move(Context& ctx, std::span<const Tensor> planes, const Tensor& from_slots, const Tensor& to_slots) {
  expect(ctx, "kv_move from_slots", from_slots, {-1}, kSlot);
  expect(ctx, "kv_move to_slots", to_slots, {from_slots.dim(0)}, kSlot);
  for (const Tensor& plane : planes) expect(ctx, "kv_move plane", plane, {-1, -1}, {plane.dtype});
  if (runs(ctx)) bodies(ctx).kv_move(ctx, planes, from_slots, to_slots);
}

}  // namespace sluice::ops
