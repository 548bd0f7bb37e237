// One row of x in shared memory as codes, as rounded_rows.cuh has it, with fewer instructions: no
// MMA runs before they end. The row stays in registers from its only load until it is rounded.
#pragma once

#include "kernels/cuda/fp8/rounded_rows.cuh"

namespace sluice::cuda {

// Where the threads of a CTA leave what they know of their columns.
struct OneRowParts {
  float squares[kPipelineWarps];
  unsigned largest[kPipelineWarps];
};

// A thread takes 16 neighbouring columns of every 4,096. All threads of the CTA call.
template <class Codes>
class OneRoundedRow {
 public:
  // Columns of a row that stay in registers: of float32 with a norm, and of bfloat16 without one.
  static constexpr int kMaxNormed = 8192, kMaxPlain = 16384;

  __device__ OneRoundedRow(const RoundedRows<Codes>& row, OneRowParts& parts)
      : row_(row), parts_(parts) {}

  // They do not depend on the kernel that makes x, so they load before it has ended.
  __device__ void load_norm(const float* weight) {
#pragma unroll
    for (int j = 0; j < kNormed; ++j)
      if (begins(j)) load(weight, j, norm_[j]);
  }

  // Rounds the row; with a norm of x times its weight. Returns what the sums are multiplied with: 1
  // / root mean square of a row with a norm, and the row's scale where groups have none.
  template <bool kInGroups>
  __device__ float round_normed(const float* x, float eps) const {
    float4 v[kNormed][4];
#pragma unroll
    for (int j = 0; j < kNormed; ++j)
      if (begins(j)) load(x, j, v[j]);
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kNormed; ++j) {
      if (!begins(j)) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float4& four = v[j][i];
        const float4& by = norm_[j][i];
        squares = fmaf(four.x, four.x, squares), squares = fmaf(four.y, four.y, squares);
        squares = fmaf(four.z, four.z, squares), squares = fmaf(four.w, four.w, squares);
        four = {four.x * by.x, four.y * by.y, four.z * by.z, four.w * by.w};
      }
    }
    squares = warp_sum(squares);
    if (threadIdx.x % kWarp == 0) parts_.squares[threadIdx.x / kWarp] = squares;
    const float scale = round_turns<kInGroups>(v);
    float total = 0;
#pragma unroll
    for (int i = 0; i < kPipelineWarps; ++i) total += parts_.squares[i];
    const float factor = rsqrtf(__fdividef(total, static_cast<float>(row_.k)) + eps);
    return factor * scale;
  }
  template <bool kInGroups>
  __device__ float round_plain(const Bf16* x) const {
    uint4 v[kPlain][2];
#pragma unroll
    for (int j = 0; j < kPlain; ++j) {
      if (!begins(j)) continue;
      const bool is_inside = column(j) < row_.k;
      const auto* const from = reinterpret_cast<const uint4*>(x + column(j));
      v[j][0] = is_inside ? from[0] : uint4{}, v[j][1] = is_inside ? from[1] : uint4{};
    }
    return round_turns<kInGroups>(v);
  }

 private:
  static constexpr int kColumns = 16, kGroupLanes = RoundedRows<Codes>::kGroup / kColumns;
  static constexpr int kTurn = kPipelineThreads * kColumns;
  static constexpr int kNormed = kMaxNormed / kTurn, kPlain = kMaxPlain / kTurn;

  // The thread's first column of turn j.
  __device__ static int column(int j) {
    return j * kTurn + static_cast<int>(threadIdx.x) * kColumns;
  }
  // Whether turn j has columns; the same for all lanes, which reduce together.
  __device__ bool begins(int j) const { return j * kTurn < row_.k; }

  __device__ void load(const float* from, int j, float4 (&to)[4]) const {
    const bool is_inside = column(j) < row_.k;
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = is_inside ? load_four(from + column(j) + 4 * i) : float4{};
  }

  // Ends with a barrier. Returns the row's scale, or 1 where groups have their own.
  template <bool kInGroups, class Values, int kTurns>
  __device__ float round_turns(const Values (&v)[kTurns]) const {
    unsigned largest = 0;
#pragma unroll
    for (int j = 0; j < kTurns; ++j) {
      if (!begins(j)) break;
      const unsigned here = largest_in(v[j]);
      if constexpr (kInGroups)
        put(j, v[j], group_scale(j, here).factor);
      else
        largest = max(largest, here);
    }
    ops::Fp8Scale by{.scale = 1};
    if constexpr (!kInGroups) {
      by = row_scale(largest);
#pragma unroll
      for (int j = 0; j < kTurns; ++j)
        if (begins(j)) put(j, v[j], by.factor);
    }
    __syncthreads();
    return by.scale;
  }

  // The bits of the largest absolute value of 16 numbers. NaN and infinity sort above numbers.
  __device__ static unsigned largest_in(const float4 (&v)[4]) {
    return max(max(largest_of(v[0]), largest_of(v[1])), max(largest_of(v[2]), largest_of(v[3])));
  }
  __device__ static unsigned largest_in(const uint4 (&v)[2]) {
    const auto size = [](unsigned pair) { return pair & 0x7FFF7FFFu; };
    unsigned pairs = 0;
#pragma unroll
    for (const uint4& part : v)
      pairs = __vmaxu2(pairs, __vmaxu2(__vmaxu2(size(part.x), size(part.y)),
                                       __vmaxu2(size(part.z), size(part.w))));
    return max(pairs << 16, pairs & 0xFFFF0000u);
  }

  // The scale of the thread's group of turn j, from the largest value of its lanes.
  __device__ ops::Fp8Scale group_scale(int j, unsigned largest) const {
#pragma unroll
    for (int step = 1; step < kGroupLanes; step *= 2)
      largest = max(largest, __shfl_xor_sync(kAllLanes, largest, step));
    const ops::Fp8Scale by = Codes::scale(largest);
    if (threadIdx.x % kGroupLanes == 0 && column(j) < row_.k)
      *row_.scale(0, column(j) / RoundedRows<Codes>::kGroup) = by.scale;
    return by;
  }
  // That of the row.
  __device__ ops::Fp8Scale row_scale(unsigned largest) const {
    largest = warp_max(largest);
    if (threadIdx.x % kWarp == 0) parts_.largest[threadIdx.x / kWarp] = largest;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPipelineWarps; ++i) largest = max(largest, parts_.largest[i]);
    return Codes::scale(largest);
  }

  // Columns behind the last one are zeros, up to a whole group: weights are zero there, too, but a
  // NaN times zero is none.
  __device__ void put(int j, const float4 (&v)[4], float factor) const {
    if (column(j) < row_.groups * RoundedRows<Codes>::kGroup)
      *reinterpret_cast<uint4*>(row_.codes + column(j)) = {
          Codes::four(v[0], factor), Codes::four(v[1], factor), Codes::four(v[2], factor),
          Codes::four(v[3], factor)};
  }
  __device__ void put(int j, const uint4 (&v)[2], float factor) const {
    const auto four = [](unsigned low, unsigned high) {
      return float4{__uint_as_float(low << 16), __uint_as_float(low & 0xFFFF0000u),
                    __uint_as_float(high << 16), __uint_as_float(high & 0xFFFF0000u)};
    };
    put(j, {four(v[0].x, v[0].y), four(v[0].z, v[0].w), four(v[1].x, v[1].y), four(v[1].z, v[1].w)},
        factor);
  }

  const RoundedRows<Codes>& row_;
  OneRowParts& parts_;
  float4 norm_[kNormed][4];
};

}  // namespace sluice::cuda
