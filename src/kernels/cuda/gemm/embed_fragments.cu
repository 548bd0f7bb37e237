// Embeddings from a table in fragments (kernels/types/int_fragments.h): a row has the numbers that
// widen_fragments.cu gives it.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/gemm/widened_step.cuh"

namespace sluice::cuda {
namespace {

// A row of a unit is in the registers of four lanes of a warp.
constexpr int kLanesOfRow = 4, kEmbedThreads = 128, kEmbedUnits = kEmbedThreads / kLanesOfRow;

struct EmbedArgs {
  IntWeights table;
  const std::int32_t* ids;
  std::int64_t rows;  // of the table
  int columns;
  float* out;
  std::int64_t out_stride;
};

// Grid: rows of `out`; runs of kEmbedUnits units. Four threads stand for the lanes that have the
// row, and each reads what its lane would. An id outside the table traps.
template <IntKind kKind>
__global__ void __launch_bounds__(kEmbedThreads)
    embed_units(const __grid_constant__ EmbedArgs args) {
  begin_dependent();
  const IntWeights& w = args.table;
  const std::int64_t row = args.ids[blockIdx.x];
  expect_below(row, args.rows);
  const int index =
      static_cast<int>(blockIdx.y) * kEmbedUnits + static_cast<int>(threadIdx.x) / kLanesOfRow;
  if (index >= w.units) return;
  const int t = static_cast<int>(threadIdx.x) % kLanesOfRow,
            lane = static_cast<int>(row % 8) * kLanesOfRow + t;
  const bool is_upper = row % kUnitRows >= 8;
  const unsigned char* const unit = w.of + (row / kUnitRows * w.units + index) * w.unit_bytes;
  // Every load comes before the first store, as the compiler takes both for the same memory.
  std::uint32_t pairs[2 * kUnitMmas];
#pragma unroll
  for (int step = 0; step < kUnitMmas; ++step) {
    std::uint32_t a[4];
    widened_step<kKind>(w, unit, step, lane, a);
    pairs[2 * step] = is_upper ? a[1] : a[0];
    pairs[2 * step + 1] = is_upper ? a[3] : a[2];
  }
  float* const to = args.out + blockIdx.x * args.out_stride;
#pragma unroll
  for (int i = 0; i < 2 * kUnitMmas; ++i) {
    const int column = index * kFragmentUnitColumns + i * 8 + t * 2;
    if (column >= args.columns) return;
    const int2 place =
        w.order == nullptr ? int2{column, column + 1} : int2{w.order[column], w.order[column + 1]};
    to[place.x] = __uint_as_float(pairs[i] << 16);
    to[place.y] = __uint_as_float(pairs[i] & 0xFFFF0000u);
  }
}

}  // namespace

void embed_fragments(Context& ctx, const IntWeights& w, std::int64_t rows, std::int64_t k,
                     const std::int32_t* ids, std::int64_t num_ids, float* out,
                     std::int64_t out_stride) {
  const EmbedArgs args{.table = w,
                       .ids = ids,
                       .rows = rows,
                       .columns = static_cast<int>(k),
                       .out = out,
                       .out_stride = out_stride};
  const dim3 grid(static_cast<unsigned>(num_ids), blocks_for(w.units, kEmbedUnits));
  with_int_kind(w, [&]<IntKind kKind, bool>() {
    if constexpr (kKind != IntKind::kFp8)
      launch_dependent(ctx, "embedding from fragments", embed_units<kKind>, grid, kEmbedThreads, 0,
                       args);
  });
}

}  // namespace sluice::cuda
