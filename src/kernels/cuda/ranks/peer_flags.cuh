// Words by which GPUs tell each other of memory that they wrote there.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// Looks at a word before a wait looks whether it shall end.
inline constexpr int kLooks = 1024;

__device__ inline void raise_flag(std::uint32_t* flag, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ inline std::uint32_t read_flag(const std::uint32_t* flag) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// Until the word is `value` or a later number, or `stop` is not 0.
__device__ inline void wait_for_flag(const std::uint32_t* flag, std::uint32_t value,
                                     const int* stop) {
  for (int looks = 0; static_cast<std::int32_t>(read_flag(flag) - value) < 0; ++looks)
    if (looks % kLooks == kLooks - 1 && *static_cast<const volatile int*>(stop) != 0) return;
}

// What another GPU wrote: never from the L1 cache.
__device__ inline float4 read_slot(const float4* slot) {
  float4 v;
  asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(slot)
               : "memory");
  return v;
}

// To another GPU, in no order with other words.
__device__ inline void write_slot(float4* slot, const float4& v) {
  asm volatile("st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(slot), "f"(v.x),
               "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}

}  // namespace sluice::cuda
