#include "poison.h"

#include "kernels/cuda/common/launch.cuh"

namespace sluice::oracle {
namespace {

__global__ void poison_kernel(int words) {
  extern __shared__ std::uint32_t shared[];
  // Without `volatile` the compiler drops stores that nothing reads.
  auto* const to = static_cast<volatile std::uint32_t*>(shared);
  for (int i = static_cast<int>(threadIdx.x); i < words; i += static_cast<int>(blockDim.x))
    to[i] = 0xFFFFFFFFu;
}

}  // namespace

void poison_shared_memory(const Context& ctx) {
  int device = 0, bytes = 0, sms = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  cudaFuncSetAttribute(poison_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  // A CTA takes the whole memory of its SM.
  poison_kernel<<<sms, 1024, bytes, cuda::stream_of(ctx)>>>(bytes / 4);
  cuda::check_launch("poison of shared memory");
}

}  // namespace sluice::oracle
