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
  CUtensorMap x, units;
  GemmArgs a;
  IntWeights w;
  Bf16* half_out = nullptr;  // instead of `out`
  int row_tiles = 0;         // of x
  int column_tiles = 0;      // of the weights' rows
  int splits = 1, stages = 1;
  float* partial = nullptr;          // [tile][split][sum of a thread][finishing thread]
  std::uint32_t* arrived = nullptr;  // [tile], 0 between launches
};

// 1.
template <int kRows, class Shape>
class DenseWork {
 public:
  static constexpr bool kLoadsEarly = true;
  struct Item : IntItem {
    int index = 0, split = 0;  // of the tile of the output
  };

  __device__ DenseWork(const IntTileArgs& args, int& is_last) : args_(args), is_last_(is_last) {}
  __device__ const CUtensorMap& x_map() const { return args_.x; }
  __device__ const CUtensorMap& w_map() const { return args_.units; }
  __device__ const IntWeights& weights() const { return args_.w; }
  __device__ int count() const { return args_.row_tiles * args_.column_tiles * args_.splits; }

  __device__ Item item(int index) const {
    Item item;
    item.index = index / args_.splits, item.split = index % args_.splits;
    const int first = item.index / (kBandTiles * args_.column_tiles) * kBandTiles,
              band = min(args_.row_tiles - first, kBandTiles),
              within = item.index - first * args_.column_tiles,
              steps = (args_.w.units + Shape::kDeep - 1) / Shape::kDeep;
    item.row = (first + within % band) * kRows;
    item.tile = within / band * Shape::kTiles;
    item.begin = steps * item.split / args_.splits * Shape::kDeep;
    item.end = min(steps * (item.split + 1) / args_.splits * Shape::kDeep, args_.w.units);
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
    constexpr int kThreads = Shape::kFinishing;
    float* const own = args_.partial +
                       static_cast<std::int64_t>(item.index) * args_.splits * (kCount * kThreads) +
                       threadIdx.x;
#pragma unroll
    for (int i = 0; i < kCount; ++i) __stcg(own + (item.split * kCount + i) * kThreads, sums[i]);
    __threadfence();
    sync_int_consumers<kThreads, 2>();
    if (threadIdx.x == 0) {
      is_last_ = static_cast<int>(atomicAdd(args_.arrived + item.index, 1u)) == args_.splits - 1;
      if (is_last_) args_.arrived[item.index] = 0;
    }
    sync_int_consumers<kThreads, 2>();
    const bool adds = is_last_ != 0;
    sync_int_consumers<kThreads, 2>();  // before the next tile writes is_last_
    if (!adds) return false;
    __threadfence();
#pragma unroll
    for (float& sum : sums) sum = 0;
    for (int split = 0; split < args_.splits; ++split)
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] += __ldcg(own + (split * kCount + i) * kThreads);
    return true;
  }

  // 3.
  template <int kCount>
  __device__ void store(const Item& item, const float (&sums)[kCount], int warp, int lane) const {
    const GemmArgs& a = args_.a;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int n = (item.tile + warp) * kUnitRows + r * 8 + lane / 4;
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

template <IntKind kKind, int kRows, bool kFine, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, kIntCtas<Shape, kRows>)
    int_tiles_kernel(const __grid_constant__ IntTileArgs args) {
  __shared__ int is_last;
  start_next_kernel();
  run_int_tiles<kKind, kRows, kFine, Shape>(DenseWork<kRows, Shape>(args, is_last), args.stages);
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
  const std::int64_t tiles = blocks_for(a.n, kUnitRows), tile_rows = 64 * plan.wide;
  const IntTileArgs args{.x = map_of_boxes(a.x, a.m, a.k, a.x_stride, plan.rows),
                         .units = map_of_units(w, tiles, 1, 0, plan.wide, plan.deep),
                         .a = a,
                         .w = w,
                         .half_out = is_half ? reinterpret_cast<Bf16*>(a.out) : nullptr,
                         .row_tiles = static_cast<int>(blocks_for(a.m, plan.rows)),
                         .column_tiles = static_cast<int>(blocks_for(a.n, tile_rows)),
                         .splits = plan.splits,
                         .stages = plan.stages,
                         .partial = static_cast<float*>(ctx.cuda->scratch()),
                         .arrived = ctx.cuda->counters()};
  with_int_kind(w, [&]<IntKind kKind, bool kFine>() {
    if constexpr (kKind != IntKind::kFp8) {
      const auto run = [&]<int kRows, class Shape>() {
        launch_dependent(
            ctx, "GEMM of weights in fragments", int_tiles_kernel<kKind, kRows, kFine, Shape>,
            dim3(static_cast<unsigned>(plan.blocks)), Shape::kThreads, plan.shared_bytes, args);
      };
      if (plan.deep == 4)
        return plan.rows == 16 ? run.template operator()<16, IntShape<1, 4>>()
                               : run.template operator()<32, IntShape<1, 4>>();
      if (plan.deep == 2) return run.template operator()<64, IntShape<2, 2>>();
      switch (plan.rows) {
        case 16:
          return run.template operator()<16, IntShape<2, 1>>();
        case 32:
          return run.template operator()<32, IntShape<2, 1>>();
        case 64:
          return run.template operator()<64, IntShape<2, 1>>();
        default:
          return run.template operator()<128, IntShape<2, 1>>();
      }
    }
  });
}

}  // namespace sluice::cuda
