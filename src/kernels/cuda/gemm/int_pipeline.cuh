// Mainloop of GEMMs with few rows and weights in fragments (kernels/types/int_fragments.h): units
// of weights stream through shared memory past a few rows of x. The form of the pipeline is that of
// kernels/cuda/gemm/weight_pipeline.cuh: each warp has one of its own.
#pragma once

#include "kernels/cuda/gemm/int_fragments.cuh"
#include "kernels/cuda/gemm/weight_pipeline.cuh"

namespace sluice::cuda {

// The pipeline of this warp. A stage has a unit of each part of a tile. kFine: a unit has several
// groups. kHalves: rows of x are float16; not for integers of 4 bits. Sums of e2m1 then lack the
// factor kHalfE2m1, but for kNvFp4.
template <IntKind kKind, bool kFine, int kParts, int kStages, bool kHalves = false>
class UnitPipeline {
 public:
  __device__ UnitPipeline(unsigned char* shared, const IntWeights& w)
      : w_(w), bytes_(shared + threadIdx.x / kWarp * (kStages * kParts * w.unit_bytes)) {}

  // from: the unit of part 0. Every issue, also an empty one, ends with commit().
  __device__ void issue(const unsigned char* from, std::int64_t part) {
    constexpr int kRounds = kCodeBytes<kKind> / (16 * kWarp);
    const int lane = threadIdx.x % kWarp, rest = (w_.unit_bytes - kCodeBytes<kKind>) / 16;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const unsigned char* unit = from + p * part + lane * 16;
      const std::uint32_t to =
          shared_address(bytes_) + (issue_at_ * kParts + p) * w_.unit_bytes + lane * 16;
#pragma unroll
      for (int j = 0; j < kRounds; ++j) cp_async_16(to + j * (16 * kWarp), unit + j * (16 * kWarp));
      if (lane < rest) cp_async_16(to + kCodeBytes<kKind>, unit + kCodeBytes<kKind>);
    }
  }
  __device__ void commit() {
    cp_async_commit();
    issue_at_ = issue_at_ + 1 == kStages ? 0 : issue_at_ + 1;
  }
  // Waits for the oldest unit that was not taken yet. Then the stage of the unit before it is free.
  __device__ void await() {
    cp_async_wait<kStages - 2>();
    __syncwarp();
  }

  // sums += the oldest unit times x. x: the lane's row of its matrix in ldmatrix, at the unit.
  __device__ void take(std::uint32_t x, PipelineSums<kParts, 1>& sums) {
    const unsigned char* stage = bytes_ + take_at_ * kParts * w_.unit_bytes;
    take_at_ = take_at_ + 1 == kStages ? 0 : take_at_ + 1;
    if constexpr (kKind == IntKind::kFp4 && !kHalves)
      if (have_small_scales(stage)) return multiply_scaled(stage, x, sums);
    if constexpr (kIsBlocks<kKind>)
      multiply_blocks(stage, x, sums);
    else if constexpr (kKind == IntKind::kFp4 && kHalves)
      multiply_e2m1(stage, x, sums);
    else if constexpr (kFine)
      multiply(stage, x, sums);
    else
      multiply_group(stage, x, sums);
  }

 private:
  static_assert(!kHalves || (kKind != IntKind::kInt4 && !kIsBlocks<kKind>));
  static __device__ void widen_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t (&a)[4]) {
    if constexpr (kHalves)
      bytes_to_halves<kKind>(low, high, a);
    else
      bytes_to_fragments<kKind>(low, high, a);
  }
  static __device__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                             std::uint32_t b1) {
    if constexpr (kHalves)
      mma_m16n8k16_f16(c, a, b0, b1);
    else
      mma_m16n8k16(c, a, b0, b1);
  }

  // Whether all scales are at most 1, so that e2m1_to_fragments() can apply them.
  __device__ bool have_small_scales(const unsigned char* stage) const {
    constexpr int kWords = kFp4Groups * kUnitRows / 4;
    static_assert(kParts * kWords <= kWarp);
    const int lane = threadIdx.x % kWarp;
    const std::uint32_t scales = *reinterpret_cast<const std::uint32_t*>(
        stage + lane / kWords % kParts * w_.unit_bytes + kCodeBytes<kKind> + lane % kWords * 4);
    return !__any_sync(kAllLanes, scales & 0x80808080u);
  }

  // A quarter of a unit is one group.
  __device__ void multiply_e2m1(const unsigned char* stage, std::uint32_t x,
                                PipelineSums<kParts, 1>& sums) const {
    const int lane = threadIdx.x % kWarp, g = lane / 4;
    uint4 codes[kParts];
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      std::uint32_t xs[4];
      ldmatrix_x4(xs, x + quarter * 64);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const unsigned char* unit = stage + p * w_.unit_bytes;
        if (quarter % 2 == 0)
          codes[p] = *reinterpret_cast<const uint4*>(unit + (quarter / 2 * kWarp + lane) * 16);
        const float2 scale = fragment_scales<kKind>(unit, quarter, g, false);
        std::uint32_t a[2][4];
        e2m1_to_halves(quarter % 2 == 0 ? codes[p].x : codes[p].z, a[0]);
        e2m1_to_halves(quarter % 2 == 0 ? codes[p].y : codes[p].w, a[1]);
        float group_sums[4] = {};
        mma_m16n8k16_f16(group_sums, a[0], xs[0], xs[1]);
        mma_m16n8k16_f16(group_sums, a[1], xs[2], xs[3]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums.c[p][0][i] = fmaf(group_sums[i], i < 2 ? scale.x : scale.y, sums.c[p][0][i]);
      }
    }
  }

  // e2m1 times its scale is exact in bfloat16, so the sums of groups need none.
  __device__ void multiply_scaled(const unsigned char* stage, std::uint32_t x,
                                  PipelineSums<kParts, 1>& sums) const {
    const int lane = threadIdx.x % kWarp, g = lane / 4;
    float second_sums[kParts][4] = {};  // of a second chain of MMAs
    uint4 codes[kParts];
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      std::uint32_t xs[4];
      ldmatrix_x4(xs, x + quarter * 64);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const unsigned char* unit = stage + p * w_.unit_bytes;
        if (quarter % 2 == 0)
          codes[p] = *reinterpret_cast<const uint4*>(unit + (quarter / 2 * kWarp + lane) * 16);
        const Fp4Scales scales = Fp4Scales::at(unit, quarter, g);
        std::uint32_t a[2][4];
        e2m1_to_fragments(quarter % 2 == 0 ? codes[p].x : codes[p].z, scales, a[0]);
        e2m1_to_fragments(quarter % 2 == 0 ? codes[p].y : codes[p].w, scales, a[1]);
        mma_m16n8k16(sums.c[p][0], a[0], xs[0], xs[1]);
        mma_m16n8k16(second_sums[p], a[1], xs[2], xs[3]);
      }
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums.c[p][0][i] += second_sums[p][i];
  }

  // Exact codes, with scales on the sums of a group. Where a group has a constant, too, an MMA of
  // ones with x gives what it multiplies: the sum of the group's x.
  __device__ void multiply_blocks(const unsigned char* stage, std::uint32_t x,
                                  PipelineSums<kParts, 1>& sums) const {
    using Blocks = BlockFragments<kKind>;
    const int lane = threadIdx.x % kWarp;
    const std::uint32_t ones[4] = {0x3F803F80u, 0x3F803F80u, 0x3F803F80u, 0x3F803F80u};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t xs[2][4];
      ldmatrix_x4(xs[0], x + half * 128);
      ldmatrix_x4(xs[1], x + half * 128 + 64);
      const auto mma_step = [&](float(&c)[4], const std::uint32_t(&a)[4], int step) {
        mma_m16n8k16(c, a, xs[step / 2][step % 2 * 2], xs[step / 2][step % 2 * 2 + 1]);
      };
      float x_sums[Blocks::kGroups][4] = {};
      if constexpr (Blocks::kHasMinima)
#pragma unroll
        for (int step = 0; step < 4; ++step) mma_step(x_sums[step / Blocks::kSteps], ones, step);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const Blocks blocks(stage + p * w_.unit_bytes, half, lane);
#pragma unroll
        for (int group = 0; group < Blocks::kGroups; ++group) {
          float group_sums[4] = {};
#pragma unroll
          for (int step = group * Blocks::kSteps; step < (group + 1) * Blocks::kSteps; ++step) {
            std::uint32_t a[4];
            blocks.to_codes(step, a);
            mma_step(group_sums, a, step);
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& sum = sums.c[p][0][i];
            sum = fmaf(group_sums[i], blocks.s(i / 2, group), sum);
            if constexpr (Blocks::kHasMinima)
              sum = fmaf(x_sums[group][i], blocks.c(i / 2, group), sum);
          }
        }
      }
    }
  }

  // A unit is one group, so nothing branches between the MMAs of a part.
  __device__ void multiply_group(const unsigned char* stage, std::uint32_t x,
                                 PipelineSums<kParts, 1>& sums) const {
    const int lane = threadIdx.x % kWarp, g = lane / 4;
    std::uint32_t xs[4][4];
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) ldmatrix_x4(xs[quarter], x + quarter * 64);
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const unsigned char* unit = stage + p * w_.unit_bytes;
      uint4 codes[kBitsOf<kKind> / 2];
#pragma unroll
      for (int i = 0; i < kBitsOf<kKind> / 2; ++i)
        codes[i] = *reinterpret_cast<const uint4*>(unit + (i * kWarp + lane) * 16);
      const float2 scale = fragment_scales<kKind>(unit, 0, g, w_.in_bf16);
      [[maybe_unused]] FragmentZeros zeros = FragmentZeros::middle();
      if constexpr (kKind == IntKind::kInt4)
        if (w_.has_zeros) zeros = FragmentZeros::at(unit, 1, 0, g);
      float group_sums[2][4] = {};  // two chains of MMAs
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        std::uint32_t a[2][4];
        if constexpr (kKind == IntKind::kNvFp4) {
          const uint4& two = codes[quarter / 2];
          const auto scales = NvScales<kHalves>::at(unit, quarter / 2, g);
          scales.to_fragments(quarter % 2 == 0 ? two.x : two.z, quarter % 2 * 2, a[0]);
          scales.to_fragments(quarter % 2 == 0 ? two.y : two.w, quarter % 2 * 2 + 1, a[1]);
        } else if constexpr (kKind == IntKind::kInt4) {
          const uint4& two = codes[quarter / 2];
          nibbles_to_fragments(quarter % 2 == 0 ? two.x : two.z, zeros, a[0]);
          nibbles_to_fragments(quarter % 2 == 0 ? two.y : two.w, zeros, a[1]);
        } else {
          widen_bytes(codes[quarter].x, codes[quarter].y, a[0]);
          widen_bytes(codes[quarter].z, codes[quarter].w, a[1]);
        }
        mma(group_sums[0], a[0], xs[quarter][0], xs[quarter][1]);
        mma(group_sums[1], a[1], xs[quarter][2], xs[quarter][3]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums.c[p][0][i] =
            fmaf(group_sums[0][i] + group_sums[1][i], i < 2 ? scale.x : scale.y, sums.c[p][0][i]);
    }
  }

  // Groups of a quarter of a unit, or of half of one, too.
  __device__ void multiply(const unsigned char* stage, std::uint32_t x,
                           PipelineSums<kParts, 1>& sums) const {
    static_assert(kKind != IntKind::kFp4 || !kHalves);
    const int lane = threadIdx.x % kWarp, g = lane / 4,
              groups = kKind == IntKind::kFp4 ? kFp4Groups : w_.groups;
    float group_sums[kParts][2][4] = {};  // two chains of MMAs
    FragmentZeros zeros[kParts];
#pragma unroll
    for (int p = 0; p < kParts; ++p) zeros[p] = FragmentZeros::middle();
    uint4 codes[kParts];
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      // A group has 1, 2 or 4 quarters.
      [[maybe_unused]] const bool begins = (quarter * groups & 3) == 0;
      const bool ends = ((quarter + 1) * groups & 3) == 0;
      const int group = quarter * groups >> 2;
      std::uint32_t xs[4];
      ldmatrix_x4(xs, x + quarter * 64);
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const unsigned char* unit = stage + p * w_.unit_bytes;
        std::uint32_t a[2][4];
        if constexpr (kBitsOf<kKind> == 4) {
          if (quarter % 2 == 0)
            codes[p] = *reinterpret_cast<const uint4*>(unit + (quarter / 2 * kWarp + lane) * 16);
          const std::uint32_t first = quarter % 2 == 0 ? codes[p].x : codes[p].z,
                              second = quarter % 2 == 0 ? codes[p].y : codes[p].w;
          if constexpr (kKind == IntKind::kFp4) {
            e2m1_to_fragments(first, Fp4Scales::one(), a[0]);
            e2m1_to_fragments(second, Fp4Scales::one(), a[1]);
          } else {
            if (begins && w_.has_zeros) zeros[p] = FragmentZeros::at(unit, groups, group, g);
            nibbles_to_fragments(first, zeros[p], a[0]);
            nibbles_to_fragments(second, zeros[p], a[1]);
          }
        } else {
          codes[p] = *reinterpret_cast<const uint4*>(unit + (quarter * kWarp + lane) * 16);
          widen_bytes(codes[p].x, codes[p].y, a[0]);
          widen_bytes(codes[p].z, codes[p].w, a[1]);
        }
        mma(group_sums[p][0], a[0], xs[0], xs[1]);
        mma(group_sums[p][1], a[1], xs[2], xs[3]);
        if (ends) {
          const float2 scale = fragment_scales<kKind>(unit, group, g, w_.in_bf16);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums.c[p][0][i] = fmaf(group_sums[p][0][i] + group_sums[p][1][i],
                                   i < 2 ? scale.x : scale.y, sums.c[p][0][i]);
            group_sums[p][0][i] = group_sums[p][1][i] = 0;
          }
        }
      }
    }
  }

  const IntWeights& w_;
  unsigned char* bytes_;
  int issue_at_ = 0, take_at_ = 0;  // stages
};

}  // namespace sluice::cuda
