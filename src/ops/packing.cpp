#include "ops/packing.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/tiles.h"
#include "ops/arguments.h"

namespace sluice::ops {

WeightLayout preferred_layout(const Context& ctx, DType dtype, DType input) {
  const bool tiles =
      ctx.device.kind == DeviceKind::kCpu && dtype == DType::kBF16 && input == DType::kBF16;
  return tiles ? WeightLayout::kBf16Tiles : WeightLayout::kRows;
}

std::int64_t packed_bytes(const Context& ctx, const WeightMatrix& w) {
  check(!w.plain() && w.rows >= 0 && w.columns >= 0, "a weight [{}, {}] of layout {}", w.rows,
        w.columns, static_cast<int>(w.layout));
  return cpu::tile_kernels(ctx.cpu_isa, w.layout).matrix_bytes(w);
}

PreparedRows prepared_shape(const Context& ctx, const WeightMatrix& w) {
  check(!w.plain(), "plain weights read rows as they are");
  const cpu::TileKernels& tiles = cpu::tile_kernels(ctx.cpu_isa, w.layout);
  return {tiles.input, tiles.input_bytes(w) / dtype_size(tiles.input)};
}

void prepare_rows(Context& ctx, const Tensor& x, const WeightMatrix& w, const Tensor& out) {
  const PreparedRows shape = prepared_shape(ctx, w);
  expect(ctx, "prepare_rows x", x, {-1, w.columns}, kFloat);
  expect(ctx, "prepare_rows out", out, {x.dim(0), shape.elements}, {shape.dtype});
  if (runs(ctx)) cpu::prepare_rows(ctx, x, w, out);
}

void gated_linear(Context& ctx, const Tensor& x, const WeightMatrix& w, const Tensor& bias,
                  Activation activation, const Tensor& workspace, const WeightMatrix& next,
                  const Tensor& out) {
  const PreparedRows in = prepared_shape(ctx, w), shape = prepared_shape(ctx, next);
  expect(ctx, "gated_linear x", x, {-1, in.elements}, {in.dtype});
  expect(ctx, "gated_linear w", w.data, {1, packed_bytes(ctx, w)}, {DType::kU8});
  check(w.rows == 2 * next.columns, "gated_linear: {} rows for {} columns of the next product",
        w.rows, next.columns);
  if (bias.defined()) expect(ctx, "gated_linear bias", bias, {w.rows}, kWeight);
  expect(ctx, "gated_linear workspace", workspace, {x.dim(0), w.rows}, kFloat);
  expect(ctx, "gated_linear out", out, {x.dim(0), shape.elements}, {shape.dtype});
  if (runs(ctx)) cpu::gated_linear(ctx, x, w, bias, activation, workspace, next, out);
}

Tensor packed_panels(const Context& ctx, const WeightMatrix& w, std::int64_t index,
                     std::int64_t first, std::int64_t n) {
  if (first % kPanelRows != 0 || (n % kPanelRows != 0 && first + n != w.rows)) return {};
  // The first n rows take the bytes of a matrix of n rows.
  const auto bytes_of = [&](std::int64_t rows) {
    WeightMatrix part = w;
    part.rows = rows;
    return packed_bytes(ctx, part);
  };
  const std::int64_t begin = bytes_of(first), end = bytes_of(first + n);
  return Tensor::dense(static_cast<std::byte*>(w.at(index).data.data) + begin, DType::kU8,
                       {end - begin});
}

void pack_rows(const Context& ctx, const Tensor& from, const WeightMatrix& w, std::int64_t index,
               std::int64_t first) {
  const cpu::TileKernels& tiles = cpu::tile_kernels(ctx.cpu_isa, w.layout);
  if (from.dtype == DType::kU8)
    expect_dense(ctx, "pack_rows blocks", from, {-1, tiles.block_row_bytes(w)}, {DType::kU8});
  else if (w.layout == WeightLayout::kBf16Tiles)
    expect_dense(ctx, "pack_rows from", from, {-1, w.columns}, {DType::kBF16});
  else
    expect_dense(ctx, "pack_rows from", from, {-1, w.columns}, {DType::kBF16, DType::kF32});
  expect(ctx, "pack_rows to", w.data, {w.count, packed_bytes(ctx, w)}, {DType::kU8});
  check(index >= 0 && index < w.count && first >= 0 && first + from.dim(0) <= w.rows,
        "pack_rows: rows [{}, {}) of matrix {}; there are {} of {} rows", first,
        first + from.dim(0), index, w.count, w.rows);
  tiles.pack(from, w, index, first);
}

}  // namespace sluice::ops
