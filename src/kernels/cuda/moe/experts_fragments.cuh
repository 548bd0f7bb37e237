// Expert MLPs with weights in fragments (kernels/types/int_fragments.h) for up to eight tokens,
// bound by memory: two launches that stream the weights of each selected expert once past all
// tokens.
//   1. find_chosen    the selected experts and their pairs (token, expert); every CTA computes them
//   2. gates_kernel   act(gate) * up of all pairs, in bfloat16. A tile has eight gate rows and the
//                     eight up rows of the same columns. A CTA multiplies several
//                     tiles before it stores them, so its warps seldom wait for one another.
//   3. sums_kernel    the down projection. A CTA has 16 columns of the result and goes through all
//                     selected experts. A warp weights its sums when it leaves an expert, so the
//                     result needs no second pass and goes straight into the residual. Where tiles
//                     are fewer than CTAs that fit, two CTAs share a tile, as a cluster.
#pragma once

#include "kernels/cuda/common/cluster.cuh"
#include "kernels/cuda/gemm/int_pipeline.cuh"
#include "kernels/cuda/moe/experts.cuh"
#include "kernels/cuda/moe/experts_chosen.cuh"
#include "kernels/cuda/moe/experts_fragments.h"
#include "kernels/cuda/moe/experts_plan.h"

namespace sluice::cuda {

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
  int gate_tiles = 1;     // that a CTA multiplies before it stores them
  ExpertRules rules;
  bool adds = true;  // to what `sum` has
};

// Rows of x in shared memory, with zeros up to whole units. A barrier must follow.
template <bool kOneRow>
__device__ inline void stage_pieces(const FragmentExpertArgs& a, int rows, Bf16* to) {
  constexpr int kTogether = 8;
  const int pieces = a.w.units * (kFragmentUnitColumns / 8), all = rows * pieces;
  for (int begin = static_cast<int>(threadIdx.x); begin < all;
       begin += kTogether * kPipelineThreads) {
    uint4 piece[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int at = begin + j * kPipelineThreads, row = kOneRow ? 0 : at / pieces,
                column = (kOneRow ? at : at % pieces) * 8;
      piece[j] = {};
      if (at < all && column < a.k)
        piece[j] = *reinterpret_cast<const uint4*>(a.x + row * a.x_stride + column);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int at = begin + j * kPipelineThreads, row = kOneRow ? 0 : at / pieces,
                column = (kOneRow ? at : at % pieces) * 8;
      if (at < all) *reinterpret_cast<uint4*>(to + row * a.staged_stride + column) = piece[j];
    }
  }
}
// One row needs no division for each of its pieces: that counts in kernels of a few microseconds.
__device__ inline void stage_plain(const FragmentExpertArgs& a, int rows, Bf16* to) {
  if (rows == 1)
    stage_pieces<true>(a, rows, to);
  else
    stage_pieces<false>(a, rows, to);
}

// Formats whose rows of x are staged in float16, and the factor that their sums lack.
template <IntKind kKind>
inline constexpr bool kTakesHalves = kKind != IntKind::kInt4 && !kIsBlocks<kKind>;
template <IntKind kKind>
inline constexpr float kMissing = kKind == IntKind::kFp4 ? kHalfE2m1 : 1.0f;

// As stage_plain(), in float16: row i times a power of two, whose inverse is inverse[i]. Infinity
// and NaN stay, and other elements of their row become 0. The warps share the rows evenly. All
// threads of the CTA call.
__device__ inline void stage_halves(const FragmentExpertArgs& a, int rows, Bf16* to,
                                    float* inverse) {
  __shared__ std::uint32_t largest_of[kPipelineWarps];
  constexpr int kHeld = 8;  // pieces of a lane in registers; a longer row is read twice
  const int pieces = a.w.units * (kFragmentUnitColumns / 8), own = a.k / 8;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int each = rows == 1 ? 8 : rows == 2 ? 4 : rows <= 4 ? 2 : 1;  // warps of a row
  const int step = each * kWarp, begin = warp % each * kWarp + lane;
  for (int m = warp / each; m < rows || each > 1; m += kPipelineWarps / each) {
    const auto* const from = reinterpret_cast<const uint4*>(a.x + min(m, rows - 1) * a.x_stride);
    uint4 held[kHeld];
    const auto load = [&](int first) {
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        if (first + j * step >= pieces) break;
        const int i = first + j * step + begin;
        held[j] = i < own ? from[i] : uint4{};
      }
    };
    std::uint32_t largest = 0;  // of two columns, as bfloat16 without its sign
    for (int first = 0; first < pieces; first += kHeld * step) {
      load(first);
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        if (first + j * step >= pieces) break;
        for (const std::uint32_t pair : {held[j].x, held[j].y, held[j].z, held[j].w})
          largest = __vmaxu2(largest, pair & 0x7FFF7FFFu);
      }
    }
    largest = __reduce_max_sync(kAllLanes, max(largest & 0xFFFFu, largest >> 16));
    if (each > 1) {
      if (lane == 0) largest_of[warp] = largest;
      __syncthreads();
      for (int i = 0; i < each; ++i) largest = max(largest, largest_of[warp / each * each + i]);
    }
    if (m >= rows) break;
    const RowPower power = RowPower::of(__uint_as_float(largest << 16));
    if (lane == 0) inverse[m] = power.inverse;
    const auto scaled = [&](std::uint32_t pair) {
      return pack_f16(__uint_as_float(pair << 16) * power.factor,
                      __uint_as_float(pair & 0xFFFF0000u) * power.factor);
    };
    const std::uint32_t row = shared_address(to + m * a.staged_stride);
    for (int first = 0; first < pieces; first += kHeld * step) {
      if (pieces > kHeld * step) load(first);
#pragma unroll
      for (int j = 0; j < kHeld; ++j) {
        if (first + j * step >= pieces) break;
        const int i = first + j * step + begin;
        if (i < pieces)
          store_piece(row + i * 16,
                      {scaled(held[j].x), scaled(held[j].y), scaled(held[j].z), scaled(held[j].w)});
      }
    }
    if (each > 1) break;
  }
}

// 2. Grid: CTAs that take tiles of eight columns of selected experts in turn.
template <IntKind kKind, bool kFine, int kStages>
__global__ void __launch_bounds__(kPipelineThreads, 2)
    gates_kernel(const __grid_constant__ FragmentExpertArgs a) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Chosen chosen;
  constexpr bool kHalves = kTakesHalves<kKind>;
  __shared__ float inverse[kMaxChosenTokens];  // of rows in float16
  static_assert(sizeof(Chosen) + sizeof(inverse) + 4 * kPipelineWarps <= kGateDeclaredBytes);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, tokens = a.ids.tokens,
            units = a.w.units;
  unsigned char* const after_pipelines = shared + kPipelineWarps * kStages * a.w.unit_bytes;
  const PipelineReduction<1> reduction{.part = reinterpret_cast<float*>(after_pipelines),
                                       .rows = tokens};
  Bf16* const staged =
      reinterpret_cast<Bf16*>(after_pipelines + PipelineReduction<1>::bytes(a.gate_tiles * tokens));
  wait_for_earlier_kernels();
  // Hazard: sums_kernel reads the ids without waiting, so it must not start before this wait.
  start_next_kernel();
  find_chosen(a.ids, chosen);
  const int chosen_count = chosen.count;

  constexpr int kTileColumns = kUnitRows / 2;
  ExpertTiles tiles((a.n + kTileColumns - 1) / kTileColumns), issued = tiles;
  const int steps = warp < units ? (units - warp + kPipelineWarps - 1) / kPipelineWarps : 0;
  UnitPipeline<kKind, kFine, 1, kStages, kHalves> pipeline(shared, a.w);
  int issued_step = 0;
  const unsigned char* from = nullptr;
  // Weights of the next tile load while this tile ends: the pipeline does not drain.
  const auto issue = [&] {
    if (steps > 0 && issued.slot < chosen_count) {
      if (issued_step == 0)
        from = a.w.of + chosen.expert[issued.slot] * a.expert_bytes +
               (static_cast<std::int64_t>(issued.tile) * units + warp) * a.w.unit_bytes;
      pipeline.issue(from, 0);
      from += kPipelineWarps * a.w.unit_bytes;
      if (++issued_step == steps) issued_step = 0, issued.move_on();
    }
    pipeline.commit();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) issue();
  if constexpr (kHalves)
    stage_halves(a, tokens, staged, inverse);
  else
    stage_plain(a, tokens, staged);
  __syncthreads();
  // Lanes past the last token read the last row: their sums are not stored.
  const std::uint32_t x = shared_address(staged + min(lane % 8, tokens - 1) * a.staged_stride) +
                          lane / 8 * 16 + warp * (kFragmentUnitColumns * 2);

  // The element that this thread stores: of one of these tiles, a token and a column.
  const int row = static_cast<int>(threadIdx.x) / kTileColumns,
            column = static_cast<int>(threadIdx.x) % kTileColumns, own = row / tokens,
            m = row % tokens;
  for (int turn = 0; tiles.slot < chosen_count; turn ^= a.gate_tiles) {
    int own_slot = -1, own_tile = 0;
    for (int i = 0; i < a.gate_tiles && tiles.slot < chosen_count; ++i, tiles.move_on()) {
      if (i == own) own_slot = tiles.slot, own_tile = tiles.tile;
      PipelineSums<1, 1> sums;
      sums.clear();
      for (int step = 0; step < steps; ++step) {
        pipeline.await();
        issue();
        pipeline.take(x + step * (kPipelineWarps * kFragmentUnitColumns * 2), sums);
      }
      reduction.put(turn + i, sums);
    }
    __syncthreads();  // turns alternate between two buffers, so one barrier a turn is enough
    const int n = own_tile * kTileColumns + column;
    if (own_slot < 0 || n >= a.n) continue;
    const int pair = chosen.pair[own_slot][m];
    if (pair < 0) continue;
    const auto sum_of = [&](int row_of_w) {
      const float sum = reduction.sum(turn + own, 0, m, row_of_w);
      return kHalves ? sum * kMissing<kKind> * inverse[m] : sum;
    };
    const float gate = sum_of(column), up = sum_of(column + kTileColumns);
    const bool is_gelu = a.rules.activation == Activation::kGeluTanh;
    a.hidden[pair * a.hidden_stride + n] =
        narrow<Bf16>(a.rules.is_plain ? gate_function(gate, is_gelu) * up
                                      : a.rules.inner(gate, up, chosen.expert[own_slot], pair, n));
  }
}

// 3. Grid: CTAs that take tiles of 16 columns in turn, or clusters of two that do.
template <IntKind kKind, bool kFine, int kStages, bool kPairs>
__global__ void __launch_bounds__(kPipelineThreads, 2)
    sums_kernel(const __grid_constant__ FragmentExpertArgs a) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ Chosen chosen;
  // Router weights by selected expert and token.
  __shared__ float weight[kMaxChosenPairs][kMaxChosenTokens];
  constexpr bool kHalves = kTakesHalves<kKind>;
  __shared__ float inverse[kHalves ? kMaxChosenPairs : 1];  // of rows in float16
  // From the second CTA of a pair: its sums of a tile, for two turns.
  __shared__ float received[kPairs ? 2 : 1][kMaxChosenTokens * kPipelineRows];
  static_assert(sizeof(Chosen) + sizeof(weight) + sizeof(received) + sizeof(inverse) <=
                kSumDeclaredBytes - 4 * kPipelineWarps);
  constexpr int kShare = kPairs ? 2 : 1;  // CTAs of a tile
  const int rank = static_cast<int>(blockIdx.x) % kShare,
            first_tile = static_cast<int>(blockIdx.x) / kShare,
            more_tiles = static_cast<int>(gridDim.x) / kShare;
  if constexpr (kPairs) cluster_arrive();
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, quad = lane % 4,
            tokens = a.ids.tokens, pairs = tokens * a.ids.top_k;
  unsigned char* const after_pipelines = shared + kPipelineWarps * kStages * a.w.unit_bytes;
  const PipelineReduction<1> reduction{.part = reinterpret_cast<float*>(after_pipelines),
                                       .rows = tokens};
  Bf16* const staged =
      reinterpret_cast<Bf16*>(after_pipelines + PipelineReduction<1>::bytes(tokens));
  // No wait: the ids are from two kernels ago, and gates_kernel waited for that kernel.
  find_chosen(a.ids, chosen);

  // The units of a tile: those of the first expert, then of the next expert. A warp takes every
  // eighth one of the CTA's share.
  const int each = a.w.units, all_units = chosen.count * each,
            first_unit = all_units * rank / kShare + warp,
            end_unit = all_units * (rank + 1) / kShare, tiles = (a.n + kUnitRows - 1) / kUnitRows;
  struct Place {
    int unit, slot, column;  // `slot`: selected expert; `column`: of its units
  };
  const Place first_place{first_unit, first_unit / each, first_unit % each};
  // Eight units on; the slot advances whenever a whole expert is behind.
  const auto move_on = [&](Place& place) {
    place.unit += kPipelineWarps;
    for (place.column += kPipelineWarps; place.column >= each; place.column -= each) ++place.slot;
  };
  UnitPipeline<kKind, kFine, 1, kStages, kHalves> pipeline(shared, a.w);
  int issued_tile = first_tile;
  Place issued = first_place;
  const auto issue = [&] {
    if (issued.unit < end_unit && issued_tile < tiles) {
      pipeline.issue(
          a.w.of + chosen.expert[issued.slot] * a.expert_bytes +
              (static_cast<std::int64_t>(issued_tile) * each + issued.column) * a.w.unit_bytes,
          0);
      move_on(issued);
      if (issued.unit >= end_unit) issued = first_place, issued_tile += more_tiles;
    }
    pipeline.commit();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) issue();
  start_next_kernel();
  for (int i = static_cast<int>(threadIdx.x); i < chosen.count * kMaxChosenTokens;
       i += kPipelineThreads) {
    const int pair = chosen.pair[i / kMaxChosenTokens][i % kMaxChosenTokens];
    weight[i / kMaxChosenTokens][i % kMaxChosenTokens] =
        pair < 0 ? 0.0f
                 : __ldcg(a.weights + pair / a.ids.top_k * a.weights_stride + pair % a.ids.top_k);
  }
  wait_for_earlier_kernels();
  if constexpr (kHalves)
    stage_halves(a, pairs, staged, inverse);
  else
    stage_plain(a, pairs, staged);
  // Tokens without an expert read a row of zeros.
  for (int i = static_cast<int>(threadIdx.x) * 8; i < each * kFragmentUnitColumns;
       i += kPipelineThreads * 8)
    *reinterpret_cast<uint4*>(staged + pairs * a.staged_stride + i) = uint4{};
  __syncthreads();

  if constexpr (kPairs) cluster_wait();  // the first CTA runs, so its memory may be written
  int turn = 0;
  for (int tile = first_tile; tile < tiles; tile += more_tiles, turn ^= 1) {
    // The output element of this thread. The residual loads while the tile is multiplied.
    const int m = static_cast<int>(threadIdx.x) / kPipelineRows,
              n = tile * kPipelineRows + static_cast<int>(threadIdx.x) % kPipelineRows;
    float* const to = a.sum + m * a.sum_stride + n;
    const bool has_output = m < tokens && n < a.n && rank == 0;
    float before = has_output && a.adds ? *to : 0.0f;
    if (has_output && a.rules.down_bias != nullptr)
      for (int slot = 0; slot < chosen.count; ++slot)
        before = fmaf(weight[slot][m], a.rules.down_bias[chosen.expert[slot] * a.rules.hidden + n],
                      before);
    // `sums`: of the current expert; `all`: weighted, over all experts.
    PipelineSums<1, 1> all, sums;
    all.clear();
    sums.clear();
    for (Place place = first_place; place.unit < end_unit;) {
      const int slot = place.slot, pair = chosen.pair[slot][lane % 8];
      const std::uint32_t x = shared_address(staged + (pair < 0 ? pairs : pair) * a.staged_stride) +
                              lane / 8 * 16 + place.column * (kFragmentUnitColumns * 2);
      pipeline.await();
      issue();
      pipeline.take(x, sums);
      move_on(place);
      // The last unit of this expert for this warp: its sums get the weights of the tokens.
      if (place.unit >= end_unit || place.slot != slot) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = quad * 2 + i % 2, own = chosen.pair[slot][token];
          float sum = sums.c[0][0][i];
          // A token without this expert has no row, so it has no inverse.
          if constexpr (kHalves) sum = own < 0 ? 0.0f : sum * kMissing<kKind> * inverse[own];
          all.c[0][0][i] = fmaf(weight[slot][token], sum, all.c[0][0][i]);
        }
        sums.clear();
      }
    }
    // The warps add in ascending order, then the CTAs, so bits do not depend on timing.
    reduction.put(turn, all);
    __syncthreads();
    const int row = static_cast<int>(threadIdx.x) % kPipelineRows;
    if constexpr (kPairs) {
      if (rank == 1 && m < tokens)
        store_to_cta(&received[turn][threadIdx.x], 0, reduction.sum(turn, 0, m, row));
      cluster_arrive();
      if (has_output) before += reduction.sum(turn, 0, m, row);
      cluster_wait();
      if (has_output) *to = before + received[turn][threadIdx.x];
    } else if (has_output) {
      *to = before + reduction.sum(turn, 0, m, row);
    }
  }
}

template <IntKind kKind>
inline constexpr int kExpertStages = kIntStages<kBitsOf<kKind>, 1>;

template <IntKind kKind, bool kFine>
void launch_gates(Context& ctx, const FragmentExpertArgs& up, const FragmentExpertsPlan& plan) {
  launch_dependent(ctx, "expert gate/up projections in fragments",
                   gates_kernel<kKind, kFine, kExpertStages<kKind>>,
                   static_cast<unsigned>(plan.gate_blocks), kPipelineThreads, plan.gate_bytes, up);
}

template <IntKind kKind, bool kFine>
void launch_sums(Context& ctx, const FragmentExpertArgs& down, const FragmentExpertsPlan& plan) {
  constexpr const char* kDown = "expert down projections in fragments";
  if (plan.down_pairs > 0) {
    const auto kernel = sums_kernel<kKind, kFine, kPairStages, true>;
    const ClusterLaunch pairs(ctx, dim3(2 * static_cast<unsigned>(plan.down_pairs)),
                              kPipelineThreads, plan.pair_bytes, dim3(2));
    if (pairs.fits(kernel)) return pairs.run(kDown, kernel, down);
  }
  launch_dependent(ctx, kDown, sums_kernel<kKind, kFine, kExpertStages<kKind>, false>,
                   static_cast<unsigned>(plan.down_blocks), kPipelineThreads, plan.down_bytes,
                   down);
}

// Of GGUF's blocks (experts_blocks.cu): files compile at the same time.
void launch_block_gates(Context& ctx, const FragmentExpertArgs& up,
                        const FragmentExpertsPlan& plan);
void launch_block_sums(Context& ctx, const FragmentExpertArgs& down,
                       const FragmentExpertsPlan& plan);

}  // namespace sluice::cuda
