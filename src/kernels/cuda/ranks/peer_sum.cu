#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/ranks/peer_sum.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 512;
// Looks at a flag before the wait looks whether it shall end.
constexpr int kLooks = 1024;

__device__ void raise_flag(std::uint32_t* flag, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ std::uint32_t read_flag(const std::uint32_t* flag) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// What another GPU wrote: never from the L1 cache.
__device__ float4 read_slot(const float4* slot) {
  float4 v;
  asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(slot)
               : "memory");
  return v;
}

__device__ void add(float4& sum, const float4& v) {
  sum.x += v.x;
  sum.y += v.y;
  sum.z += v.z;
  sum.w += v.w;
}

// `each`: vectors of 4 floats of one CTA, of `count` in all.
__global__ void __launch_bounds__(kThreads)
    sum_peers(PeerSum sum, float4* x, std::int64_t count, std::int64_t each) {
  begin_dependent();
  const int num_peers = sum.layout.num_peers, rank = sum.rank;
  const std::int64_t slot = sum.layout.slot_floats / 4, first = blockIdx.x * each,
                     last = min(count, first + each);
  const auto words = [&](int peer) {
    return reinterpret_cast<std::uint32_t*>(sum.memory[peer] + sum.layout.slots_bytes());
  };
  std::uint32_t* const counters = words(rank) + kPeerSumBlocks * kMaxPeers;
  const std::uint32_t number = *static_cast<volatile std::uint32_t*>(counters) + 1;
  const std::int64_t set = std::int64_t{number % 2} * num_peers * slot;

  for (int step = 1; step < num_peers; ++step) {
    const int peer = (rank + step) % num_peers;
    float4* to = reinterpret_cast<float4*>(sum.memory[peer]) + set + rank * slot;
    for (std::int64_t i = first + threadIdx.x; i < last; i += kThreads) to[i] = x[i];
  }
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < num_peers && peer != rank) {
    __threadfence_system();
    raise_flag(words(peer) + blockIdx.x * kMaxPeers + rank, number);
    const std::uint32_t* flag = words(rank) + blockIdx.x * kMaxPeers + peer;
    for (int looks = 0; static_cast<std::int32_t>(read_flag(flag) - number) < 0; ++looks)
      if (looks % kLooks == kLooks - 1 && *static_cast<const volatile int*>(sum.stop) != 0) break;
  }
  __syncthreads();
  const float4* const received = reinterpret_cast<const float4*>(sum.memory[rank]) + set;
  for (std::int64_t i = first + threadIdx.x; i < last; i += kThreads) {
    const float4 own = x[i];
    float4 total = rank == 0 ? own : read_slot(received + i);
    for (int other = 1; other < num_peers; ++other)
      add(total, other == rank ? own : read_slot(received + other * slot + i));
    x[i] = total;
  }
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(counters + 1, 1) == gridDim.x - 1) {
    counters[1] = 0;
    counters[0] = number;
  }
}

}  // namespace

void sum_over_peers(const PeerSum& sum, const Tensor& x, const Stream& stream) {
  const std::int64_t vectors = x.numel() / 4, blocks = peer_sum_blocks(x.numel());
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream.handle());
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = sum.sm >= 90 ? 1 : 0;  // see kernels/cuda/common/launch.cuh
  cudaLaunchKernelEx(&config, sum_peers, sum, static_cast<float4*>(x.data), vectors,
                     (vectors + blocks - 1) / blocks);
  check_launch("sum over peers");
}

}  // namespace sluice::cuda
