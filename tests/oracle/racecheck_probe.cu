// What racecheck reports of a correct ring of stages: racecheck_probe [each].
//
// A thread fills stages by bulk copies, a warp reads them and frees them. Lane 0 arrives at the
// stage's mbarrier behind __syncwarp(), which orders the reads of all lanes before its arrival
// (PTX: bar.warp.sync). Kernels of linear layers and experts free their stages so. With `each`,
// every lane arrives. racecheck of CUDA 13 reports hazards of the first and none of the second: it
// does not follow __syncwarp() to an mbarrier.
#include <cstdint>
#include <cstdio>

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/common/wgmma.cuh"

namespace sluice::cuda {
namespace {

constexpr int kStages = 2, kFloats = 256, kRounds = 64;

template <bool kEach>
__global__ void ring_kernel(const float* from, float* to) {
  __shared__ alignas(128) float stages[kStages][kFloats];
  __shared__ alignas(8) std::uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0)
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(shared_address(&full[i]), 1);
      mbarrier_init(shared_address(&empty[i]), kEach ? 32 : 1);
    }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRounds; ++i) {
      const std::uint32_t barrier = shared_address(&full[i % kStages]);
      mbarrier_wait(shared_address(&empty[i % kStages]), (i / kStages + 1) % 2);
      asm volatile(
          "{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::
              "r"(barrier),
          "r"(kFloats * 4)
          : "memory");
      tma_load_bytes(from + kFloats * i, kFloats * 4, shared_address(stages[i % kStages]), barrier);
    }
  } else if (threadIdx.x >= 32) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float sum = 0;
    for (int i = 0; i < kRounds; ++i) {
      mbarrier_wait(shared_address(&full[i % kStages]), i / kStages % 2);
      for (int k = 0; k < kFloats; k += 32) sum += stages[i % kStages][k + (lane * 5 + i) % 32];
      if (!kEach) __syncwarp();
      if (kEach || lane == 0) mbarrier_arrive(shared_address(&empty[i % kStages]));
    }
    to[lane] = sum;
  }
}

}  // namespace
}  // namespace sluice::cuda

int main(int argc, char**) {
  float *from = nullptr, *to = nullptr;
  const std::size_t bytes = sluice::cuda::kRounds * sluice::cuda::kFloats * sizeof(float);
  cudaMalloc(&from, bytes);
  cudaMalloc(&to, 32 * sizeof(float));
  cudaMemset(from, 0, bytes);
  if (argc > 1)
    sluice::cuda::ring_kernel<true><<<1, 64>>>(from, to);
  else
    sluice::cuda::ring_kernel<false><<<1, 64>>>(from, to);
  const cudaError_t status = cudaDeviceSynchronize();
  std::printf("%s arrives: %s\n", argc > 1 ? "each lane" : "lane 0", cudaGetErrorString(status));
  return status == cudaSuccess ? 0 : 1;
}
