// The first half of an MLP: products, activation, and what the second product reads.
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/tiles.h"

namespace sluice::cpu {
namespace {

// act(gate) * up for `count` columns of a row, `gate` and `up` in float32, into columns [first,
// first + count) of `out`.
struct SwigluColumns {
  const KernelTable& table;
  const TileKernels& next;
  const WeightMatrix& w;  // of the second product
  Activation activation;

  void write(float* gate, const float* up, std::int64_t first, std::int64_t count,
             std::byte* out) const {
    if (next.input == DType::kBF16)
      return table.act_and_mul_bf16(activation, gate, up, reinterpret_cast<BF16*>(out) + first,
                                    count);
    table.act_and_mul_f32(activation, gate, up, gate, count);
    next.prepare(w, gate, first, first + count, out);
  }
};

}  // namespace

void gated_linear(Context& ctx, const Tensor& x, const WeightMatrix& w, const Tensor& bias,
                  Activation activation, const Tensor& workspace, const WeightMatrix& next,
                  const Tensor& out) {
  const std::int64_t m = x.dim(0), width = next.columns, tiles = num_tiles(w.rows) / 2;
  if (m == 0 || width == 0) return;
  const SwigluColumns columns = {kernels(ctx), tile_kernels(ctx.cpu_isa, next.layout), next,
                                 activation};
  const std::int64_t threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
  // Gate and up of the same columns meet in one thread, which goes on while they are in its cache.
  // With few columns or columns that begin within a tile the three steps follow one another.
  constexpr std::int64_t kUnitTiles = kPreparedColumns / ops::kTileWeightRows;
  if (width % ops::kTileWeightRows != 0 || tiles < kUnitTiles * threads) {
    linear_tiles(ctx, x, w, bias, workspace);
    return parallel(ctx, m, 4 * width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        float* gate = row<float>(workspace, t);
        columns.write(gate, gate + width, 0, width, row_bytes(out, t));
      }
    });
  }
  const TileProduct args = tile_product(x, w, bias, workspace);
  const TileKernels& form = tile_kernels(ctx.cpu_isa, w.layout);
  // Pieces end where groups of the next product's columns do.
  const std::int64_t least = next.group > kPreparedColumns / 2 ? kUnitTiles : kUnitTiles / 2;
  // panels of gate and up begin together
  const bool twins = form.paired_row != nullptr && tiles % 4 == 0;
  const std::int64_t unit = m == 1 && !twins ? std::max(least, form.tiles_at_once) : least;
  const std::int64_t units = (tiles + unit - 1) / unit;
  parallel(
      ctx, units, 32 * unit * m * w.columns,
      [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t t0 = begin * unit, t1 = std::min(tiles, end * unit);
        form.paired_gemm(args, 0, m, t0, t1, tiles);
        const std::int64_t first = t0 * ops::kTileWeightRows,
                           count = (t1 - t0) * ops::kTileWeightRows;
        for (std::int64_t t = 0; t < m; ++t) {
          float* gate = row<float>(workspace, t) + first;
          columns.write(gate, gate + width, first, count, row_bytes(out, t));
        }
      },
      twins ? 0 : form.largest_piece(m, units, threads));
}

}  // namespace sluice::cpu
