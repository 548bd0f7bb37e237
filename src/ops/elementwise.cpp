#include "ops/elementwise.h"

#include "ops/arguments.h"
#include "ops/dispatch.h"
#include "ops/packing.h"

namespace sluice::ops {

void add(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& out) {
  expect(ctx, "add a", a, {-1, -1}, kFloat);
  expect(ctx, "add b", b, {a.dim(0), a.dim(1)}, kFloat);
  expect(ctx, "add out", out, {a.dim(0), a.dim(1)}, kFloat);
  on_device<cpu::add, cuda::add>(ctx, a, b, out);
}

void scale(Context& ctx, const Tensor& x, float factor, const Tensor& out) {
  expect(ctx, "scale x", x, {-1, -1}, kFloat);
  expect(ctx, "scale out", out, {x.dim(0), x.dim(1)}, kFloat);
  on_device<cpu::scale, cuda::scale>(ctx, x, factor, out);
}

void clamp(Context& ctx, const Tensor& x, float limit, const Tensor& out) {
  expect(ctx, "clamp x", x, {-1, -1}, kFloat);
  expect(ctx, "clamp out", out, {x.dim(0), x.dim(1)}, kFloat);
  check(limit > 0, "clamp: a limit of {}", limit);
  on_device<cpu::clamp, cuda::clamp>(ctx, x, limit, out);
}

void softcap(Context& ctx, const Tensor& x, float cap, const Tensor& out) {
  expect(ctx, "softcap x", x, {-1, -1}, kFloat);
  expect(ctx, "softcap out", out, {x.dim(0), x.dim(1)}, kFloat);
  check(cap > 0, "softcap: a cap of {}", cap);
  on_device<cpu::softcap, cuda::softcap>(ctx, x, cap, out);
}

void scale_queries(Context& ctx, const Tensor& positions, float beta, std::int64_t length,
                   std::int64_t offset, const Tensor& q) {
  expect(ctx, "scale_queries positions", positions, {-1}, kIndex);
  expect(ctx, "scale_queries q", q, {positions.dim(0), -1, -1}, kFloat);
  check(length > 0, "scale_queries: a length of {}", length);
  on_device<cpu::scale_queries, cuda::scale_queries>(ctx, positions, beta, length, offset, q);
}

void convert(Context& ctx, const Tensor& x, const Tensor& out) {
  const auto expect_like_x = [&](const char* what, const Tensor& t) {
    switch (x.rank) {
      case 1:
        return expect(ctx, what, t, {x.dim(0)}, kWeight);
      case 2:
        return expect(ctx, what, t, {x.dim(0), x.dim(1)}, kWeight);
      default:
        return expect(ctx, what, t, {x.dim(0), x.dim(1), x.dim(2)}, kWeight);
    }
  };
  expect_like_x("convert x", x);
  expect_like_x("convert out", out);
  on_device<cpu::convert, cuda::convert>(ctx, x, out);
}

void gather_rows(Context& ctx, const Tensor& x, const Tensor& rows, const Tensor& out) {
  expect(ctx, "gather_rows x", x, {-1, -1}, {x.dtype});
  expect(ctx, "gather_rows rows", rows, {-1}, kIndex);
  expect(ctx, "gather_rows out", out, {rows.dim(0), x.dim(1)}, {x.dtype});
  on_device<cpu::gather_rows, cuda::gather_rows>(ctx, x, rows, out);
}

void embedding(Context& ctx, const Tensor& ids, const Weight& table, const Tensor& out) {
  expect(ctx, "embedding ids", ids, {-1}, kIndex);
  if (table.is_row_major())
    expect(ctx, "embedding table", table.data, {-1, -1}, kWeight);
  else
    expect(ctx, "embedding table", table.data, {1, packed_bytes(ctx, table)}, {DType::kU8});
  expect(ctx, "embedding out", out, {ids.dim(0), table.columns}, kFloat);
  if (runs(ctx)) weight_ops(ctx, table).embed(ctx, ids, table, out);
}

}  // namespace sluice::ops
