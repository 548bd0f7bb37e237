#include "ops/gemm.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/tiles.h"
#include "ops/arguments.h"
#include "ops/op_table.h"

namespace sluice::ops {

void linear(Context& ctx, const Tensor& x, const WeightMatrix& w, const Tensor& bias,
            const Tensor& out) {
  if (w.plain()) {
    expect(ctx, "linear x", x, {-1, -1}, kPlane);
    expect(ctx, "linear w", w.data, {-1, x.dim(1)}, kWeight);
  } else {
    const cpu::TileKernels& tiles = cpu::tile_kernels(ctx.cpu_isa, w.layout);
    expect(ctx, "linear x", x, {-1, tiles.input == DType::kU8 ? tiles.input_bytes(w) : w.columns},
           {tiles.input});
    expect(ctx, "linear w", w.data, {1, tiles.matrix_bytes(w)}, {DType::kU8});
  }
  if (bias.defined()) expect(ctx, "linear bias", bias, {w.rows}, kWeight);
  expect(ctx, "linear out", out, {x.dim(0), w.rows}, kFloat);
  if (!runs(ctx)) return;
  if (w.plain())
    bodies(ctx).linear(ctx, x, w.data, bias, out);
  else
    cpu::linear_tiles(ctx, x, w, bias, out);
}

void linear_heads(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& out) {
  expect(ctx, "linear_heads x", x, {-1, -1, -1}, kPlane);
  expect(ctx, "linear_heads w", w, {x.dim(1), -1, x.dim(2)}, kWeight);
  expect(ctx, "linear_heads out", out, {x.dim(0), x.dim(1), w.dim(1)}, kFloat);
  if (runs(ctx)) bodies(ctx).linear_heads(ctx, x, w, out);
}

}  // namespace sluice::ops
