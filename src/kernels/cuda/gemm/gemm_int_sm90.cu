// GEMM of rows of bfloat16 with weights in fragments on Hopper; the mainloop is that of
// int_tiles_sm90.cuh.
//
// 1. DenseWork     tiles of the output, and parts of the columns where few tiles would leave SMs
//                  idle (int_plan.h)
// 2. share_sums    where CTAs share the columns: the last one adds their sums in ascending order
// 3. store         epilogue: float32 with bias or residual, or bfloat16
#include "kernels/cuda/gemm/int_tiles_sm90.cuh"
#include "kernels/cuda/gemm/skinny_output.cuh"

namespace sluice::cuda {
namespace {

constexpr int kBandTiles = 8;  // tiles of x whose rows stay in L2 while they run together

struct IntTileArgs {
  CUtensorMap x;
  GemmArgs a;
  IntWeights w;
  Bf16* half_out = nullptr;  // instead of `out`
  int row_tiles = 0;         // of x
  int column_tiles = 0;      // of the weights' rows
  int splits = 1, stages = 1;
  float* partial = nullptr;          // [tile][split][sum of a thread][consumer thread]
  std::uint32_t* arrived = nullptr;  // [tile], 0 between launches
};

// 1.
template <int kRows>
class DenseWork {
 public:
  static constexpr bool kLoadsEarly = true;
  struct Item : IntItem {
    int tile = 0, split = 0, column = 0;  // column: the first row of the weights
  };

  __device__ DenseWork(const IntTileArgs& args, int& is_last) : args_(args), is_last_(is_last) {}
  __device__ const CUtensorMap& x_map() const { return args_.x; }
  __device__ const IntWeights& weights() const { return args_.w; }
  __device__ int count() const { return args_.row_tiles * args_.column_tiles * args_.splits; }

  __device__ Item item(int index) const {
    Item item;
    item.tile = index / args_.splits, item.split = index % args_.splits;
    const int first = item.tile / (kBandTiles * args_.column_tiles) * kBandTiles,
              band = min(args_.row_tiles - first, kBandTiles),
              within = item.tile - first * args_.column_tiles;
    item.row = (first + within % band) * kRows;
    item.column = within / band * kIntTileRows;
    const int unit_tile = item.column / kUnitRows;
    item.w = args_.w.of + static_cast<std::int64_t>(unit_tile) * args_.w.units * args_.w.unit_bytes;
    item.tiles =
        min(kTileUnits, (static_cast<int>(args_.a.n) + kUnitRows - 1) / kUnitRows - unit_tile);
    item.begin = args_.w.units * item.split / args_.splits;
    item.end = args_.w.units * (item.split + 1) / args_.splits;
    return item;
  }

  template <int kCount>
  __device__ void finish(const Item& item, float (&sums)[kCount], int warp, int lane) const {
    if (args_.splits > 1 && !share_sums(item, sums)) return;
    store(item, sums, warp, lane);
  }

 private:
  // 2. False: another CTA adds the sums.
  template <int kCount>
  __device__ bool share_sums(const Item& item, float (&sums)[kCount]) const {
    float* const own =
        args_.partial +
        static_cast<std::int64_t>(item.tile) * args_.splits * (kCount * kIntConsumers) +
        threadIdx.x;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      __stcg(own + (item.split * kCount + i) * kIntConsumers, sums[i]);
    __threadfence();
    sync_int_consumers();
    if (threadIdx.x == 0) {
      is_last_ = static_cast<int>(atomicAdd(args_.arrived + item.tile, 1u)) == args_.splits - 1;
      if (is_last_) args_.arrived[item.tile] = 0;
    }
    sync_int_consumers();
    const bool adds = is_last_ != 0;
    sync_int_consumers();  // before the next tile writes is_last_
    if (!adds) return false;
    __threadfence();
#pragma unroll
    for (float& sum : sums) sum = 0;
    for (int split = 0; split < args_.splits; ++split)
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        sums[i] += __ldcg(own + (split * kCount + i) * kIntConsumers);
    return true;
  }

  // 3.
  template <int kCount>
  __device__ void store(const Item& item, const float (&sums)[kCount], int warp, int lane) const {
    const GemmArgs& a = args_.a;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int n = item.column + warp * kUnitRows + r * 8 + lane / 4;
      if (n >= a.n) continue;
      const float bias = bias_at(a, n);
#pragma unroll
      for (int j = 0; j < kRows / 8; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int m = item.row + j * 8 + lane % 4 * 2 + c;
          if (m >= a.m) continue;
          const float value = sums[4 * j + 2 * r + c] + bias;
          const std::int64_t at = m * a.out_stride + n;
          if (args_.half_out != nullptr)
            args_.half_out[at] = narrow<Bf16>(value);
          else
            a.out[at] = a.add ? a.out[at] + value : value;
        }
    }
  }

  const IntTileArgs& args_;
  int& is_last_;
};

template <IntKind kKind, int kRows, bool kFine>
__global__ void __launch_bounds__(kIntTileThreads, kRows <= 32 ? 2 : 1)
    int_tiles_kernel(const __grid_constant__ IntTileArgs args) {
  __shared__ int is_last;
  start_next_kernel();
  run_int_tiles<kKind, kRows, kFine>(DenseWork<kRows>(args, is_last), args.stages);
}

constexpr int kOrderThreads = 256;

// Grid: pieces of a row; rows. A thread writes eight columns.
__global__ void __launch_bounds__(kOrderThreads)
    order_columns_kernel(const Bf16* x, std::int64_t x_stride, const std::int32_t* order, int k,
                         Bf16* out, std::int64_t out_stride) {
  begin_dependent();
  const int at = (static_cast<int>(blockIdx.x * blockDim.x) + static_cast<int>(threadIdx.x)) * 8;
  if (at >= k) return;
  const Bf16* from = x + blockIdx.y * x_stride;
  alignas(16) Bf16 values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = from[order == nullptr ? at + i : order[at + i]];
  *reinterpret_cast<uint4*>(out + blockIdx.y * out_stride + at) =
      *reinterpret_cast<const uint4*>(values);
}

}  // namespace

void order_columns(Context& ctx, const void* x, std::int64_t x_stride, const std::int32_t* order,
                   std::int64_t m, std::int64_t k, void* out, std::int64_t out_stride) {
  launch_dependent(ctx, "order of columns", order_columns_kernel,
                   dim3(blocks_for(k, kOrderThreads * 8), static_cast<unsigned>(m)), kOrderThreads,
                   0, static_cast<const Bf16*>(x), x_stride, order, static_cast<int>(k),
                   static_cast<Bf16*>(out), out_stride);
}

void gemm_int_tiles(Context& ctx, const GemmArgs& a, const IntWeights& w) {
  if (a.m == 0 || a.n == 0) return;
  const IntTilePlan plan = plan_int_tiles({.m = a.m,
                                           .n = a.n,
                                           .k = a.k,
                                           .unit_bytes = w.unit_bytes,
                                           .num_sms = ctx.cuda->info().num_sms,
                                           .scratch_bytes = ctx.cuda->scratch_bytes() / 2,
                                           .deterministic = ctx.deterministic});
  const bool is_half = a.out_type == DType::kBF16;
  const IntTileArgs args{.x = map_of_boxes(a.x, a.m, a.k, a.x_stride, plan.rows),
                         .a = a,
                         .w = w,
                         .half_out = is_half ? reinterpret_cast<Bf16*>(a.out) : nullptr,
                         .row_tiles = static_cast<int>(blocks_for(a.m, plan.rows)),
                         .column_tiles = static_cast<int>(blocks_for(a.n, kIntTileRows)),
                         .splits = plan.splits,
                         .stages = plan.stages,
                         .partial = static_cast<float*>(ctx.cuda->scratch()),
                         .arrived = ctx.cuda->counters()};
  with_int_kind(w, [&]<IntKind kKind, bool kFine>() {
    if constexpr (kKind != IntKind::kFp8) {
      const auto run = [&](auto kernel) {
        launch_dependent(ctx, "GEMM of weights in fragments", kernel,
                         dim3(static_cast<unsigned>(plan.blocks)), kIntTileThreads,
                         plan.shared_bytes, args);
      };
      switch (plan.rows) {
        case 16:
          return run(int_tiles_kernel<kKind, 16, kFine>);
        case 32:
          return run(int_tiles_kernel<kKind, 32, kFine>);
        case 64:
          return run(int_tiles_kernel<kKind, 64, kFine>);
        default:
          return run(int_tiles_kernel<kKind, 128, kFine>);
      }
    }
  });
}

}  // namespace sluice::cuda
