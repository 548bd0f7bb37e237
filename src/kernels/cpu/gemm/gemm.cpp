#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/tiles.h"

namespace sluice::cpu {
namespace {

// Granularity of column ranges, a multiple of the register tile's width.
constexpr std::int64_t kColumnUnit = 8;

constexpr std::int64_t kPanelTiles = 4;

}  // namespace

void prepare_rows(Context& ctx, const Tensor& x, const Weight& w, const Tensor& out) {
  const auto prepare = tile_kernels(ctx.cpu_isa, w.format).prepare;
  parallel(ctx, x.dim(0), w.columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t m = begin; m < end; ++m)
      prepare(w, row<float>(x, m), 0, w.columns, row_bytes(out, m));
  });
}

void linear_tiles(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                  const Tensor& out) {
  const std::int64_t m = x.dim(0), tiles = num_tiles(w.rows);
  if (m == 0 || tiles == 0) return;
  const TileProduct args = tile_product(x, w, bias, out);
  const TileKernels& form = tile_kernels(ctx.cpu_isa, w.format);
  const auto product = form.product;
  const std::int64_t threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
  // Few columns, many rows: partition M.
  if (tiles < 4 * threads && m >= 4 * threads)
    return parallel(ctx, m, w.rows * w.columns, [&](std::int64_t begin, std::int64_t end) {
      product(args, begin, end, 0, tiles);
    });
  // Otherwise partition N, in whole panels if there are enough panels for every thread.
  const std::int64_t together = m == 1 ? form.tiles_at_once : kPanelTiles;
  const std::int64_t unit = tiles >= 4 * together * threads ? together : 1;
  const std::int64_t units = (tiles + unit - 1) / unit;
  parallel(
      ctx, units, unit * 16 * m * w.columns,
      [&](std::int64_t begin, std::int64_t end) {
        product(args, 0, m, begin * unit, std::min(tiles, end * unit));
      },
      form.largest_piece(m, units, threads));
}

void linear(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& out) {
  const std::int64_t m = x.dim(0), n = w.dim(0), k = x.dim(1);
  if (m == 0 || n == 0) return;
  // Strides are in elements here.
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
  // Partitioning N reads every weight once. With few columns and many rows, partition M instead.
  if (n >= kColumnUnit * 4 * threads || m < 4 * threads) {
    const std::int64_t units = (n + kColumnUnit - 1) / kColumnUnit;
    parallel(ctx, units, kColumnUnit * m * k, [&](std::int64_t begin, std::int64_t end) {
      gemm(args, 0, m, begin * kColumnUnit, std::min(n, end * kColumnUnit));
    });
  } else {
    parallel(ctx, m, n * k,
             [&](std::int64_t begin, std::int64_t end) { gemm(args, begin, end, 0, n); });
  }
}

void linear_heads(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& out) {
  const std::int64_t m = x.dim(0), heads = w.dim(0), n = w.dim(1), k = w.dim(2);
  if (m == 0 || n == 0) return;
  const auto gemm = kernels(ctx).gemm[dtype_column(x.dtype)][dtype_column(w.dtype)];
  const std::int64_t units = (n + kColumnUnit - 1) / kColumnUnit;
  parallel(ctx, heads * units, kColumnUnit * m * k, [&](std::int64_t begin, std::int64_t end) {
    // A thread's range of (head, column unit) items may span several heads: one GEMM per head.
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
