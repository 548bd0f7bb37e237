// Output of attention kernels.
#pragma once

#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/common/common.cuh"

namespace sluice::cuda {

// Stores two neighbouring elements. `at` is even, so the store is aligned.
__device__ inline void store_two(const PagedArgs& a, std::int64_t at, float x, float y) {
  if (a.out_is_half)
    *reinterpret_cast<__nv_bfloat162*>(static_cast<Bf16*>(a.out) + at) =
        __floats2bfloat162_rn(x, y);
  else
    *reinterpret_cast<float2*>(static_cast<float*>(a.out) + at) = {x, y};
}

}  // namespace sluice::cuda
