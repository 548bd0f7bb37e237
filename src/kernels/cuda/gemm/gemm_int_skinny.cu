// GEMM of few rows with integer weights in fragments, bound by memory: every weight is read once. A
// norm of the rows of x, the order of their columns, the SwiGLU activation and the residual are
// fused.
//
// The phases of int_skinny_kernel:
//   1. issue            cp.async of units, before the kernel that makes x has ended
//   2. element.load     bias and residual of the next tile
//   3. stage_x          rows of x to shared memory, with the norm
//   for each tile of 16 output columns:
//   4. UnitPipeline     mainloop: each warp multiplies its share of k. Integers become bfloat16 in
//                       registers, and the sums of a group are promoted with its scales.
//   5. reduction.put    the warps' sums to shared memory
//   6. element.store    epilogue: sum over the warps, scale, bias, activation or residual
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/gemm/int_pipeline.cuh"
#include "kernels/cuda/gemm/skinny_output.cuh"

namespace sluice::cuda {
namespace {

struct IntSkinnyArgs {
  GemmArgs a;
  IntWeights w;
  RowsAround around;
  int tiles = 0;
  int x_stride = 0;                               // elements between rows of x in shared memory
  bool copies_row = false, has_one_norm = false;  // of one row in its own order
};

// 3. Rows of x times the norm weight in shared memory, with zeros up to whole units. With a norm,
// factor[m] := 1 / root mean square of row m; the epilogue multiplies the sums with it, after one
// more barrier. The warps share the rows evenly, and each has many loads in flight, because no MMA
// runs meanwhile. All threads of the CTA call.
template <class Load>
__device__ inline void stage_x(const IntSkinnyArgs& args, Bf16* to, float* factor, Load&& load) {
  __shared__ float squares_of[kPipelineWarps];
  constexpr int kTogether = 4;
  const GemmArgs& a = args.a;
  const bool has_norm = args.around.norm != nullptr;
  const int rows = static_cast<int>(a.m), k = static_cast<int>(a.k),
            whole = args.w.units * kFragmentUnitColumns;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int each = rows == 1 ? 8 : rows == 2 ? 4 : rows <= 4 ? 2 : 1;  // warps of a row
  const int m = warp / each, step = each * kWarp * 4;
  float squares = 0;
  if (m < rows) {
    for (int begin = (warp % each * kWarp + lane) * 4; begin < whole; begin += kTogether * step) {
      float4 v[kTogether], weight[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int i = begin + j * step;
        v[j] = i < k ? load(m, i, has_norm, weight[j]) : float4{};
        if (i >= k) weight[j] = {};
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int i = begin + j * step;
        if (has_norm) {
          squares = fmaf(v[j].x, v[j].x, squares), squares = fmaf(v[j].y, v[j].y, squares);
          squares = fmaf(v[j].z, v[j].z, squares), squares = fmaf(v[j].w, v[j].w, squares);
          v[j] = {v[j].x * weight[j].x, v[j].y * weight[j].y, v[j].z * weight[j].z,
                  v[j].w * weight[j].w};
        }
        if (i < whole)
          *reinterpret_cast<uint2*>(to + m * args.x_stride + i) = {pack_bf16(v[j].x, v[j].y),
                                                                   pack_bf16(v[j].z, v[j].w)};
      }
    }
  }
  if (has_norm) {
    squares = warp_sum(squares);
    if (lane == 0) squares_of[warp] = squares;
  }
  __syncthreads();
  if (has_norm && static_cast<int>(threadIdx.x) < rows) {
    float total = 0;
    for (int i = 0; i < each; ++i) total += squares_of[threadIdx.x * each + i];
    factor[threadIdx.x] = 1.0f / sqrtf(total / static_cast<float>(k) + args.around.eps);
  }
}

// The same of one bfloat16 row that stays as it is and begins on 16 bytes.
__device__ inline void copy_row(const IntSkinnyArgs& args, Bf16* to) {
  constexpr int kTogether = 8;
  const auto* const from = static_cast<const uint4*>(args.a.x);
  auto* const pieces = reinterpret_cast<uint4*>(to);
  const int whole = args.w.units * kFragmentUnitColumns / 8, own = static_cast<int>(args.a.k / 8);
  for (int begin = 0; begin < whole; begin += kTogether * kPipelineThreads) {
    uint4 piece[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (begin + j * kPipelineThreads >= whole) break;
      const int i = begin + j * kPipelineThreads + static_cast<int>(threadIdx.x);
      piece[j] = i < own ? from[i] : uint4{};
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (begin + j * kPipelineThreads >= whole) break;
      const int i = begin + j * kPipelineThreads + static_cast<int>(threadIdx.x);
      if (i < whole) pieces[i] = piece[j];
    }
  }
  __syncthreads();
}

// Four elements in the weights' order of columns.
template <class T>
__device__ inline float4 four_of(const T* x, const std::int32_t* order, int i) {
  if (order == nullptr) {
    if constexpr (sizeof(T) == 4) {
      return *reinterpret_cast<const float4*>(x + i);
    } else {
      const uint2 raw = *reinterpret_cast<const uint2*>(x + i);
      return {__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xFFFF0000u),
              __uint_as_float(raw.y << 16), __uint_as_float(raw.y & 0xFFFF0000u)};
    }
  }
  const int4 at = *reinterpret_cast<const int4*>(order + i);
  return {widen(x[at.x]), widen(x[at.y]), widen(x[at.z]), widen(x[at.w])};
}

// Grid: CTAs that take tiles of 16 rows of w in turn (two parts: 16 of gate and 16 of up).
template <IntKind kKind, bool kFine, int kParts, int kStages>
__global__ void __launch_bounds__(kPipelineThreads, 2)
    int_skinny_kernel(const __grid_constant__ IntSkinnyArgs args) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ float factor[kMaxStreamedRows];
  __shared__ float squares_of[kPipelineWarps];  // of one row
  const GemmArgs& a = args.a;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, rows = static_cast<int>(a.m),
            units = args.w.units;
  // Shared memory: the warps' pipelines, their sums, rows of x.
  unsigned char* const after_pipelines =
      shared + kPipelineWarps * kStages * kParts * args.w.unit_bytes;
  const PipelineReduction<kParts> reduction{.part = reinterpret_cast<float*>(after_pipelines),
                                            .rows = rows};
  Bf16* const staged =
      reinterpret_cast<Bf16*>(after_pipelines + PipelineReduction<kParts>::bytes(rows));

  // 1. Weights. They do not depend on the kernel before, so the first units load before the wait.
  const int ctas = static_cast<int>(gridDim.x);
  const int steps = warp < units ? (units - warp + kPipelineWarps - 1) / kPipelineWarps : 0;
  const std::int64_t tile_bytes = std::int64_t{units} * args.w.unit_bytes,
                     part_bytes = args.tiles * tile_bytes;
  UnitPipeline<kKind, kFine, kParts, kStages> pipeline(shared, args.w);
  int issued_tile = static_cast<int>(blockIdx.x), issued_step = 0;
  const unsigned char* from =
      args.w.of + issued_tile * tile_bytes + std::int64_t{warp} * args.w.unit_bytes;
  const int step_bytes = kPipelineWarps * args.w.unit_bytes;
  const std::int64_t to_next_tile = ctas * tile_bytes - std::int64_t{steps - 1} * step_bytes;
  // The next unit of this tile, or the first one of the next tile: the pipeline does not drain
  // between tiles. Every call commits one cp.async group, also past the last tile.
  const auto issue = [&] {
    if (steps > 0 && issued_tile < args.tiles) {
      pipeline.issue(from, part_bytes);
      const bool was_last = ++issued_step == steps;
      from += was_last ? to_next_tile : step_bytes;
      if (was_last) issued_step = 0, issued_tile += ctas;
    }
    pipeline.commit();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) issue();
  OneRowNorm row;
  if (args.has_one_norm)
    row.load_weights(args.around.norm, static_cast<int>(a.k));
  else if (args.around.norm != nullptr)
    prefetch_lines(args.around.norm, a.k * 4);
  start_next_kernel();
  wait_for_earlier_kernels();

  // 2. Inputs of the epilogue of the first tile.
  const int m = threadIdx.x / kPipelineRows;
  OutputElement<kParts> element{.a = a,
                                .around = args.around,
                                .rows = rows,
                                .m = m,
                                .column = static_cast<int>(threadIdx.x % kPipelineRows),
                                .out = kParts == 2 ? nullptr : a.out + m * a.out_stride};
  element.load(static_cast<int>(blockIdx.x));

  // 3. The factor of a normalised row is applied to its sums, because it is known only after the
  // whole row was read.
  const std::int32_t* const order = args.w.order;
  if (args.has_one_norm) {
    row.normalise(static_cast<const float*>(a.x), static_cast<int>(a.k), staged, squares_of);
    if (m == 0)
      element.scale_all(OneRowNorm::factor(squares_of, static_cast<int>(a.k), args.around.eps));
  } else if (args.copies_row) {
    copy_row(args, staged);
  } else if (a.x_type == DType::kBF16) {
    stage_x(args, staged, factor, [&](int row, int i, bool has_norm, float4& weight) {
      if (has_norm) weight = four_of(args.around.norm, order, i);
      return four_of(static_cast<const Bf16*>(a.x) + row * a.x_stride, order, i);
    });
  } else {
    stage_x(args, staged, factor, [&](int row, int i, bool has_norm, float4& weight) {
      if (has_norm) weight = four_of(args.around.norm, order, i);
      return four_of(static_cast<const float*>(a.x) + row * a.x_stride, order, i);
    });
  }
  const bool has_norm = args.around.norm != nullptr;
  // Lane 8 i + r has row r of matrix i, which are columns 8 i to 8 i + 7. Rows past the last one
  // repeat the last row: their sums are never stored.
  const std::uint32_t x_row = shared_address(staged + min(lane % 8, rows - 1) * args.x_stride) +
                              lane / 8 * 16 + warp * (kFragmentUnitColumns * 2);

  int turn = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.tiles; tile += ctas, turn ^= 1) {
    PipelineSums<kParts, 1> sums;
    sums.clear();
    for (int step = 0; step < steps; ++step) {  // 4.
      pipeline.await();
      issue();
      pipeline.take(x_row + step * (kPipelineWarps * kFragmentUnitColumns * 2), sums);
    }
    reduction.put(turn, sums);  // 5.
    // One barrier a tile is enough, because turns alternate between two buffers: the sums of the
    // turn before the last were read before this thread arrived at the last barrier.
    __syncthreads();
    if (!element.has_output(tile)) continue;
    if (has_norm && !args.has_one_norm) element.scale_all(factor[m]);
    element.store(reduction, turn, tile);  // 6.
    element.load(tile + ctas);
  }
}

}  // namespace

void gemm_int_skinny(Context& ctx, const GemmArgs& gemm, const IntWeights& w,
                     const RowsAround& around, const IntSkinnyPlan& plan) {
  const bool is_one = gemm.m == 1 && w.order == nullptr, has_norm = around.norm != nullptr;
  const IntSkinnyArgs args{
      .a = gemm,
      .w = w,
      .around = around,
      .tiles = static_cast<int>(plan.tiles),
      .x_stride = static_cast<int>(int_staged_stride(gemm.k)),
      .copies_row = is_one && begins_on_16(gemm.x) && gemm.x_type == DType::kBF16 && !has_norm,
      .has_one_norm = is_one && has_norm && gemm.x_type == DType::kF32 &&
                      gemm.k % kFragmentUnitColumns == 0 && gemm.k <= OneRowNorm::kMaxElements};
  const auto launch = [&]<IntKind kKind, bool kFine, int kParts, int kStages>() {
    launch_dependent(ctx, "skinny GEMM of weights in fragments",
                     int_skinny_kernel<kKind, kFine, kParts, kStages>,
                     dim3(static_cast<unsigned>(plan.blocks)), kPipelineThreads, plan.shared_bytes,
                     args);
  };
  const auto with_parts = [&]<IntKind kKind, bool kFine, int kParts>() {
    constexpr int kBits = kBitsOf<kKind>;
    if (plan.stages == kIntStages<kBits, kParts>)
      return launch.template operator()<kKind, kFine, kParts, kIntStages<kBits, kParts>>();
    launch.template operator()<kKind, kFine, kParts, kFewIntStages<kBits, kParts>>();
  };
  with_int_kind(w, [&]<IntKind kKind, bool kFine>() {
    // FP8 has a kernel of its own (kernels/cuda/fp8/gemm_fp8_skinny.cu).
    if constexpr (kKind != IntKind::kFp8) {
      if (around.gated != nullptr) return with_parts.template operator()<kKind, kFine, 2>();
      with_parts.template operator()<kKind, kFine, 1>();
    }
  });
}

}  // namespace sluice::cuda
