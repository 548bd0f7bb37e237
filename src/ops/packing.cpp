#include "ops/packing.h"

#include <string>

#include "ops/arguments.h"
#include "ops/elementwise.h"
#include "tensor/device.h"

namespace sluice::ops {

Weight weight_form(const Context& ctx, Format format, DType input, std::int64_t group) {
  Weight w;
  w.format = format;
  w.group = group;
  w.input = input;
  std::string reasons;
  for (const WeightOps& row : weight_rows(ctx.device.kind)) {
    if (row.format != format) continue;
    // A CPU multiplies fragments as the oracle of a GPU; it keeps no weights so.
    if (row.layout == Layout::kFragments && row.device == DeviceKind::kCpu) continue;
    const std::string_view reason = row.accepts(w);
    w.layout = row.layout;
    if (reason.empty()) {
      if (w.layout == Layout::kTiles && is_quantised(format)) w.input = DType::kF32;
      return w;
    }
    reasons += fmt::format("; {}: {}", row.name, reason);
  }
  fail(ErrorKind::kBadInput, "this device holds no weights of format {}{}",
       static_cast<int>(format), reasons);
}

bool multiplies_experts_in_fragments(const Context& ctx) {
  return ctx.device.kind == DeviceKind::kCpu || device_info(ctx.device).sm == 90;
}

std::int64_t packed_bytes(const Context& ctx, const Weight& w) {
  check(!w.is_row_major() && w.rows >= 0 && w.columns >= 0, "a weight [{}, {}] of format {}",
        w.rows, w.columns, static_cast<int>(w.format));
  return weight_ops(ctx, w).packed_bytes(ctx, w);
}

PreparedRows prepared_shape(const Context& ctx, const Weight& w, std::int64_t rows) {
  const WeightOps& row = weight_ops(ctx, w);
  return row.prepared_shape == nullptr ? PreparedRows{w.input, w.columns}
                                       : row.prepared_shape(ctx, w, rows);
}

void prepare_rows(Context& ctx, const Tensor& x, const Weight& w, const Tensor& out) {
  const WeightOps& row = weight_ops(ctx, w);
  check(row.prepare != nullptr, "weights in rows read rows of x as they are");
  const PreparedRows shape = prepared_shape(ctx, w, x.dim(0));
  expect(ctx, "prepare_rows x", x, {-1, w.columns}, w.is_row_major() ? kPlane : kFloat);
  expect(ctx, "prepare_rows out", out, {x.dim(0), shape.elements}, {shape.dtype});
  if (runs(ctx)) row.prepare(ctx, x, w, out);
}

Tensor rounded_to(Context& ctx, const Tensor& x, DType dtype) {
  if (x.dtype == dtype) return x;
  const Tensor rounded = ctx.arena->take(dtype, {x.dim(0), x.dim(1)});
  convert(ctx, x, rounded);
  return rounded;
}

Tensor prepared(Context& ctx, const Tensor& x, const Weight& w) {
  const PreparedRows shape = prepared_shape(ctx, w, x.dim(0));
  if (x.dtype == shape.dtype && x.dim(1) == shape.elements) return x;
  if (shape.are_numbers(w)) return rounded_to(ctx, x, shape.dtype);
  const Tensor rows = ctx.arena->take(shape.dtype, {x.dim(0), shape.elements});
  prepare_rows(ctx, rounded_to(ctx, x, w.input), w, rows);
  return rows;
}

Tensor packed_panels(const Context& ctx, const Weight& w, std::int64_t index, std::int64_t first,
                     std::int64_t n) {
  const std::int64_t panel = weight_ops(ctx, w).panel_rows;
  if (first % panel != 0 || (n % panel != 0 && first + n != w.rows)) return {};
  // The first rows take what a matrix of these alone would.
  const auto bytes_of = [&](std::int64_t rows) {
    Weight part = w;
    part.rows = rows;
    return packed_bytes(ctx, part);
  };
  const std::int64_t begin = bytes_of(first), end = bytes_of(first + n);
  return Tensor::dense(static_cast<std::byte*>(w.at(index).data.data) + begin, DType::kU8,
                       {end - begin});
}

void pack_rows(const Context& ctx, const Tensor& from, const Weight& w, std::int64_t index,
               std::int64_t first) {
  const WeightOps& row = weight_ops(ctx, w);
  if (from.dtype == DType::kU8)
    expect_dense(ctx, "pack_rows blocks", from, {-1, row.block_row_bytes(ctx, w)}, {DType::kU8});
  else if (w.format == Format::kBf16)
    expect_dense(ctx, "pack_rows from", from, {-1, w.columns}, {DType::kBF16});
  else
    expect_dense(ctx, "pack_rows from", from, {-1, w.columns}, {DType::kBF16, DType::kF32});
  expect(ctx, "pack_rows to", w.data, {w.count, packed_bytes(ctx, w)}, {DType::kU8});
  check(index >= 0 && index < w.count && first >= 0 && first + from.dim(0) <= w.rows,
        "pack_rows: rows [{}, {}) of matrix {}; there are {} of {} rows", first,
        first + from.dim(0), index, w.count, w.rows);
  row.pack(ctx, from, w, index, first);
}

}  // namespace sluice::ops
