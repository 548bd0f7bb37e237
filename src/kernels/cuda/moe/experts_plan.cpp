#include "kernels/cuda/moe/experts_plan.h"

#include <algorithm>

#include "kernels/cuda/common/shared_memory.h"
#include "kernels/cuda/gemm/int_plan.h"
#include "kernels/cuda/gemm/weight_pipeline_shape.h"

namespace sluice::cuda {
namespace {

// kStream is used up to this many pairs an expert, on average.
constexpr std::int64_t kStreamedPairsOfExpert = 6;
// Slots of kStream have 8 rows up to this many pairs an expert, 16 with more.
constexpr std::int64_t kPairsOfNarrowSlots = 4;
// Minimum shared memory of kStream; kernels/cuda/moe/experts_stream.cu.
constexpr std::int64_t kStreamBytes = 156 << 10;
// Tiles of kTiles have 64 rows up to this many pairs an expert, 128 with more.
constexpr std::int64_t kRowsOfSmallTiles = 64;

}  // namespace

ExpertsKernel choose_experts(const ExpertsInputs& inputs) {
  const bool halves = inputs.x == DType::kBF16 && inputs.w == DType::kBF16;
  if (!halves || !inputs.aligned || inputs.hidden % 8 != 0 || inputs.width % 8 != 0)
    return ExpertsKernel::kRows;
  const bool tiles = inputs.sm == 90;
  if (inputs.deterministic)
    return tiles ? ExpertsKernel::kTiles
                 : ExpertsKernel::kRows;  // the sums of a pair are the same in every tile
  // With more pairs, experts have more rows than one MMA. Reading their weights again then costs
  // more than partial tiles.
  const std::int64_t few = tiles ? kStreamedPairsOfExpert * inputs.experts : kMaxStreamedPairs;
  if (inputs.pairs <= kMaxStreamedPairs && pairs_of_rank(inputs.pairs, inputs.groups) <= few &&
      max_shared_bytes(inputs.sm) >= kStreamBytes)
    return ExpertsKernel::kStream;
  return tiles ? ExpertsKernel::kTiles : ExpertsKernel::kRows;
}

std::int64_t pairs_of_rank(std::int64_t pairs, int groups) {
  return (pairs + groups - 1) / groups;
}

int streamed_rows(std::int64_t pairs, std::int64_t experts) {
  return pairs <= kPairsOfNarrowSlots * experts ? 8 : 16;
}

int expert_row_groups(std::int64_t pairs, std::int64_t experts) {
  return pairs > kRowsOfSmallTiles * experts ? 2 : 1;
}

int expert_tile_columns(std::int64_t pairs, std::int64_t experts, std::int64_t n, int num_sms) {
  const std::int64_t row_tiles = std::min(pairs, experts);  // experts have a tile each, in the mean
  const auto time = [&](int columns) {
    const std::int64_t tiles = (n + columns - 1) / columns * row_tiles;
    const std::int64_t wave = std::int64_t{expert_tiles_of_sm(columns)} * std::max(num_sms, 1);
    return (tiles + wave - 1) / wave * expert_tiles_of_sm(columns) * columns;
  };
  return time(64) < time(128) ? 64 : 128;
}

namespace {

// Shared memory that the system takes of each CTA.
constexpr std::int64_t kSystemBytes = 1 << 10;

// Whether two CTAs run on an SM: they wait for their x in turn. Three would leave other SMs idle.
bool two_fit(const FragmentExpertsInputs& inputs, std::int64_t bytes, std::int64_t declared) {
  return inputs.sm == 90 &&
         2 * (bytes + declared + kSystemBytes) <= max_shared_bytes(inputs.sm) + kSystemBytes;
}

// How many tiles of gate/up a CTA multiplies between two barriers, and the memory for their sums in
// plan.gate_bytes. No CTA loses its place for them.
void set_gate_tiles(const FragmentExpertsInputs& inputs, std::int64_t tiles,
                    FragmentExpertsPlan& plan) {
  // Each thread stores one element of these tiles: of eight columns, and of the tokens.
  constexpr std::int64_t kMaxAtOnce = 8, kRows = kPipelineThreads / 8;
  const bool two = two_fit(inputs, plan.gate_bytes, kGateDeclaredBytes);
  const auto bytes_of = [&](std::int64_t at_once) {
    return plan.gate_bytes + (at_once - 1) * inputs.tokens * kReductionBytes;
  };
  const auto fits = [&](std::int64_t at_once) {
    return two ? two_fit(inputs, bytes_of(at_once), kGateDeclaredBytes)
               : bytes_of(at_once) + kGateDeclaredBytes <= max_shared_bytes(inputs.sm);
  };
  std::int64_t at_once = std::min(
      {kMaxAtOnce, kRows / inputs.tokens, (tiles + plan.gate_blocks - 1) / plan.gate_blocks});
  while (at_once > 1 && !fits(at_once)) --at_once;
  plan.gate_tiles = static_cast<int>(at_once);
  plan.gate_bytes = bytes_of(at_once);
}

}  // namespace

FragmentExpertsPlan plan_fragment_experts(const FragmentExpertsInputs& inputs) {
  constexpr std::int64_t kMaxTokens = 8, kMaxPairs = 64, kMaxExperts = 1024;
  const std::int64_t pairs = inputs.tokens * inputs.top_k, room = max_shared_bytes(inputs.sm);
  FragmentExpertsPlan plan;
  if (inputs.tokens < 1 || inputs.tokens > kMaxTokens || pairs > kMaxPairs ||
      inputs.experts > kMaxExperts || inputs.hidden % 8 != 0 || inputs.width % 8 != 0)
    return plan;
  using Units = FragmentExpertsInputs::Units;
  const auto stages = [](const Units& of) {
    return std::int64_t{of.bits == 4 ? kIntStages<4, 1> : kIntStages<8, 1>};
  };
  const auto bytes_of = [&](std::int64_t units, const Units& of, std::int64_t rows,
                            std::int64_t columns) {
    return kPipelineWarps * units * of.bytes + inputs.tokens * kReductionBytes +
           rows * int_staged_stride(columns) * 2;
  };
  plan.gate_bytes = bytes_of(stages(inputs.up), inputs.up, inputs.tokens, inputs.hidden);
  // A row of zeros stands for tokens without an expert.
  plan.down_bytes = bytes_of(stages(inputs.down), inputs.down, pairs + 1, inputs.width);
  plan.pair_bytes = bytes_of(kPairStages, inputs.down, pairs + 1, inputs.width);
  if (std::max(plan.gate_bytes, plan.down_bytes) + kSumDeclaredBytes > room) return {};
  const std::int64_t sms = std::max(inputs.num_sms, 1),
                     gate_tiles = pairs * ((inputs.width + 7) / 8),
                     down_tiles = (inputs.hidden + kPipelineRows - 1) / kPipelineRows;
  const bool two_gates = two_fit(inputs, plan.gate_bytes, kGateDeclaredBytes),
             two_downs = two_fit(inputs, plan.down_bytes, kSumDeclaredBytes);
  plan.gate_blocks = std::min(gate_tiles, two_gates ? 2 * sms : sms);
  plan.down_blocks = std::min(down_tiles, two_downs ? 2 * sms : sms);
  // Two CTAs share the units of a tile where tiles are fewer than CTAs that run at once.
  if (two_fit(inputs, plan.pair_bytes, kSumDeclaredBytes) && down_tiles < 2 * sms)
    plan.down_pairs = std::min(down_tiles, sms);
  set_gate_tiles(inputs, gate_tiles, plan);
  if (two_gates)
    plan.gate_bytes = std::max(plan.gate_bytes, room / 3);
  else if (room >= 2 * kAloneBytes)
    plan.gate_bytes = std::max(plan.gate_bytes, kAloneBytes);
  if (two_downs) plan.down_bytes = std::max(plan.down_bytes, room / 3);
  plan.pair_bytes = std::max(plan.pair_bytes, room / 3);
  return plan;
}

GroupedPlan plan_grouped(const GroupedInputs& inputs) {
  constexpr std::int64_t kSharedBytes = 208 << 10;  // of an SM, beside tables of experts
  constexpr std::int64_t kUnitBytesOfX = 256;       // of a row
  GroupedPlan plan;
  const std::int64_t each = inputs.pairs / std::max<std::int64_t>(inputs.experts, 1);
  plan.rows = each <= 12 ? 16 : each <= 96 ? 64 : 128;
  const int ctas_per_sm = int_ctas_per_sm(plan.rows, 2);
  const std::int64_t stage =
      plan.rows * kUnitBytesOfX + kIntTileRows / kPipelineRows * inputs.unit_bytes;
  plan.stages = static_cast<int>(
      std::clamp<std::int64_t>((kSharedBytes / ctas_per_sm - 1024) / stage, 2, kMaxIntTileStages));
  plan.shared_bytes = plan.stages * stage + 1024;  // for swizzled tiles
  // Every expert may have one partial tile.
  const std::int64_t tiles = std::min(inputs.pairs, inputs.pairs / plan.rows + inputs.experts) *
                             ((inputs.n + kIntTileRows - 1) / kIntTileRows);
  plan.blocks =
      static_cast<int>(std::min(tiles, std::int64_t{std::max(inputs.num_sms, 1)} * ctas_per_sm));
  return plan;
}

}  // namespace sluice::cuda
