// Weights in fragments as bfloat16: an exact difference times its scale, rounded once.
#pragma once

#include "kernels/cuda/gemm/int_fragments.cuh"

namespace sluice::cuda {

// Fragments of MMA `step` of a unit of integers, e2m1 or e4m3: exact differences.
template <IntKind kKind>
__device__ inline void read_step(const unsigned char* unit, int step, int lane,
                                 const FragmentZeros& zeros, std::uint32_t (&a)[4]) {
  if constexpr (kBitsOf<kKind> == 4) {
    const std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(
        unit + (step / 4 * kWarp + lane) * 16 + step % 4 * 4);
    if constexpr (kKind == IntKind::kNvFp4)
      NvScales<false>::at(unit, step / 4, lane / 4).to_fragments(word, step % 4, a);
    else if constexpr (kKind == IntKind::kFp4)
      e2m1_to_fragments(word, Fp4Scales::one(), a);
    else
      nibbles_to_fragments(word, zeros, a);
  } else {
    const uint2 words =
        *reinterpret_cast<const uint2*>(unit + (step / 2 * kWarp + lane) * 16 + step % 2 * 8);
    bytes_to_fragments<kKind>(words.x, words.y, a);
  }
}

// Fragments of MMA `step` of a unit as its lane of a warp holds them: register i has row
// lane / 4 + 8 (i % 2), and columns 8 (i / 2) + lane % 4 * 2 and the next of the step's 16.
template <IntKind kKind>
__device__ inline void widened_step(const IntWeights& w, const unsigned char* unit, int step,
                                    int lane, std::uint32_t (&a)[4]) {
  if constexpr (kIsBlocks<kKind>) {
    BlockFragments<kKind>(unit, step / 4, lane).to_weights(step % 4, a);
  } else {
    const int g = lane / 4, group = step * w.groups / kUnitMmas;
    const float2 scale = fragment_scales<kKind>(unit, group, g, w.in_bf16);
    FragmentZeros zeros = FragmentZeros::middle();
    if (kKind == IntKind::kInt4 && w.has_zeros) zeros = FragmentZeros::at(unit, w.groups, group, g);
    read_step<kKind>(unit, step, lane, zeros, a);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float by = i % 2 == 0 ? scale.x : scale.y;
      a[i] = pack_bf16(__uint_as_float(a[i] << 16) * by, __uint_as_float(a[i] & 0xFFFF0000u) * by);
    }
  }
}

}  // namespace sluice::cuda
