// PTX wrappers from compute capability 8.0 on: cp.async, ldmatrix, movmatrix, mma.sync; and the two
// instructions of programmatic dependent launch, which do nothing before 9.0.
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

// Stores 16 bytes to shared memory.
__device__ inline void store_piece(std::uint32_t to, const uint4& x) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x.x), "r"(x.y), "r"(x.z),
               "r"(x.w)
               : "memory");
}

// Copies 4 bytes.
__device__ inline void cp_async_4(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
// Copies 16 bytes, or writes 16 zeros without reading if `is_inside` is false.
__device__ inline void cp_async_16(std::uint32_t to, const void* from, bool is_inside) {
  const int bytes = is_inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void cp_async_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until all but the last kGroups groups of this thread are complete. Other threads see the
// data after a barrier only.
template <int kGroups>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Four 8 x 8 matrices: lane 8 i + r passes the address of row r of matrix i.
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
// Transposes an 8 x 8 matrix that the warp holds.
__device__ inline std::uint32_t movmatrix_trans(std::uint32_t x) {
  std::uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// c += a b, with float32 accumulators.
__device__ inline void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same with float16.
__device__ inline void mma_m16n8k16_f16(float (&c)[4], const std::uint32_t (&a)[4],
                                        std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two bfloat16, the first one in the low half.
__device__ inline std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

// 2^x by the special function unit, with a few ulp of error.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Programmatic dependent launch. Every dependent kernel calls wait_for_earlier_kernels(); code
// before the call must not depend on earlier kernels. The next kernel starts when all threads have
// called start_next_kernel() or ended.
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
// For kernels without work before the wait. The next kernel may be set up already.
__device__ inline void begin_dependent() {
  start_next_kernel();
  wait_for_earlier_kernels();
}

}  // namespace sluice::cuda
