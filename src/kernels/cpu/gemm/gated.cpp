// SwiGLU MLP, first half: the gate/up GEMM, the activation, and the input form of the down GEMM.
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/tiles.h"

namespace sluice::cpu {
namespace {

// Writes act(gate) * up for `count` columns of a row into columns [first, first + count) of `out`.
// gate and up are float32; gate is overwritten.
struct SwigluColumns {
  const KernelTable& table;
  const TileKernels& next;
  const Weight& w;  // of the second product
  Activation activation;

  void write(float* gate, const float* up, std::int64_t first, std::int64_t count,
             std::byte* out) const {
    if (next.input == DType::kBF16)
      return table.act_and_mul_bf16(activation, gate, up, reinterpret_cast<BF16*>(out) + first,
                                    count);
    // A quantised `next` needs float32 first, and prepare() then quantises it.
    table.act_and_mul_f32(activation, gate, up, gate, count);
    next.prepare(w, gate, first, first + count, out);
  }
};

}  // namespace

void gated_linear(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                  Activation activation, const Tensor& workspace, const Weight& next,
                  const Tensor& out) {
  const std::int64_t m = x.dim(0), width = next.columns, tiles = num_tiles(w.rows) / 2;
  if (m == 0 || width == 0) return;
  const SwigluColumns columns = {kernels(ctx), tile_kernels(ctx.cpu_isa, next.format), next,
                                 activation};
  const std::int64_t threads = ctx.pool == nullptr ? 1 : ctx.pool->size();
  // Gate and up of the same columns meet in one thread, which goes on while they are in its cache.
  // With few columns or columns that begin within a tile the three steps follow one another.
  constexpr std::int64_t kUnitTiles = kPreparedColumns / kTileWeightRows;
  if (width % kTileWeightRows != 0 || tiles < kUnitTiles * threads) {
    linear_tiles(ctx, x, w, bias, workspace);
    return parallel(ctx, m, 4 * width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        float* gate = row<float>(workspace, t);
        columns.write(gate, gate + width, 0, width, row_bytes(out, t));
      }
    });
  }
  const TileProduct args = tile_product(x, w, bias, workspace);
  const TileKernels& form = tile_kernels(ctx.cpu_isa, w.format);
  // Pieces end where groups of the next product's columns do.
  const std::int64_t least = next.group > kPreparedColumns / 2 ? kUnitTiles : kUnitTiles / 2;
  // Panels of gate and up are aligned to each other, so they can be read as two streams.
  const bool paired = form.paired_row != nullptr && tiles % 4 == 0;
  const std::int64_t unit = m == 1 && !paired ? std::max(least, form.tiles_at_once) : least;
  const std::int64_t units = (tiles + unit - 1) / unit;
  parallel(
      ctx, units, 32 * unit * m * w.columns,
      [&](std::int64_t begin, std::int64_t end) {
        const std::int64_t t0 = begin * unit, t1 = std::min(tiles, end * unit);
        form.paired_gemm(args, 0, m, t0, t1, tiles);
        const std::int64_t first = t0 * kTileWeightRows, count = (t1 - t0) * kTileWeightRows;
        for (std::int64_t t = 0; t < m; ++t) {
          float* gate = row<float>(workspace, t) + first;
          columns.write(gate, gate + width, first, count, row_bytes(out, t));
        }
      },
      paired ? 0 : form.largest_piece(m, units, threads));
}

}  // namespace sluice::cpu
