// Instructions that CUDA C++ has no names for, from compute capability 8.0 on: asynchronous copies
// to shared memory, matrix fragments and bfloat16 MMA; and the two calls of programmatic dependent
// launch, which do nothing before 9.0.
//
// Fragments of m16n8k16, for lane = 4 g + t: a = {(g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t +
// 8)}, b = {(2t, g), (2t + 8, g)}, each with its neighbour along k; c = {(g, 2t), (g, 2t + 1), (g +
// 8, 2t), (g + 8, 2t + 1)}. Source: PTX ISA, "Warp-level matrix instructions".
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace sluice::cuda {

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes, or 16 zeros when `wanted` is false; then nothing is read.
__device__ inline void cp_async_16(std::uint32_t to, const void* from, bool wanted) {
  const int bytes = wanted ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void cp_async_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until all but the last kGroups groups of this thread are there.
template <int kGroups>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

__device__ inline void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
__device__ inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
// An 8 x 8 matrix of the warp, transposed.
__device__ inline std::uint32_t movmatrix_trans(std::uint32_t x) {
  std::uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

__device__ inline void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What does not depend on the kernel before may run before wait_for_earlier_kernels(); every kernel
// that is launched as a dependent one calls it. Until all threads have called start_next_kernel()
// or ended, the next one waits.
__device__ inline void wait_for_earlier_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void start_next_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// For kernels that have nothing to do before: the next one may already be set up.
__device__ inline void begin_dependent() {
  start_next_kernel();
  wait_for_earlier_kernels();
}

}  // namespace sluice::cuda
