#include "ops/rope.h"

#include "ops/arguments.h"
#include "ops/dispatch.h"

namespace sluice::ops {

void rope_cos_sin(Context& ctx, const Tensor& positions, const Tensor& inv_freq,
                  float attention_factor, const Tensor& cos_sin) {
  expect(ctx, "rope_cos_sin positions", positions, {-1}, kIndex);
  expect(ctx, "rope_cos_sin inv_freq", inv_freq, {-1}, kFloat);
  expect(ctx, "rope_cos_sin cos_sin", cos_sin, {positions.dim(0), 2 * inv_freq.dim(0)}, kFloat);
  on_device<cpu::rope_cos_sin, cuda::rope_cos_sin>(ctx, positions, inv_freq, attention_factor,
                                                   cos_sin);
}

void rope(Context& ctx, const Tensor& cos_sin, const Tensor& x, bool interleaved) {
  expect(ctx, "rope cos_sin", cos_sin, {-1, -1}, kFloat);
  expect(ctx, "rope x", x, {cos_sin.dim(0), -1, cos_sin.dim(1)}, kFloat);
  check(x.dim(2) % 2 == 0, "rope: {} dimensions cannot be paired", x.dim(2));
  on_device<cpu::rope, cuda::rope>(ctx, cos_sin, x, interleaved);
}

}  // namespace sluice::ops
