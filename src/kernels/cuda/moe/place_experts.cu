// A thread for each pair (token, expert): a table's entry instead of its id.
#include "kernels/cuda/moe/place_experts.h"

#include "kernels/cuda/common/launch.cuh"

namespace sluice::cuda {
namespace {

constexpr int kPlaceThreads = 128;

struct PlaceArgs {
  const std::int32_t* places = nullptr;  // [experts]
  std::int32_t* ids = nullptr;           // [pairs / top_k][top_k]
  std::int64_t stride = 0, pairs = 0;
  int top_k = 1, experts = 1;
};

// Every thread waits before it reads: what follows relies on the kernels before this one, too.
__global__ void __launch_bounds__(kPlaceThreads) place_kernel(const __grid_constant__ PlaceArgs a) {
  begin_dependent();
  const std::int64_t pair = std::int64_t{blockIdx.x} * kPlaceThreads + threadIdx.x;
  if (pair >= a.pairs) return;
  std::int32_t* const id = a.ids + pair / a.top_k * a.stride + pair % a.top_k;
  if (*id < 0 || *id >= a.experts) __trap();
  *id = a.places[*id];
}

}  // namespace

void place_experts(Context& ctx, const Tensor& places, const Tensor& ids) {
  const PlaceArgs args{.places = places.ptr<std::int32_t>(),
                       .ids = ids.ptr<std::int32_t>(),
                       .stride = ids.stride[0],
                       .pairs = ids.dim(0) * ids.dim(1),
                       .top_k = static_cast<int>(ids.dim(1)),
                       .experts = static_cast<int>(places.dim(0))};
  if (args.pairs == 0) return;
  launch_dependent(ctx, "placing experts", place_kernel, blocks_for(args.pairs, kPlaceThreads),
                   kPlaceThreads, 0, args);
}

}  // namespace sluice::cuda
