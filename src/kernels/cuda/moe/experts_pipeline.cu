// Expert MLPs for up to eight tokens, bound by memory: two launches that stream the weights of each
// selected expert once past all tokens (src/kernels/cuda/gemm/weight_pipeline.cuh).
//   1. find_chosen    the selected experts and their pairs (token, expert); every CTA computes them
//   2. expert_gates   act(gate) * up of all pairs, in bfloat16
//   3. expert_sums    the down projection. A CTA has 16 columns of the result and goes through all
//                     selected experts. A warp weights its sums when it leaves an expert, so the
//                     result needs no second pass and goes straight into the residual.
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/shared_memory.h"
#include "kernels/cuda/gemm/weight_pipeline.cuh"
#include "kernels/cuda/moe/experts.h"
#include "kernels/cuda/moe/experts_chosen.cuh"
#include "kernels/cuda/moe/experts_plan.h"

namespace sluice::cuda {
namespace {

constexpr int kMaxTokens = kMaxChosenTokens, kMaxPairs = kMaxChosenPairs;
constexpr std::int64_t kMaxRowBytes = 112 << 10;  // rows of x in shared memory
constexpr std::int64_t kDeclaredBytes = 4 << 10;  // upper bound of the static shared memory

// Strides in elements. w of gate/up: per expert n gate rows, then n up rows.
struct PipelineExpertArgs {
  const Bf16* x = nullptr;            // [tokens][k]; of the down projection [pairs][k]
  const Bf16* w = nullptr;            // [experts][parts * n][k]
  Bf16* hidden = nullptr;             // [pairs][n]
  float* sum = nullptr;               // [tokens][n]
  const std::int32_t* ids = nullptr;  // [tokens][top_k]
  const float* weights = nullptr;
  std::int64_t x_stride = 0, hidden_stride = 0, sum_stride = 0, ids_stride = 0, weights_stride = 0,
               n = 0, k = 0;
  int tokens = 0, top_k = 1, experts = 1;
  bool gelu = false;
};

// 2. Grid: CTAs that take tiles of 16 columns of selected experts in turn.
__global__ void __launch_bounds__(kPipelineThreads, 2)
    expert_gates(const __grid_constant__ PipelineExpertArgs a) {
  extern __shared__ __align__(128) unsigned char shared[];
  using Shape = PipelineShape<2>;
  __shared__ Chosen chosen;
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4;
  const PipelineReduction<2> reduction{.part = reinterpret_cast<float*>(shared + Shape::kBytes),
                                       .rows = a.tokens};
  Bf16* staged =
      reinterpret_cast<Bf16*>(shared + Shape::kBytes + PipelineReduction<2>::bytes(a.tokens));
  wait_for_earlier_kernels();
  // Hazard: expert_sums reads the ids without waiting, so it must not start before this wait.
  start_next_kernel();
  find_chosen({a.ids, a.ids_stride, a.tokens, a.top_k, a.experts}, chosen);

  ExpertTiles tiles(static_cast<int>((a.n + kPipelineRows - 1) / kPipelineRows)), issued = tiles;
  const std::int64_t first = warp * kUnitColumns;
  const int steps =
      first < a.k ? static_cast<int>((a.k - first + kTurnColumns - 1) / kTurnColumns) : 0;
  // Weights of the next tile load while this tile ends: the pipeline does not drain.
  WeightPipeline<2> pipeline(shared);
  int issued_step = 0;
  const Bf16* from[2] = {};
  int count = 0;
  const auto issue = [&] {
    if (steps > 0 && issued.slot < chosen.count) {
      // Addresses change with the tile only.
      if (issued_step == 0) {
        const std::int64_t row = std::int64_t{issued.tile} * kPipelineRows;
        from[0] = a.w + (std::int64_t{chosen.expert[issued.slot]} * 2 * a.n + row) * a.k;
        from[1] = from[0] + a.n * a.k;
        count = static_cast<int>(min(a.n - row, std::int64_t{kPipelineRows}));
      }
      pipeline.issue(from, a.k, count, first + issued_step * std::int64_t{kTurnColumns}, a.k);
      if (++issued_step == steps) issued_step = 0, issued.move_on();
    }
    pipeline.commit();
  };
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i) issue();
  // Rows of x, while the first weights are on their way.
  stage_rows([&](int i) { return a.x + i * a.x_stride; }, a.tokens, a.k, staged);
  __syncthreads();
  // Lanes past the last token read the last row: their sums are not stored.
  const Bf16* x = staged + min(g, a.tokens - 1) * (a.k + kXPadding) + first;

  int turn = 0;
  for (; tiles.slot < chosen.count; tiles.move_on(), turn ^= 1) {
    PipelineSums<2, 1> sums;
    sums.clear();
    for (int step = 0; step < steps; ++step) {
      const std::int64_t column = step * std::int64_t{kTurnColumns};
      const Bf16* const here[1] = {x + column};
      XUnit<1> values;
      values.load(here, a.k - first - column);
      pipeline.await();
      issue();
      pipeline.take(values, sums);
    }
    reduction.put(turn, sums);
    __syncthreads();  // turns alternate between two buffers, so one barrier a tile is enough
    // Epilogue: act(gate) * up for the tokens that selected this expert.
    for (int i = threadIdx.x; i < a.tokens * kPipelineRows; i += kPipelineThreads) {
      const int m = i / kPipelineRows, pair = chosen.pair[tiles.slot][m];
      const std::int64_t n = std::int64_t{tiles.tile} * kPipelineRows + i % kPipelineRows;
      if (pair >= 0 && n < a.n)
        a.hidden[pair * a.hidden_stride + n] =
            narrow<Bf16>(gate_function(reduction.sum(turn, 0, m, i % kPipelineRows), a.gelu) *
                         reduction.sum(turn, 1, m, i % kPipelineRows));
    }
  }
}

// 3. Grid: CTAs that take tiles of 16 columns in turn.
__global__ void __launch_bounds__(kPipelineThreads, 2)
    expert_sums(const __grid_constant__ PipelineExpertArgs a) {
  extern __shared__ __align__(128) unsigned char shared[];
  using Shape = PipelineShape<1>;
  __shared__ Chosen chosen;
  // Router weights by selected expert and token.
  __shared__ float weight[kMaxPairs][kMaxTokens];
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, quad = threadIdx.x % 4;
  const PipelineReduction<1> reduction{.part = reinterpret_cast<float*>(shared + Shape::kBytes),
                                       .rows = a.tokens};
  Bf16* staged =
      reinterpret_cast<Bf16*>(shared + Shape::kBytes + PipelineReduction<1>::bytes(a.tokens));
  // No wait: the ids are from two kernels ago, and expert_gates waited for that kernel.
  find_chosen({a.ids, a.ids_stride, a.tokens, a.top_k, a.experts}, chosen);

  // The units of a tile: 64 columns at a time of the first expert, then of the next expert.
  const int each = static_cast<int>((a.k + kUnitColumns - 1) / kUnitColumns),
            units = chosen.count * each;
  const int tiles = static_cast<int>((a.n + kPipelineRows - 1) / kPipelineRows);
  WeightPipeline<1> pipeline(shared);
  // A warp takes every eighth unit of a tile.
  struct Place {
    int unit, slot, column;  // `slot`: selected expert; `column`: of its units
  };
  const auto first_place = [&] { return Place{warp, warp / each, warp % each}; };
  // Eight units on; the slot advances whenever a whole expert is behind.
  const auto move_on = [&](Place& place) {
    place.unit += kPipelineWarps;
    for (place.column += kPipelineWarps; place.column >= each; place.column -= each) ++place.slot;
  };
  int issued_tile = blockIdx.x;
  Place issued = first_place();
  const auto issue = [&] {
    if (issued.unit < units && issued_tile < tiles) {
      const std::int64_t row = std::int64_t{issued_tile} * kPipelineRows;
      const Bf16* const from[1] = {a.w +
                                   (std::int64_t{chosen.expert[issued.slot]} * a.n + row) * a.k};
      pipeline.issue(from, a.k, static_cast<int>(min(a.n - row, std::int64_t{kPipelineRows})),
                     std::int64_t{issued.column} * kUnitColumns, a.k);
      move_on(issued);
      if (issued.unit >= units) issued = first_place(), issued_tile += gridDim.x;
    }
    pipeline.commit();
  };
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i) issue();
  start_next_kernel();
  for (int i = threadIdx.x; i < chosen.count * kMaxTokens; i += kPipelineThreads) {
    const int pair = chosen.pair[i / kMaxTokens][i % kMaxTokens];
    weight[i / kMaxTokens][i % kMaxTokens] =
        pair < 0 ? 0.0f : __ldcg(a.weights + pair / a.top_k * a.weights_stride + pair % a.top_k);
  }
  wait_for_earlier_kernels();
  stage_rows([&](int i) { return a.x + i * a.x_stride; }, a.tokens * a.top_k, a.k, staged);
  __syncthreads();

  int turn = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, turn ^= 1) {
    // The output element of this thread. The residual loads while the tile is multiplied.
    const int m = threadIdx.x / kPipelineRows;
    const std::int64_t n = std::int64_t{tile} * kPipelineRows + threadIdx.x % kPipelineRows;
    float* to = a.sum + m * a.sum_stride + n;
    const bool has_output = m < a.tokens && n < a.n;
    const float before = has_output ? *to : 0.0f;
    // `sums`: of the current expert; `all`: weighted, over all experts.
    PipelineSums<1, 1> all, sums;
    all.clear();
    sums.clear();
    for (Place place = first_place(); place.unit < units;) {
      const int slot = place.slot;
      const std::int64_t column = std::int64_t{place.column} * kUnitColumns;
      // Tokens without this expert read row 0 as zeros; their weight is 0 too.
      const int pair = chosen.pair[slot][g];
      const Bf16* const here[1] = {staged + max(pair, 0) * (a.k + kXPadding) + column};
      XUnit<1> values;
      values.load(here, pair < 0 ? 0 : a.k - column);
      pipeline.await();
      issue();
      pipeline.take(values, sums);
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
    if (has_output) *to = before + reduction.sum(turn, 0, m, threadIdx.x % kPipelineRows);
  }
}

// Pipeline, sums of the warps, rows of x.
template <int kParts>
std::int64_t shared_bytes(std::int64_t tokens, std::int64_t rows, std::int64_t k) {
  return PipelineShape<kParts>::kBytes + PipelineReduction<kParts>::bytes(tokens) +
         rows * (k + kXPadding) * 2;
}

}  // namespace

// Tokens, experts and both row buffers must fit in the tables and in shared memory.
bool pipeline_experts_fit(std::int64_t tokens, std::int64_t top_k, std::int64_t experts,
                          std::int64_t hidden, std::int64_t width, int sm) {
  const std::int64_t room = max_shared_bytes(sm) - kDeclaredBytes;
  const auto fits = [](std::int64_t rows, std::int64_t k) {
    return rows * (k + kXPadding) * 2 <= kMaxRowBytes;
  };
  return tokens >= 1 && tokens <= kMaxTokens && tokens * top_k <= kMaxPairs &&
         experts <= ops::kMaxExperts && hidden % 8 == 0 && width % 8 == 0 && fits(tokens, hidden) &&
         fits(tokens * top_k, width) && shared_bytes<2>(tokens, tokens, hidden) <= room &&
         shared_bytes<1>(tokens, tokens * top_k, width) <= room;
}

void pipeline_experts(Context& ctx, const Tensor& x, const Tensor& w13, const Tensor& w2,
                      const Tensor& weights, const Tensor& ids, Activation activation,
                      const MoeWorkspace& workspace, const Tensor& sum) {
  const std::int64_t width = w2.dim(2), hidden = w2.dim(1), tokens = x.dim(0), top_k = ids.dim(1);
  const std::int64_t max_ctas = ctx.cuda->info().num_sms;
  PipelineExpertArgs up{.x = static_cast<const Bf16*>(x.data),
                        .w = static_cast<const Bf16*>(w13.data),
                        .hidden = static_cast<Bf16*>(workspace.hidden.data),
                        .ids = ids.ptr<std::int32_t>(),
                        .weights = weights.ptr<float>(),
                        .x_stride = x.stride[0],
                        .hidden_stride = workspace.hidden.stride[0],
                        .ids_stride = ids.stride[0],
                        .weights_stride = weights.stride[0],
                        .n = width,
                        .k = hidden,
                        .tokens = static_cast<int>(tokens),
                        .top_k = static_cast<int>(top_k),
                        .experts = static_cast<int>(w13.dim(0)),
                        .gelu = activation == Activation::kGeluTanh};
  // The down projection reads the hidden rows of the pairs.
  PipelineExpertArgs down = up;
  down.x = up.hidden;
  down.x_stride = up.hidden_stride;
  down.w = static_cast<const Bf16*>(w2.data);
  down.sum = sum.ptr<float>();
  down.sum_stride = sum.stride[0];
  down.n = hidden;
  down.k = width;
  // No more CTAs than tiles.
  const std::int64_t gate_ctas =
      std::min<std::int64_t>(tokens * top_k * blocks_for(width, kPipelineRows), max_ctas);
  // One CTA an SM: two of this kernel on one SM would leave another SM idle.
  const std::int64_t alone_bytes =
      max_shared_bytes(ctx.cuda->info().sm) >= 2 * kAloneBytes ? kAloneBytes : 0;
  launch_dependent(ctx, "expert gate/up projections", expert_gates,
                   static_cast<unsigned>(gate_ctas), kPipelineThreads,
                   std::max(shared_bytes<2>(tokens, tokens, hidden), alone_bytes), up);
  launch_dependent(
      ctx, "expert down projections", expert_sums,
      static_cast<unsigned>(std::min<std::int64_t>(blocks_for(hidden, kPipelineRows), max_ctas)),
      kPipelineThreads, shared_bytes<1>(tokens, tokens * top_k, width), down);
}

}  // namespace sluice::cuda
