// How kernels of attention store what they made.
#pragma once

#include "kernels/cuda/attention/attention_fast.h"
#include "kernels/cuda/common/common.cuh"

namespace sluice::cuda {

// Two neighbours of the output; `at` is even.
__device__ inline void store_two(const PagedArgs& a, std::int64_t at, float x, float y) {
  if (a.out_is_half)
    *reinterpret_cast<__nv_bfloat162*>(static_cast<Bf16*>(a.out) + at) =
        __floats2bfloat162_rn(x, y);
  else
    *reinterpret_cast<float2*>(static_cast<float*>(a.out) + at) = {x, y};
}

}  // namespace sluice::cuda
