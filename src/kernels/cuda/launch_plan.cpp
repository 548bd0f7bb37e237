#include "kernels/cuda/launch_plan.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/ring_shape.h"

namespace sluice::cuda {
namespace {

// Up to this many rows the weights' bytes are what costs.
constexpr std::int64_t kRowsAtOnce = 8;
// From here on tiles win over reading the weights again for every eight rows.
constexpr std::int64_t kManyRows = 64;
// Rows of kSkinny; kernels/cuda/gemm_skinny.cu. Beyond kRowsAtOnce the library reads weights as fast.
constexpr std::int64_t kSkinnyRows = 16;
// Elements of x of kSkinny: with more of them it waits for x, and the library does not.
constexpr std::int64_t kSkinnyElements = 80 << 10;
// Of kSkinny: shared memory that its kernel declares, at most; of x in shared memory, where more is read where it lies; elements
// that it normalises, as every block does all of them, and beyond this a launch that does it once is as fast.
constexpr std::int64_t kSkinnyDeclaredBytes = 1 << 10;
constexpr std::int64_t kMostXBytes = 104 << 10;
constexpr std::int64_t kMostNormElements = 16 << 10;
// Pairs of an expert, on average, up to which its weights are streamed, past 8 rows of them at a time, and up to which tiles
// have 64 rows.
constexpr std::int64_t kStreamedPairsOfExpert = 6;
constexpr std::int64_t kPairsOfNarrowSlots = 4;
// Shared memory that kStream takes at least; kernels/cuda/experts_stream.cu.
constexpr std::int64_t kStreamBytes = 156 << 10;
constexpr std::int64_t kWideDecodeBytes = 152 << 10;   // of single rows with heads of 128 and more
constexpr std::int64_t kRowsOfSmallTiles = 64;
// Rows of a sequence that are rather taken one by one: their keys are split over the whole GPU.
constexpr std::int64_t kFewTokens = 16;
// Most blocks that a row is split over, and most that write partial results; kernels/cuda/attention_decode.cu.
constexpr std::int64_t kMaxSplits = 64;
constexpr std::int64_t kPartsPerMultiprocessor = 8;
// Tokens of a tile of kTiles at least: every tile reads its sequence's keys.
constexpr std::int64_t kLeastTileTokens = 4;
// What joining one more part costs, as a share of a row's reading.
constexpr double kJoinCost = 0.003;
// What a share of a row costs when its block has a multiprocessor to itself, of what it costs beside others.
constexpr double kAlone = 1.7;
// Blocks of a cluster that joins a row's parts, of how few rows and key heads.
constexpr std::int64_t kClusterSplits = 16;
constexpr std::int64_t kLeastClusters = 4;   // fewer would leave most multiprocessors without work
// Keys of a chunk; kernels/cuda/attention_reference.cu.
constexpr std::int64_t kChunkKeys = 64;

}  // namespace

std::string_view gemm_kernel_name(GemmKernel kernel) {
  switch (kernel) {
    case GemmKernel::kSkinny: return "skinny";
    case GemmKernel::kRows: return "rows";
    case GemmKernel::kTiled: return "tiled";
    case GemmKernel::kLibrary: return "cublaslt";
    case GemmKernel::kAnchored: return "anchored";
  }
  return "?";
}

GemmKernel choose_gemm(const GemmFacts& facts) {
  const bool halves = facts.x == DType::kBF16 && facts.w == DType::kBF16;
  if (facts.deterministic)   // whatever m is
    return halves && facts.aligned && facts.sm == 90 && facts.batch == 1 && facts.k >= 8 ? GemmKernel::kAnchored : GemmKernel::kRows;
  // The library multiplies equal types only; a float32 input meets bfloat16 weights in our own kernels.
  const bool served = facts.library && facts.aligned && facts.x == facts.w && facts.n >= 16 && facts.k >= 16;
  const bool near = !served || facts.m * facts.k <= kSkinnyElements;
  if (halves && facts.aligned && facts.k >= 8 && facts.k % 8 == 0 && facts.m <= (served ? kRowsAtOnce : kSkinnyRows) && near)
    return GemmKernel::kSkinny;
  const std::int64_t few = facts.x != DType::kBF16 || !served ? kManyRows : near ? kRowsAtOnce : 0;
  if (facts.m <= few) return GemmKernel::kRows;
  return served ? GemmKernel::kLibrary : GemmKernel::kTiled;
}

int gemm_rows_at_once(std::int64_t m) {
  for (const int rows : {1, 2, 4})
    if (m <= rows) return rows;
  return static_cast<int>(kRowsAtOnce);
}

std::int64_t most_shared_bytes(int sm) {
  // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
  if (sm == 80 || sm == 87) return 163 << 10;
  if (sm >= 90 && sm < 120) return 227 << 10;
  return sm >= 86 ? 99 << 10 : 48 << 10;
}

SkinnyPlan plan_skinny(const SkinnyFacts& facts) {
  SkinnyPlan plan;
  if (facts.norm && (facts.m > kRowsAtOnce || facts.m * facts.k > kMostNormElements)) return plan;
  // Products that end in a sum stand between others, whose blocks keep theirs apart.
  const std::int64_t most_bytes = most_shared_bytes(facts.sm);
  const bool alone = !facts.add && most_bytes >= 2 * kAloneBytes;
  const bool whole = facts.m <= kRowsAtOnce && facts.n % kRingRows == 0 && facts.k % kTurnColumns == 0;
  plan.tiles = (facts.n + kRingRows - 1) / kRingRows;
  plan.blocks = std::min(plan.tiles, std::max<std::int64_t>(facts.multiprocessors / facts.batch, 1));

  const int parts = facts.gated ? 2 : 1;
  const int usual = facts.gated ? kRingStages<2> : kRingStages<1>, few = facts.gated ? kFewRingStages<2> : kFewRingStages<1>;
  const std::int64_t x_bytes = facts.m * (facts.k + kXPadding) * 2;
  for (const int stages : {alone && whole && !facts.gated ? kAloneStages : usual, usual, few})
    for (const bool x_in_shared : {true, false}) {
      if (x_in_shared ? x_bytes > kMostXBytes : facts.norm || stages == kAloneStages) continue;
      const std::int64_t bytes = ring_bytes(parts, stages) + parts * facts.m * kJoinBytes + (x_in_shared ? x_bytes : 0);
      if (bytes + kSkinnyDeclaredBytes > most_bytes) continue;
      plan.stages = stages;
      plan.x_in_shared = x_in_shared;
      plan.whole = whole && x_in_shared && stages != few;
      plan.shared_bytes = alone ? std::max(bytes, kAloneBytes) : bytes;
      return plan;
    }
  return plan;
}

ExpertsKernel choose_experts(const ExpertsFacts& facts) {
  const bool halves = facts.x == DType::kBF16 && facts.w == DType::kBF16;
  if (!halves || !facts.aligned || facts.hidden % 8 != 0 || facts.width % 8 != 0) return ExpertsKernel::kRows;
  const bool tiles = facts.sm == 90;
  if (facts.deterministic) return tiles ? ExpertsKernel::kTiles : ExpertsKernel::kRows;   // a pair has the same sums in every tile
  // With more pairs than this experts have more rows than are streamed together, and reading their weights again costs more
  // than products of tiles that are not full.
  const std::int64_t few = tiles ? std::min(kStreamedPairsOfExpert * facts.experts, kMaxStreamedPairs) : kMaxStreamedPairs;
  if (facts.pairs <= few && most_shared_bytes(facts.sm) >= kStreamBytes) return ExpertsKernel::kStream;
  return tiles ? ExpertsKernel::kTiles : ExpertsKernel::kRows;
}

int streamed_rows(std::int64_t pairs, std::int64_t experts) { return pairs <= kPairsOfNarrowSlots * experts ? 8 : 16; }

int expert_row_groups(std::int64_t pairs, std::int64_t experts) { return pairs > kRowsOfSmallTiles * experts ? 2 : 1; }

AttentionChoice choose_attention(const AttentionFacts& facts) {
  const bool known = facts.dim == 64 || facts.dim == 96 || facts.dim == 128 || facts.dim == 256;
  if (facts.plane != DType::kBF16 || !facts.aligned || !known || facts.value_dim != facts.dim) return AttentionChoice::kReference;
  const bool tiles = facts.sm == 90 && (facts.dim == 64 || facts.dim == 128) && facts.group <= kMaxTiledGroup;
  // One kernel for every row, whatever stands beside it: a tile's steps of keys begin at position 0.
  if (facts.deterministic) return tiles ? AttentionChoice::kTiles : AttentionChoice::kReference;
  if (facts.dim >= 128 && most_shared_bytes(facts.sm) < kWideDecodeBytes) return AttentionChoice::kReference;
  if (rows_one_by_one(facts)) return AttentionChoice::kSingleRows;
  if (!tiles) return AttentionChoice::kReference;
  return facts.seqs > 1 ? AttentionChoice::kTilesAndSingleRows : AttentionChoice::kTiles;
}

bool tiles_are_fast(const AttentionFacts& facts) {
  const bool equal = facts.value_dim == facts.dim && (facts.dim == 64 || facts.dim == 96 || facts.dim == 128 || facts.dim == 256);
  return facts.sm >= 80 && !facts.deterministic && facts.aligned && facts.plane == DType::kBF16 &&
         (equal || (facts.dim == 192 && facts.value_dim == 128));
}

bool rows_one_by_one(const AttentionFacts& facts) { return facts.tokens <= std::max(2 * facts.seqs, kFewTokens); }

int tile_tokens(const AttentionFacts& facts, int rows, std::int64_t kv_heads, std::int64_t multiprocessors) {
  if (rows_one_by_one(facts)) return 1;
  const std::int64_t most = rows / facts.group, spread = (facts.tokens * kv_heads + multiprocessors - 1) / multiprocessors;
  return static_cast<int>(std::clamp<std::int64_t>(spread, std::min(most, kLeastTileTokens), most));
}

DecodePlan plan_decode(const DecodeFacts& facts) {
  DecodePlan plan;
  plan.head_tiles = facts.group > 8 && facts.dim <= 128 ? 2 : 1;
  const std::int64_t heads = 8 * plan.head_tiles;
  plan.head_blocks = static_cast<int>((facts.group + heads - 1) / heads);
  plan.heads_each = static_cast<int>(heads);
  const std::int64_t units = facts.rows * facts.kv_heads * plan.head_blocks, clusters = facts.multiprocessors / kClusterSplits;
  if (facts.clusters && units >= kLeastClusters && units <= clusters && facts.max_pages >= kClusterSplits) {
    // Heads are divided too where that gives work to idle multiprocessors: their keys are in the cache then.
    if (units * 2 <= clusters && plan.head_blocks == 1 && facts.group > 1) plan.head_blocks = 2;
    plan.heads_each = static_cast<int>(std::min(heads, (facts.group + plan.head_blocks - 1) / plan.head_blocks));
    plan.splits = kClusterSplits;
    plan.together = true;
    return plan;
  }
  const std::int64_t most = std::min({kMaxSplits, facts.max_pages, kPartsPerMultiprocessor * facts.multiprocessors / units});
  // The busiest multiprocessor decides: blocks on it times the share of a row that each reads. Two blocks beside each other
  // hide one another's latency; one alone does not read as fast as it could.
  double best = 0;
  for (std::int64_t splits = 1; splits <= std::max<std::int64_t>(most, 1); ++splits) {
    const std::int64_t blocks = (units * splits + facts.multiprocessors - 1) / facts.multiprocessors;
    const double turns = std::max(static_cast<double>(blocks), kAlone * static_cast<double>((blocks + 1) / 2));
    const double cost = turns / static_cast<double>(splits) + kJoinCost * static_cast<double>(splits);
    if (splits > 1 && cost >= best) continue;
    best = cost;
    plan.splits = static_cast<int>(splits);
  }
  return plan;
}

AttentionTile choose_attention_tile(std::int64_t tokens, std::int64_t seqs, std::int64_t group, bool sparse) {
  AttentionTile tile;
  tile.heads = static_cast<int>(std::clamp<std::int64_t>(group, 1, kMaxTileRows));
  if (!sparse && tokens > 2 * seqs) tile.tokens = std::max(1, kMaxTileRows / tile.heads);
  return tile;
}

int attention_splits(const SplitFacts& facts) {
  const std::int64_t wanted = std::int64_t{facts.blocks_of_each} * facts.multiprocessors / std::max<std::int64_t>(facts.blocks, 1);
  const std::int64_t most = std::min({wanted, std::int64_t{kMostSplits}, facts.max_pages, facts.scratch_bytes / std::max<std::int64_t>(facts.split_bytes, 1)});
  return static_cast<int>(std::max<std::int64_t>(most, 1));
}

AttentionLaunch plan_attention(int rows, std::int64_t key_dim, std::int64_t value_dim) {
  AttentionLaunch launch;
  while (launch.columns * launch.threads < value_dim) launch.columns *= 2;
  check(launch.columns <= 8, "values of {} elements are more than a block holds", value_dim);
  launch.shared_bytes = 4 * rows * (key_dim + kChunkKeys) + 8 * kChunkKeys;
  return launch;
}

}  // namespace sluice::cuda
