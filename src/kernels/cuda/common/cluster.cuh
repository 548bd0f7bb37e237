// Thread block clusters: the CTAs of a cluster run at the same time and can write into each other's
// shared memory. Hopper and later. Source: PTX ISA, "barrier.cluster", "mapa", and "st" with
// .shared::cluster.
#pragma once

#include "kernels/cuda/common/launch.cuh"

namespace sluice::cuda {

inline constexpr unsigned kPlainCluster = 8;  // larger clusters need an attribute of the kernel
inline constexpr int kMaxCluster = 16;

// Barrier of all threads of the cluster: stores before an arrival are visible after the wait.
//
// Hazard: a store into the shared memory of another CTA needs a first barrier, because that CTA
// must have begun; and a last one before a CTA ends, because its memory may still be written.
__device__ inline void cluster_arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// Stores into the copy of `here` in CTA `rank`. `here` is an address in this CTA's shared memory.
__device__ inline void store_to_cta(const float* here, unsigned rank, float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .u32 there; mapa.shared::cluster.u32 there, %0, %1; st.shared::cluster.f32 [there], "
      "%2; }" ::"r"(shared_address(here)),
      "r"(rank), "f"(value)
      : "memory");
#endif
}
__device__ inline void store_to_cta(const float* here, unsigned rank, float2 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .u32 there; mapa.shared::cluster.u32 there, %0, %1; st.shared::cluster.v2.f32 "
      "[there], {%2, %3}; }" ::"r"(shared_address(here)),
      "r"(rank), "f"(value.x), "f"(value.y)
      : "memory");
#endif
}

// Arrives at the copy of an mbarrier in CTA `rank`: tells that data was read. It does not publish
// ordinary stores to other CTAs.
__device__ inline void mbarrier_arrive_remote(std::uint32_t barrier, unsigned rank) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .u32 there; mapa.shared::cluster.u32 there, %0, %1; "
      "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
      "r"(rank)
      : "memory");
#endif
}

// A launch as by launch_dependent(), in clusters.
class ClusterLaunch {
 public:
  ClusterLaunch(const Context& ctx, dim3 grid, int threads, std::int64_t shared_bytes, dim3 cluster)
      : cluster_(cluster.x * cluster.y * cluster.z),
        blocks_(std::int64_t{grid.x} * grid.y * grid.z) {
    config_.gridDim = grid;
    config_.blockDim = dim3(static_cast<unsigned>(threads));
    config_.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config_.stream = stream_of(ctx);
    attributes_[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes_[0].val.programmaticStreamSerializationAllowed = 1;
    attributes_[1].id = cudaLaunchAttributeClusterDimension;
    attributes_[1].val.clusterDim.x = cluster.x;
    attributes_[1].val.clusterDim.y = cluster.y;
    attributes_[1].val.clusterDim.z = cluster.z;
    config_.attrs = attributes_;
    config_.numAttrs = 2;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;

  // Whether all clusters can run at once. Call before run(): it also sets the attributes of the
  // kernel.
  template <class... Params>
  bool fits(void (*kernel)(Params...)) const {
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    if (static_cast<std::int64_t>(config_.dynamicSmemBytes) > kPlainSharedBytes)
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(config_.dynamicSmemBytes));
    if (cluster_ > kPlainCluster)
      cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    int clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config_) == cudaSuccess)
      return clusters * std::int64_t{cluster_} >= blocks_;
    cudaGetLastError();  // clears the error: a GPU without such clusters is an answer
    return false;
  }
  template <class... Params, class... Args>
  void run(const char* what, void (*kernel)(Params...), const Args&... args) const {
    cudaLaunchKernelEx(&config_, kernel, static_cast<Params>(args)...);
    check_launch(what);
  }

 private:
  cudaLaunchConfig_t config_{};
  cudaLaunchAttribute attributes_[2]{};
  unsigned cluster_;
  std::int64_t blocks_;
};

}  // namespace sluice::cuda
