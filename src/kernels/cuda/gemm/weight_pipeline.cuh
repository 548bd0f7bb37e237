// Mainloop of GEMMs with few rows: bfloat16 weights stream through shared memory past a few rows of
// x.
//
// 1. WeightPipeline::issue   cp.async of a unit: 16 rows by 64 columns for each part of a tile (two
//                            parts: gate and up). Each warp has a pipeline of its own, so no
//                            barrier of the CTA is needed.
// 2. XUnit::load             the lane's fragments of x
// 3. WeightPipeline::take    MMA of a unit
// 4. PipelineReduction       sums of the warps through shared memory
//
// An SM has about 64 KiB of weights in flight that cost no registers. Two kernels fit on an SM, so
// the second one has its first weights when the first one ends.
//
// The warps of a CTA share the columns of a tile, unit after unit in turn, and their sums are added
// in ascending order. So an element's order of summation depends on K alone.
//
// Weights are the M side of m16n8k16, and up to 8 rows of x the N side of each tile of x. Lane 4 g
// + t takes 16 bytes of rows g and g + 8 at columns 32 b + 8 t. The order of columns inside a step
// is free as long as x and w agree, so eight neighbouring columns are the fragments of two MMAs.
#pragma once

#include <type_traits>

#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/gemm/weight_pipeline_shape.h"

namespace sluice::cuda {

inline constexpr int kUnitSteps = kUnitColumns / 32;  // two MMAs each
inline constexpr int kUnitPieces = kUnitColumns / 8;  // of 16 bytes

template <int kParts, int kDepth = kPipelineStages<kParts>>
struct PipelineShape {
  static constexpr int kStages = kDepth;
  static constexpr int kStageBytes = kParts * kPartBytes;
  static constexpr int kBytes = pipeline_bytes(kParts, kStages);
};

// Byte offset of a 16-byte piece. Piece p of row r is at p ^ 4 (r % 2), so that the eight lanes of
// a shared-memory phase read different banks.
__device__ inline std::uint32_t pipeline_place(int row, int piece) {
  return row * (kUnitColumns * 2) + ((piece ^ ((row & 1) << 2)) << 4);
}

template <int kParts, int kTiles>
struct PipelineSums {
  float c[kParts][kTiles][4];

  __device__ void clear() {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) c[p][n][i] = 0;
  }
};

// 2. The fragments of x that a lane needs for a unit.
template <int kTiles>
struct XUnit {
  uint4 piece[kUnitSteps][kTiles];

  // rows[n]: row g of tile n at the unit's first column. The row ends after `columns` columns.
  __device__ void load(const Bf16* const (&rows)[kTiles], std::int64_t columns) {
#pragma unroll
    for (int s = 0; s < kUnitSteps; ++s) {
      const int at = s * 32 + threadIdx.x % 4 * 8;
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        piece[s][n] = at < columns ? *reinterpret_cast<const uint4*>(rows[n] + at) : uint4{};
    }
  }
  // The same if all columns of the unit exist.
  __device__ void load_whole(const Bf16* const (&rows)[kTiles]) {
#pragma unroll
    for (int s = 0; s < kUnitSteps; ++s)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        piece[s][n] = *reinterpret_cast<const uint4*>(rows[n] + s * 32 + threadIdx.x % 4 * 8);
  }
};

// The pipeline of this warp.
template <int kParts, int kDepth = kPipelineStages<kParts>>
class WeightPipeline {
 public:
  using Shape = PipelineShape<kParts, kDepth>;

  __device__ explicit WeightPipeline(unsigned char* shared)
      : bytes_(shared + threadIdx.x / kWarp * (Shape::kStages * Shape::kStageBytes)) {}

  // 1. Copies 64 columns of the tile's rows into the next stage. rows[p]: the first of `count` rows
  // of part p. Columns from `end` on become zeros. Every issue, also an empty one, ends with
  // commit().
  __device__ void issue(const Bf16* const (&rows)[kParts], std::int64_t stride, int count,
                        std::int64_t column, std::int64_t end) {
    const int lane = threadIdx.x % kWarp, piece = lane % kUnitPieces;
    const std::int64_t at = column + piece * 8;
    const bool is_inside = at < end;
    const std::uint32_t to = shared_address(bytes_) + issue_at_ * Shape::kStageBytes;
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int j = 0; j < kPipelineRows / 4; ++j) {
        const int row = j * 4 + lane / kUnitPieces;
        cp_async_16(to + p * kPartBytes + pipeline_place(row, piece),
                    rows[p] + (is_inside ? min(row, count - 1) * stride + at : 0), is_inside);
      }
  }
  // The same if all rows and columns exist, with less address arithmetic. from: this lane's first
  // piece of part 0, which is lane_offset() after the first row and column. Part 1 is `part`
  // elements after part 0.
  __device__ void issue_whole(const Bf16* from, std::int64_t part, std::int64_t stride) {
    const int lane = threadIdx.x % kWarp;
    const std::uint32_t to = shared_address(bytes_) + issue_at_ * Shape::kStageBytes +
                             pipeline_place(lane / kUnitPieces, lane % kUnitPieces);
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int j = 0; j < kPipelineRows / 4; ++j)
        cp_async_16(to + p * kPartBytes + j * 4 * (kUnitColumns * 2),
                    from + p * part + j * 4 * stride);
  }
  static __device__ std::int64_t lane_offset(std::int64_t stride) {
    const int lane = threadIdx.x % kWarp;
    return lane / kUnitPieces * stride + lane % kUnitPieces * 8;
  }
  __device__ void commit() {
    cp_async_commit();
    issue_at_ = issue_at_ + 1 == Shape::kStages ? 0 : issue_at_ + 1;
  }

  // Waits for the oldest unit that was not taken yet. Then the stage of the unit before it is free.
  __device__ void await() {
    cp_async_wait<Shape::kStages - 2>();
    __syncwarp();
  }
  // 3. sums += the oldest unit times x.
  template <int kTiles>
  __device__ void take(const XUnit<kTiles>& x, PipelineSums<kParts, kTiles>& sums) {
    const int lane = threadIdx.x % kWarp, g = lane / 4, quad = lane % 4;
    const unsigned char* stage = bytes_ + take_at_ * Shape::kStageBytes;
#pragma unroll
    for (int s = 0; s < kUnitSteps; ++s) {
      uint4 low[kParts], high[kParts];
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        low[p] = *reinterpret_cast<const uint4*>(stage + p * kPartBytes +
                                                 pipeline_place(g, s * 4 + quad));
        high[p] = *reinterpret_cast<const uint4*>(stage + p * kPartBytes +
                                                  pipeline_place(g + 8, s * 4 + quad));
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const uint4& v = x.piece[s][n];
#pragma unroll
        for (int p = 0; p < kParts; ++p) {
          mma_m16n8k16(sums.c[p][n], {low[p].x, high[p].x, low[p].y, high[p].y}, v.x, v.y);
          mma_m16n8k16(sums.c[p][n], {low[p].z, high[p].z, low[p].w, high[p].w}, v.z, v.w);
        }
      }
    }
    take_at_ = take_at_ + 1 == Shape::kStages ? 0 : take_at_ + 1;
  }

 protected:
  unsigned char* bytes_;
  int issue_at_ = 0, take_at_ = 0;  // stages
};

// 4. The sums of the warps of a CTA, to be added in ascending order of warps.
template <int kParts>
struct PipelineReduction {
  float* part = nullptr;
  int rows = 0;  // of x

  static __host__ __device__ std::int64_t bytes(std::int64_t rows) {
    return kParts * rows * kReductionBytes;
  }
  __device__ float* at(int turn, int p, int warp, int row) const {
    return part + (((turn * kParts + p) * kPipelineWarps + warp) * rows + row) * kReductionStride;
  }
  template <int kTiles>
  __device__ void put(int turn, const PipelineSums<kParts, kTiles>& sums) const {
    const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, quad = threadIdx.x % 4;
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = n * 8 + quad * 2 + i % 2;
          if (row < rows) at(turn, p, warp, row)[g + i / 2 * 8] = sums.c[p][n][i];
        }
  }
  // Sum: the type of the sums. Integers lie in the bits of the floats.
  template <class Sum = float>
  __device__ float sum(int turn, int p, int row, int w_row) const {
    Sum total = 0;
#pragma unroll
    for (int warp = 0; warp < kPipelineWarps; ++warp) {
      const float part = at(turn, p, warp, row)[w_row];
      if constexpr (std::is_same_v<Sum, float>)
        total += part;
      else
        total += __float_as_int(part);
    }
    return static_cast<float>(total);
  }
};

// sums := a tile of `steps` units times x. issue() issues the unit kDepth - 1 steps ahead.
// load_x(step) loads the x of a step into x_next, one step ahead, because x may be in global
// memory. x_next holds step 0 before the call, and again after it.
template <int kParts, int kDepth, int kTiles, class Issue, class LoadX>
__device__ inline void multiply_tile(WeightPipeline<kParts, kDepth>& pipeline, int steps,
                                     Issue&& issue, LoadX&& load_x, const XUnit<kTiles>& x_next,
                                     PipelineSums<kParts, kTiles>& sums) {
  sums.clear();
  for (int step = 0; step < steps; ++step) {
    const XUnit<kTiles> x_now = x_next;
    load_x(step + 1 == steps ? 0 : step + 1);
    pipeline.await();
    issue();
    pipeline.take(x_now, sums);
  }
}

// Copies one row of k elements into shared memory. All threads of the CTA call; a barrier must
// follow. No MMA runs meanwhile, so a thread has many loads in flight and few instructions.
__device__ inline void stage_row(const Bf16* from, int k, Bf16* to) {
  constexpr int kTogether = 8;
  for (int begin = static_cast<int>(threadIdx.x) * 8; begin < k;
       begin += kTogether * kPipelineThreads * 8) {
    uint4 piece[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j)
      if (begin + j * kPipelineThreads * 8 < k)
        piece[j] = *reinterpret_cast<const uint4*>(from + begin + j * kPipelineThreads * 8);
#pragma unroll
    for (int j = 0; j < kTogether; ++j)
      if (begin + j * kPipelineThreads * 8 < k)
        *reinterpret_cast<uint4*>(to + begin + j * kPipelineThreads * 8) = piece[j];
  }
}

// The same for several rows. row(i): the first element of row i. In shared memory rows have
// kXPadding elements between them.
template <int kTogether = 8, class Row>
__device__ inline void stage_rows(Row&& row, int rows, std::int64_t k, Bf16* to) {
  if (rows == 1) return stage_row(row(0), static_cast<int>(k), to);
  const int pieces = static_cast<int>(k / 8), more_rows = kPipelineThreads / pieces,
            more_pieces = kPipelineThreads % pieces;
  struct Place {
    int row, piece;
  };
  const auto move_on = [&](Place& place) {
    place.row += more_rows, place.piece += more_pieces;
    if (place.piece >= pieces) place.piece -= pieces, ++place.row;
  };
  for (Place from{static_cast<int>(threadIdx.x) / pieces, static_cast<int>(threadIdx.x) % pieces};
       from.row < rows;) {
    uint4 piece[kTogether];
    Place at = from;
#pragma unroll
    for (int j = 0; j < kTogether; ++j, move_on(from))
      if (from.row < rows)
        piece[j] = *reinterpret_cast<const uint4*>(row(from.row) + from.piece * 8);
#pragma unroll
    for (int j = 0; j < kTogether; ++j, move_on(at))
      if (at.row < rows)
        *reinterpret_cast<uint4*>(to + at.row * (k + kXPadding) + at.piece * 8) = piece[j];
  }
}

// The same by cp.async, without registers: all pieces are in flight at once. Waits for them, and so
// for all units that were issued before.
template <class Row>
__device__ inline void stage_rows_async(Row&& row, int rows, std::int64_t k, Bf16* to) {
  const int pieces = static_cast<int>(k / 8);
  for (int m = 0; m < rows; ++m) {
    const Bf16* const from = row(m);
    const std::uint32_t place = shared_address(to + m * (k + kXPadding));
    for (int i = static_cast<int>(threadIdx.x); i < pieces; i += kPipelineThreads)
      cp_async_16(place + i * 16, from + i * 8);
  }
  cp_async_commit();
  cp_async_wait<0>();
}

// x sigmoid(factor x) covers both gates: 0.5 x (1 + tanh(u)) = x sigmoid(2 u).
__device__ inline float gate_function(float x, bool gelu) {
  const float u = gelu ? 1.5957691216f * fmaf(x * x * x, 0.044715f, x) : x;
  return x / (1.0f + expf(-u));
}

// RMSNorm of up to kPipelineWarps rows of float32 into shared memory: x times the norm weight, in
// bfloat16. factor[m] := 1 / root mean square of row m; the epilogue multiplies the sums with it,
// after one more barrier. All threads of the CTA call. The warps share the rows evenly, and each
// has many loads in flight, because no MMA runs meanwhile.
__device__ inline void normalise_rows(const float* x, std::int64_t stride, int rows, std::int64_t k,
                                      const float* weight, float eps, Bf16* to, float* factor) {
  __shared__ float squares_of[kPipelineWarps];
  constexpr int kTogether = 8;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int each = rows == 1 ? 8 : rows == 2 ? 4 : rows <= 4 ? 2 : 1;  // warps of a row
  const int m = warp / each;
  float squares = 0;
  if (m < rows) {
    const float* from = x + m * stride;
    const std::int64_t step = std::int64_t{each} * kWarp * 4;
    for (std::int64_t begin = (warp % each * kWarp + lane) * 4; begin < k;
         begin += kTogether * step) {
      float4 v[kTogether], w[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const std::int64_t i = begin + j * step;
        v[j] = i < k ? *reinterpret_cast<const float4*>(from + i) : float4{};
        w[j] = i < k ? *reinterpret_cast<const float4*>(weight + i) : float4{};
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const std::int64_t i = begin + j * step;
        squares = fmaf(v[j].x, v[j].x, squares), squares = fmaf(v[j].y, v[j].y, squares);
        squares = fmaf(v[j].z, v[j].z, squares), squares = fmaf(v[j].w, v[j].w, squares);
        if (i < k)
          *reinterpret_cast<uint2*>(to + m * (k + kXPadding) + i) = {
              pack_bf16(v[j].x * w[j].x, v[j].y * w[j].y),
              pack_bf16(v[j].z * w[j].z, v[j].w * w[j].w)};
      }
    }
  }
  squares = warp_sum(squares);
  if (lane == 0) squares_of[warp] = squares;
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < rows) {
    float total = 0;
    for (int i = 0; i < each; ++i) total += squares_of[threadIdx.x * each + i];
    factor[threadIdx.x] = 1.0f / sqrtf(total / static_cast<float>(k) + eps);
  }
}

// The same for one row of up to kMaxElements elements, with fewer instructions. The weights load
// before the kernel that makes the row has ended.
class OneRowNorm {
 public:
  static constexpr int kHeld = 4, kMaxElements = kHeld * 4 * kPipelineThreads;

  __device__ void load_weights(const float* weight, int k) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      if (at(j) < k) weight_[j] = *reinterpret_cast<const float4*>(weight + at(j));
  }
  // Ends with a barrier.
  __device__ void normalise(const float* x, int k, Bf16* to,
                            float (&squares_of)[kPipelineWarps]) const {
    float4 v[kHeld];
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      if (at(j) < k) v[j] = *reinterpret_cast<const float4*>(x + at(j));
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      if (at(j) >= k) continue;
      squares = fmaf(v[j].x, v[j].x, squares), squares = fmaf(v[j].y, v[j].y, squares);
      squares = fmaf(v[j].z, v[j].z, squares), squares = fmaf(v[j].w, v[j].w, squares);
      *reinterpret_cast<uint2*>(to + at(j)) = {
          pack_bf16(v[j].x * weight_[j].x, v[j].y * weight_[j].y),
          pack_bf16(v[j].z * weight_[j].z, v[j].w * weight_[j].w)};
    }
    squares = warp_sum(squares);
    if (threadIdx.x % kWarp == 0) squares_of[threadIdx.x / kWarp] = squares;
    __syncthreads();
  }
  static __device__ float factor(const float (&squares_of)[kPipelineWarps], int k, float eps) {
    float total = 0;
#pragma unroll
    for (int i = 0; i < kPipelineWarps; ++i) total += squares_of[i];
    return rsqrtf(__fdividef(total, static_cast<float>(k)) + eps);
  }

 private:
  static __device__ int at(int j) {
    return (static_cast<int>(threadIdx.x) + j * kPipelineThreads) * 4;
  }
  float4 weight_[kHeld];
};

// Prefetches lines into L2. No kernel before this one may write them.
__device__ inline void prefetch_lines(const void* p, std::int64_t bytes) {
  for (std::int64_t i = threadIdx.x * std::int64_t{128}; i < bytes;
       i += blockDim.x * std::int64_t{128})
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(p) + i));
}

}  // namespace sluice::cuda
