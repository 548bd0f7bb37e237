// Neighbouring elements of a row in the registers of a lane, which load and store them together.
#pragma once

#include "kernels/cuda/common/common.cuh"

namespace sluice::cuda {

// Bytes of one access, and its alignment: the largest power of two, up to 16, that divides kBytes.
template <int kBytes>
inline constexpr int kAccessBytes = kBytes % 16 == 0 ? 16 : kBytes & -kBytes;

// from: aligned to kAccessBytes<4 kCount>.
template <int kCount>
__device__ inline void load_elements(const float* from, float (&to)[kCount]) {
  struct alignas(kAccessBytes<4 * kCount>) Elements {
    float element[kCount];
  };
  const Elements elements = *reinterpret_cast<const Elements*>(from);
#pragma unroll
  for (int e = 0; e < kCount; ++e) to[e] = elements.element[e];
}

// kCount neighbouring elements, which a lane stores in as few accesses as their size allows.
template <class T, int kCount>
struct alignas(kAccessBytes<kCount* static_cast<int>(sizeof(T))>) NarrowElements {
  T element[kCount];

  // narrowed(x): an element as T.
  template <class Narrow>
  static __device__ NarrowElements of(const float (&x)[kCount], const Narrow& narrowed) {
    NarrowElements out;
#pragma unroll
    for (int e = 0; e < kCount; ++e) out.element[e] = narrowed(x[e]);
    return out;
  }
  // to: aligned as this struct is.
  __device__ void store(T* to) const { *reinterpret_cast<NarrowElements*>(to) = *this; }
};

}  // namespace sluice::cuda
