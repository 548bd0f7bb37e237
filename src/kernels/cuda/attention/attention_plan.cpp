#include "kernels/cuda/attention/attention_plan.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/common/shared_memory.h"

namespace sluice::cuda {
namespace {

constexpr std::int64_t kWideDecodeBytes = 152
                                          << 10;  // of the decode kernel with heads of 128 and more
// Up to this many tokens rows are processed singly: their keys are split over the whole GPU.
constexpr std::int64_t kFewTokens = 16;
// Maximum splits of a row, and maximum CTAs an SM that write partial results
// (kernels/cuda/attention/attention_decode.cu).
constexpr std::int64_t kMaxSplits = 64;
constexpr std::int64_t kPartsPerSm = 8;
// Minimum tokens of a tile (because every tile reads the keys of its sequence).
constexpr std::int64_t kMinTileTokens = 4;
// Cost of merging one more split, relative to reading the keys of the row.
constexpr double kMergeCost = 0.003;
// Cost of a split on an otherwise idle SM, relative to a shared SM.
constexpr double kAlone = 1.7;
// CTAs of a cluster that merges the splits of a row, and the minimum clusters.
constexpr std::int64_t kClusterSplits = 16;
constexpr std::int64_t kMinClusters = 4;  // fewer would leave max_splits SMs idle
// Keys of a chunk; kernels/cuda/attention/attention_reference.cu.
constexpr std::int64_t kChunkKeys = 64;

}  // namespace

AttentionChoice choose_attention(const AttentionInputs& inputs) {
  const bool known = inputs.dim == 64 || inputs.dim == 96 || inputs.dim == 128 || inputs.dim == 256;
  const bool is_fp8 = inputs.plane == DType::kF8E4M3;
  if ((inputs.plane != DType::kBF16 && !is_fp8) || !inputs.aligned || !known ||
      inputs.value_dim != inputs.dim)
    return AttentionChoice::kReference;
  const bool tiles = (!is_fp8 || inputs.is_widened) && inputs.sm == 90 &&
                     (inputs.dim == 64 || inputs.dim == 128) && inputs.group <= kMaxTiledGroup;
  // Deterministic: one kernel for every row, whatever is beside it. Steps of keys begin at position
  // 0. Whether pages are widened depends on the step.
  if (inputs.deterministic)
    return tiles && !is_fp8 ? AttentionChoice::kTiles : AttentionChoice::kReference;
  if (inputs.dim >= 128 && max_shared_bytes(inputs.sm) < kWideDecodeBytes)
    return AttentionChoice::kReference;
  if (rows_one_by_one(inputs)) return AttentionChoice::kSingleRows;
  if (!tiles) return AttentionChoice::kReference;
  return inputs.seqs > 1 ? AttentionChoice::kTilesAndSingleRows : AttentionChoice::kTiles;
}

bool tiles_are_fast(const AttentionInputs& inputs) {
  const bool equal = inputs.value_dim == inputs.dim && (inputs.dim == 64 || inputs.dim == 96 ||
                                                        inputs.dim == 128 || inputs.dim == 256);
  const bool is_fp8 = inputs.plane == DType::kF8E4M3;
  return inputs.sm >= 80 && (!inputs.deterministic || is_fp8) && inputs.aligned &&
         (inputs.plane == DType::kBF16 || is_fp8) &&
         (equal || (inputs.dim == 192 && inputs.value_dim == 128));
}

bool rows_one_by_one(const AttentionInputs& inputs) {
  return inputs.tokens <= std::max(2 * inputs.seqs, kFewTokens);
}

int tile_tokens(const AttentionInputs& inputs, int rows, std::int64_t kv_heads,
                std::int64_t num_sms) {
  if (rows_one_by_one(inputs)) return 1;
  const std::int64_t max_splits = rows / inputs.group,
                     spread = (inputs.tokens * kv_heads + num_sms - 1) / num_sms;
  return static_cast<int>(
      std::clamp<std::int64_t>(spread, std::min(max_splits, kMinTileTokens), max_splits));
}

DecodePlan plan_decode(const DecodeInputs& inputs) {
  DecodePlan plan;
  plan.head_tiles = inputs.group > 8 && inputs.dim <= 128 ? 2 : 1;
  const std::int64_t heads = 8 * plan.head_tiles;
  plan.head_blocks = static_cast<int>((inputs.group + heads - 1) / heads);
  plan.heads_each = static_cast<int>(heads);
  const std::int64_t units = inputs.rows * inputs.kv_heads * plan.head_blocks,
                     clusters = inputs.num_sms / kClusterSplits;
  if (inputs.clusters && units >= kMinClusters && units <= clusters &&
      inputs.max_pages >= kClusterSplits) {
    // The heads of a group are divided too if that gives work to idle SMs. The second read of the
    // keys hits L2.
    if (units * 2 <= clusters && plan.head_blocks == 1 && inputs.group > 1) plan.head_blocks = 2;
    plan.heads_each =
        static_cast<int>(std::min(heads, (inputs.group + plan.head_blocks - 1) / plan.head_blocks));
    plan.splits = kClusterSplits;
    plan.is_cluster = true;
    return plan;
  }
  const std::int64_t max_splits =
      std::min({kMaxSplits, inputs.max_pages, kPartsPerSm * inputs.num_sms / units});
  // The busiest SM decides: its CTAs times the share of a row that each reads. Two CTAs on an SM
  // hide each other's latency; one alone does not reach the bandwidth of its SM.
  double best = 0;
  for (std::int64_t splits = 1; splits <= std::max<std::int64_t>(max_splits, 1); ++splits) {
    const std::int64_t blocks = (units * splits + inputs.num_sms - 1) / inputs.num_sms;
    const double turns =
        std::max(static_cast<double>(blocks), kAlone * static_cast<double>((blocks + 1) / 2));
    const double cost =
        turns / static_cast<double>(splits) + kMergeCost * static_cast<double>(splits);
    if (splits > 1 && cost >= best) continue;
    best = cost;
    plan.splits = static_cast<int>(splits);
  }
  return plan;
}

AttentionTile choose_attention_tile(std::int64_t tokens, std::int64_t seqs, std::int64_t group,
                                    bool sparse) {
  AttentionTile tile;
  tile.heads = static_cast<int>(std::clamp<std::int64_t>(group, 1, kMaxTileRows));
  if (!sparse && tokens > 2 * seqs) tile.tokens = std::max(1, kMaxTileRows / tile.heads);
  return tile;
}

int attention_splits(const SplitInputs& inputs) {
  const std::int64_t wanted = std::int64_t{inputs.blocks_of_each} * inputs.num_sms /
                              std::max<std::int64_t>(inputs.blocks, 1);
  const std::int64_t max_splits =
      std::min({wanted, std::int64_t{kMaxKeySplits}, inputs.max_pages,
                inputs.scratch_bytes / std::max<std::int64_t>(inputs.split_bytes, 1)});
  return static_cast<int>(std::max<std::int64_t>(max_splits, 1));
}

AttentionLaunch plan_attention(int rows, std::int64_t key_dim, std::int64_t value_dim) {
  AttentionLaunch launch;
  while (launch.columns * launch.threads < value_dim) launch.columns *= 2;
  check(launch.columns <= 8, "values of {} elements are more than a block holds", value_dim);
  launch.shared_bytes = 4 * rows * (key_dim + kChunkKeys) + 8 * kChunkKeys;
  return launch;
}

}  // namespace sluice::cuda
