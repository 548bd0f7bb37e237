#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

namespace sluice::cpu {
namespace {

// Columns are cut in units of this many: a multiple of the tile's.
constexpr std::int64_t kColumnUnit = 8;

}  // namespace

void linear(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& out) {
  const std::int64_t m = x.dim(0), n = w.dim(0), k = x.dim(1);
  if (m == 0 || n == 0) return;
  const GemmArgs args = {.x = x.data,
                         .x_stride = x.stride[0],
                         .w = w.data,
                         .w_stride = w.stride[0],
                         .bias = weight_vector(bias),
                         .out = out.ptr<float>(),
                         .out_stride = out.stride[0],
                         .k = k};
  const auto gemm = kernels(ctx).gemm[dtype_column(x.dtype)][dtype_column(w.dtype)];
  const std::int64_t threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
  // Weights are read once when columns are cut; with few columns and many rows the rows are cut.
  if (n >= kColumnUnit * 4 * threads || m < 4 * threads) {
    const std::int64_t units = (n + kColumnUnit - 1) / kColumnUnit;
    parallel(ctx, units, kColumnUnit * m * k, [&](std::int64_t begin, std::int64_t end) {
      gemm(args, 0, m, begin * kColumnUnit, std::min(n, end * kColumnUnit));
    });
  } else {
    parallel(ctx, m, n * k, [&](std::int64_t begin, std::int64_t end) { gemm(args, begin, end, 0, n); });
  }
}

void linear_heads(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& out) {
  const std::int64_t m = x.dim(0), heads = w.dim(0), n = w.dim(1), k = w.dim(2);
  if (m == 0 || n == 0) return;
  const auto gemm = kernels(ctx).gemm[dtype_column(x.dtype)][dtype_column(w.dtype)];
  const std::int64_t units = (n + kColumnUnit - 1) / kColumnUnit;
  parallel(ctx, heads * units, kColumnUnit * m * k, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t head = begin / units, first = begin % units;
      const std::int64_t last = std::min(units, first + (end - begin));
      const GemmArgs args = {
          .x = static_cast<const std::byte*>(x.data) + head * x.stride[1] * dtype_size(x.dtype),
          .x_stride = x.stride[0],
          .w = static_cast<const std::byte*>(w.data) + head * w.stride[0] * dtype_size(w.dtype),
          .w_stride = w.stride[1],
          .out = out.ptr<float>() + head * out.stride[1],
          .out_stride = out.stride[0],
          .k = k};
      gemm(args, 0, m, first * kColumnUnit, std::min(n, last * kColumnUnit));
      begin += last - first;
    }
  });
}

}  // namespace sluice::cpu
