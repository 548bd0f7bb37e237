// Weights in fragments (kernels/types/int_fragments.h) as rows of bfloat16, for GEMMs of many rows:
// a weight is its exact difference times its scale, rounded once.
//
// 1. widen_units     a warp has a unit: fragments -> shared memory -> 256 bytes of each row
// 2. place_columns   where the columns are in another order: a CTA puts whole rows in order
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/gemm/widened_step.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWidenWarps = 8;
// Eight bytes more than a row's 128 elements: eight rows begin in different groups of four banks.
constexpr int kWidenStride = kFragmentUnitColumns + 8;
constexpr int kPlaceThreads = 256;
// Of rows that a CTA of place_columns() has at once, which share the reading of the order.
constexpr std::int64_t kPlaceBytes = 96 << 10;

// Grid: pieces of a tile's units; tiles of 16 rows. out: [16 tiles, k].
template <IntKind kKind>
__global__ void __launch_bounds__(kWidenWarps* kWarp)
    widen_units(IntWeights w, int k, Bf16* __restrict__ out) {
  __shared__ __align__(16) Bf16 staged[kWidenWarps][kUnitRows * kWidenStride];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp,
            index = static_cast<int>(blockIdx.x) * kWidenWarps + warp;
  begin_dependent();
  if (index >= w.units) return;
  const unsigned char* unit =
      w.of + (static_cast<std::int64_t>(blockIdx.y) * w.units + index) * w.unit_bytes;
  Bf16* const own = staged[warp];
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int step = 0; step < kUnitMmas; ++step) {
    std::uint32_t a[4];
    widened_step<kKind>(w, unit, step, lane, a);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<std::uint32_t*>(own + (g + i % 2 * 8) * kWidenStride + step * 16 +
                                        i / 2 * 8 + t * 2) = a[i];
  }
  __syncwarp();
  const int column = lane % 16 * 8, from = index * kFragmentUnitColumns + column;
  if (from >= k) return;
#pragma unroll
  for (int row = lane / 16; row < kUnitRows; row += 2)
    *reinterpret_cast<uint4*>(out + (static_cast<std::int64_t>(blockIdx.y) * kUnitRows + row) * k +
                              from) =
        *reinterpret_cast<const uint4*>(own + row * kWidenStride + column);
}

// Grid: `each` rows. Element j of a row goes to place order[j] of the same row.
__global__ void __launch_bounds__(kPlaceThreads)
    place_columns(Bf16* __restrict__ rows, const std::int32_t* __restrict__ order, int num_rows,
                  int each, int k) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto* const placed = reinterpret_cast<Bf16*>(shared);  // [each][k]
  begin_dependent();
  const int first = static_cast<int>(blockIdx.x) * each, count = min(each, num_rows - first);
  Bf16* const own = rows + static_cast<std::int64_t>(first) * k;
  for (int j = static_cast<int>(threadIdx.x) * 2; j < k; j += kPlaceThreads * 2) {
    const int2 to = *reinterpret_cast<const int2*>(order + j);
    for (int row = 0; row < count; ++row) {
      const auto two =
          *reinterpret_cast<const __nv_bfloat162*>(own + static_cast<std::int64_t>(row) * k + j);
      placed[row * k + to.x] = two.x;
      placed[row * k + to.y] = two.y;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x) * 8; i < count * k; i += kPlaceThreads * 8)
    *reinterpret_cast<uint4*>(own + i) = *reinterpret_cast<const uint4*>(placed + i);
}

}  // namespace

void widen_fragments(Context& ctx, const IntWeights& w, std::int64_t rows, std::int64_t k,
                     void* out) {
  const auto tiles = static_cast<int>(blocks_for(rows, kUnitRows));
  auto* const to = static_cast<Bf16*>(out);
  with_int_kind(w, [&]<IntKind kKind, bool>() {
    if constexpr (kKind != IntKind::kFp8)
      launch_dependent(ctx, "weights in fragments as bfloat16", widen_units<kKind>,
                       dim3(blocks_for(w.units, kWidenWarps), static_cast<unsigned>(tiles)),
                       kWidenWarps * kWarp, 0, w, static_cast<int>(k), to);
  });
  if (w.order == nullptr) return;
  const int each = static_cast<int>(std::clamp<std::int64_t>(kPlaceBytes / (k * 2), 1, 8));
  launch_dependent(ctx, "order of a weight's columns", place_columns, dim3(blocks_for(rows, each)),
                   kPlaceThreads, each * k * 2, to, w.order, static_cast<int>(rows), each,
                   static_cast<int>(k));
}

}  // namespace sluice::cuda
