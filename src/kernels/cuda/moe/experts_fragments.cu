// Expert MLPs with weights in fragments (kernels/types/int_fragments.h) for up to eight tokens,
// bound by memory: two launches that stream the weights of each selected expert once past all
// tokens.
//   1. find_chosen    the selected experts and their pairs (token, expert); every CTA computes them
//   2. gates_kernel   act(gate) * up of all pairs, in bfloat16. A tile has eight gate rows and the
//                     eight up rows of the same columns.
//   3. sums_kernel    the down projection. A CTA has 16 columns of the result and goes through all
//                     selected experts. A warp weights its sums when it leaves an expert, so the
//                     result needs no second pass and goes straight into the residual.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/gemm/int_pipeline.cuh"
#include "kernels/cuda/moe/experts.cuh"
#include "kernels/cuda/moe/experts_chosen.cuh"
#include "kernels/cuda/moe/experts_fragments.h"

namespace sluice::cuda {
namespace {

struct FragmentExpertArgs {
  const Bf16* x = nullptr;  // gate/up: [tokens][k]; down: [pairs][k]
  IntWeights w;             // of the first expert
  std::int64_t expert_bytes = 0;
  Bf16* hidden = nullptr;  // [pairs][n]
  float* sum = nullptr;    // [tokens][n]
  ChosenIds ids;
  const float* weights = nullptr;
  std::int64_t x_stride = 0, hidden_stride = 0, sum_stride = 0, weights_stride = 0;
  int n = 0, k = 0;
  int staged_stride = 0;  // elements between rows of x in shared memory
  ExpertRules rules;
  bool adds = true;  // to what `sum` has
};

// Rows of x in shared memory, with zeros up to whole units. A barrier must follow.
__device__ inline void stage_plain(const FragmentExpertArgs& a, int rows, Bf16* to) {
  constexpr int kTogether = 8;
  const int pieces = a.w.units * (kFragmentUnitColumns / 8), all = rows * pieces;
  for (int begin = static_cast<int>(threadIdx.x); begin < all;
       begin += kTogether * kPipelineThreads) {
    uint4 piece[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int at = begin + j * kPipelineThreads, row = at / pieces, column = at % pieces * 8;
      piece[j] = {};
      if (at < all && column < a.k)
        piece[j] = *reinterpret_cast<const uint4*>(a.x + row * a.x_stride + column);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int at = begin + j * kPipelineThreads;
      if (at < all)
        *reinterpret_cast<uint4*>(to + at / pieces * a.staged_stride + at % pieces * 8) = piece[j];
    }
  }
}

// 2. Grid: CTAs that take tiles of eight columns of selected experts in turn.
template <IntKind kKind, bool kFine, int kStages>
__global__ void __launch_bounds__(kPipelineThreads, 2)
    gates_kernel(const __grid_constant__ FragmentExpertArgs a) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Chosen chosen;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, tokens = a.ids.tokens,
            units = a.w.units;
  unsigned char* const after_pipelines = shared + kPipelineWarps * kStages * a.w.unit_bytes;
  const PipelineReduction<1> reduction{.part = reinterpret_cast<float*>(after_pipelines),
                                       .rows = tokens};
  Bf16* const staged =
      reinterpret_cast<Bf16*>(after_pipelines + PipelineReduction<1>::bytes(tokens));
  wait_for_earlier_kernels();
  // Hazard: sums_kernel reads the ids without waiting, so it must not start before this wait.
  start_next_kernel();
  find_chosen(a.ids, chosen);

  // Tiles of an expert are neighbours, so a CTA meets few experts.
  constexpr int kTileColumns = kUnitRows / 2;
  const int each = (a.n + kTileColumns - 1) / kTileColumns, tiles = chosen.count * each;
  const int steps = warp < units ? (units - warp + kPipelineWarps - 1) / kPipelineWarps : 0;
  const int ctas = static_cast<int>(gridDim.x);
  UnitPipeline<kKind, kFine, 1, kStages> pipeline(shared, a.w);
  int issued_tile = static_cast<int>(blockIdx.x), issued_step = 0;
  const unsigned char* from = nullptr;
  // Weights of the next tile load while this tile ends: the pipeline does not drain.
  const auto issue = [&] {
    if (steps > 0 && issued_tile < tiles) {
      if (issued_step == 0)
        from = a.w.of + chosen.expert[issued_tile / each] * a.expert_bytes +
               (static_cast<std::int64_t>(issued_tile % each) * units + warp) * a.w.unit_bytes;
      pipeline.issue(from, 0);
      from += kPipelineWarps * a.w.unit_bytes;
      if (++issued_step == steps) issued_step = 0, issued_tile += ctas;
    }
    pipeline.commit();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) issue();
  stage_plain(a, tokens, staged);
  __syncthreads();
  // Lanes past the last token read the last row: their sums are not stored.
  const std::uint32_t x = shared_address(staged + min(lane % 8, tokens - 1) * a.staged_stride) +
                          lane / 8 * 16 + warp * (kFragmentUnitColumns * 2);

  int turn = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += ctas, turn ^= 1) {
    PipelineSums<1, 1> sums;
    sums.clear();
    for (int step = 0; step < steps; ++step) {
      pipeline.await();
      issue();
      pipeline.take(x + step * (kPipelineWarps * kFragmentUnitColumns * 2), sums);
    }
    reduction.put(turn, sums);
    __syncthreads();  // turns alternate between two buffers, so one barrier a tile is enough
    const int m = static_cast<int>(threadIdx.x) / kTileColumns,
              column = static_cast<int>(threadIdx.x) % kTileColumns,
              n = tile % each * kTileColumns + column;
    if (m >= tokens || n >= a.n) continue;
    const int pair = chosen.pair[tile / each][m];
    if (pair < 0) continue;
    const float gate = reduction.sum(turn, 0, m, column),
                up = reduction.sum(turn, 0, m, column + kTileColumns);
    const bool is_gelu = a.rules.activation == Activation::kGeluTanh;
    a.hidden[pair * a.hidden_stride + n] = narrow<Bf16>(
        a.rules.is_plain ? gate_function(gate, is_gelu) * up
                         : a.rules.inner(gate, up, chosen.expert[tile / each], pair, n));
  }
}

// 3. Grid: CTAs that take tiles of 16 columns in turn.
template <IntKind kKind, bool kFine, int kStages>
__global__ void __launch_bounds__(kPipelineThreads, 2)
    sums_kernel(const __grid_constant__ FragmentExpertArgs a) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Chosen chosen;
  // Router weights by selected expert and token.
  __shared__ float weight[kMaxChosenPairs][kMaxChosenTokens];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, quad = lane % 4,
            tokens = a.ids.tokens, pairs = tokens * a.ids.top_k, ctas = static_cast<int>(gridDim.x);
  unsigned char* const after_pipelines = shared + kPipelineWarps * kStages * a.w.unit_bytes;
  const PipelineReduction<1> reduction{.part = reinterpret_cast<float*>(after_pipelines),
                                       .rows = tokens};
  Bf16* const staged =
      reinterpret_cast<Bf16*>(after_pipelines + PipelineReduction<1>::bytes(tokens));
  // No wait: the ids are from two kernels ago, and gates_kernel waited for that kernel.
  find_chosen(a.ids, chosen);

  // The units of a tile: those of the first expert, then of the next expert. A warp takes every
  // eighth one.
  const int each = a.w.units, units = chosen.count * each,
            tiles = (a.n + kUnitRows - 1) / kUnitRows;
  struct Place {
    int unit, slot, column;  // `slot`: selected expert; `column`: of its units
  };
  const auto first_place = [&] { return Place{warp, warp / each, warp % each}; };
  // Eight units on; the slot advances whenever a whole expert is behind.
  const auto move_on = [&](Place& place) {
    place.unit += kPipelineWarps;
    for (place.column += kPipelineWarps; place.column >= each; place.column -= each) ++place.slot;
  };
  UnitPipeline<kKind, kFine, 1, kStages> pipeline(shared, a.w);
  int issued_tile = static_cast<int>(blockIdx.x);
  Place issued = first_place();
  const auto issue = [&] {
    if (issued.unit < units && issued_tile < tiles) {
      pipeline.issue(
          a.w.of + chosen.expert[issued.slot] * a.expert_bytes +
              (static_cast<std::int64_t>(issued_tile) * each + issued.column) * a.w.unit_bytes,
          0);
      move_on(issued);
      if (issued.unit >= units) issued = first_place(), issued_tile += ctas;
    }
    pipeline.commit();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) issue();
  start_next_kernel();
  for (int i = static_cast<int>(threadIdx.x); i < kMaxChosenPairs * kMaxChosenTokens;
       i += kPipelineThreads) {
    const int pair = chosen.pair[i / kMaxChosenTokens][i % kMaxChosenTokens];
    weight[i / kMaxChosenTokens][i % kMaxChosenTokens] =
        pair < 0 ? 0.0f
                 : __ldcg(a.weights + pair / a.ids.top_k * a.weights_stride + pair % a.ids.top_k);
  }
  wait_for_earlier_kernels();
  stage_plain(a, pairs, staged);
  // Tokens without an expert read a row of zeros.
  for (int i = static_cast<int>(threadIdx.x) * 8; i < each * kFragmentUnitColumns;
       i += kPipelineThreads * 8)
    *reinterpret_cast<uint4*>(staged + pairs * a.staged_stride + i) = uint4{};
  __syncthreads();

  int turn = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += ctas, turn ^= 1) {
    // The output element of this thread. The residual loads while the tile is multiplied.
    const int m = static_cast<int>(threadIdx.x) / kPipelineRows,
              n = tile * kPipelineRows + static_cast<int>(threadIdx.x) % kPipelineRows;
    float* const to = a.sum + m * a.sum_stride + n;
    const bool has_output = m < tokens && n < a.n;
    float before = has_output && a.adds ? *to : 0.0f;
    if (has_output && a.rules.down_bias != nullptr)
      for (int slot = 0; slot < chosen.count; ++slot)
        before = fmaf(weight[slot][m], a.rules.down_bias[chosen.expert[slot] * a.rules.hidden + n],
                      before);
    // `sums`: of the current expert; `all`: weighted, over all experts.
    PipelineSums<1, 1> all, sums;
    all.clear();
    sums.clear();
    for (Place place = first_place(); place.unit < units;) {
      const int slot = place.slot, pair = chosen.pair[slot][lane % 8];
      const std::uint32_t x = shared_address(staged + (pair < 0 ? pairs : pair) * a.staged_stride) +
                              lane / 8 * 16 + place.column * (kFragmentUnitColumns * 2);
      pipeline.await();
      issue();
      pipeline.take(x, sums);
      move_on(place);
      // The last unit of this expert for this warp: its sums get the weights of the tokens.
      if (place.unit >= units || place.slot != slot) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          all.c[0][0][i] = fmaf(weight[slot][quad * 2 + i % 2], sums.c[0][0][i], all.c[0][0][i]);
        sums.clear();
      }
    }
    // The warps add in ascending order, so bits do not depend on timing.
    reduction.put(turn, all);
    __syncthreads();
    if (has_output)
      *to = before + reduction.sum(turn, 0, m, static_cast<int>(threadIdx.x) % kPipelineRows);
  }
}

template <IntKind kKind, bool kFine>
void launch_both(Context& ctx, const FragmentExpertArgs& up, const FragmentExpertArgs& down,
                 const FragmentExpertsPlan& plan) {
  constexpr int kStages = kIntStages<kBitsOf<kKind>, 1>;
  launch_dependent(ctx, "expert gate/up projections in fragments",
                   gates_kernel<kKind, kFine, kStages>, static_cast<unsigned>(plan.gate_blocks),
                   kPipelineThreads, plan.gate_bytes, up);
  launch_dependent(ctx, "expert down projections in fragments", sums_kernel<kKind, kFine, kStages>,
                   static_cast<unsigned>(plan.down_blocks), kPipelineThreads, plan.down_bytes,
                   down);
}

}  // namespace

void pipeline_experts_fragments(Context& ctx, const Tensor& x, const IntWeights& w13,
                                const IntWeights& w2, const FragmentExperts& shape,
                                const Tensor& weights, const Tensor& ids,
                                const ExpertParams& params, const Tensor& hidden, const Tensor& sum,
                                bool adds, const FragmentExpertsPlan& plan) {
  FragmentExpertArgs up{.x = static_cast<const Bf16*>(x.data),
                        .w = w13,
                        .expert_bytes = shape.w13_bytes,
                        .hidden = static_cast<Bf16*>(hidden.data),
                        .ids = {.of = ids.ptr<std::int32_t>(),
                                .stride = ids.stride[0],
                                .tokens = static_cast<int>(x.dim(0)),
                                .top_k = static_cast<int>(ids.dim(1)),
                                .experts = static_cast<int>(shape.experts)},
                        .weights = weights.ptr<float>(),
                        .x_stride = x.stride[0],
                        .hidden_stride = hidden.stride[0],
                        .weights_stride = weights.stride[0],
                        .n = static_cast<int>(shape.width),
                        .k = static_cast<int>(shape.hidden),
                        .staged_stride = static_cast<int>(int_staged_stride(shape.hidden)),
                        .rules = rules_of(params, weights, shape.width, shape.hidden),
                        .adds = adds};
  // The down projection reads the hidden rows of the pairs.
  FragmentExpertArgs down = up;
  down.x = up.hidden, down.x_stride = up.hidden_stride;
  down.w = w2, down.expert_bytes = shape.w2_bytes;
  down.sum = sum.ptr<float>(), down.sum_stride = sum.stride[0];
  down.n = up.k, down.k = up.n;
  down.staged_stride = static_cast<int>(int_staged_stride(shape.width));
  with_int_kind(
      w13, [&]<IntKind kKind, bool kFine>() { launch_both<kKind, kFine>(ctx, up, down, plan); });
}

}  // namespace sluice::cuda
