// Which kernel a product or an attention takes and in which tiles: pure functions of shapes and facts, tested without a
// GPU.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/dtype.h"

namespace sluice::cuda {

enum class GemmKernel : std::uint8_t {
  kSkinny,   // bfloat16 on tensor cores, weights streamed once for up to 16 rows
  kRows,     // a warp for each output column, a few rows at a time: weights are streamed once for up to 8 rows
  kTiled,    // 64 x 64 tiles in shared memory, float32 arithmetic
  kLibrary,  // cuBLASLt
  kAnchored, // bfloat16 on Hopper's warpgroup products, with an order of summation that is the same for every m
};
std::string_view gemm_kernel_name(GemmKernel kernel);

struct GemmFacts {
  std::int64_t m = 0, n = 0, k = 0;
  DType x = DType::kF32, w = DType::kF32;
  bool library = false;   // cuBLASLt was found
  bool aligned = true;    // rows of x, w and out begin on 16 bytes
  bool deterministic = false;   // an output's order of summation may not depend on m
  std::int64_t batch = 1;
  int sm = 0;
};
GemmKernel choose_gemm(const GemmFacts& facts);

// Rows that kRows works on at once: a power of two up to 8 that covers m, or 8.
int gemm_rows_at_once(std::int64_t m);

// Shared memory that a block may have, by compute capability.
std::int64_t most_shared_bytes(int sm);

// How kSkinny runs: kernels/cuda/gemm_skinny.cu.
struct SkinnyFacts {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;   // n: of gates alone where they are gated
  bool gated = false;   // rows of w are gates and ups
  bool norm = false;    // x is normalised first, in shared memory
  bool add = false;     // the product is added to what is there
  int multiprocessors = 1;
  int sm = 80;
};
struct SkinnyPlan {
  int stages = 0;          // units in the ring of a warp; 0: there is not enough shared memory, or the norm costs too much
  bool x_in_shared = false;
  bool whole = false;      // x lies in shared memory, and neither a tile nor a turn of the warps is a part of one
  std::int64_t tiles = 0, blocks = 0, shared_bytes = 0;
};
SkinnyPlan plan_skinny(const SkinnyFacts& facts);

// The MLPs of experts.
enum class ExpertsKernel : std::uint8_t {
  kRows,     // pairs sorted by expert, a warp a column: any types
  kStream,   // bfloat16 on tensor cores, each chosen expert's weights read once; few pairs
  kTiles,    // bfloat16 on Hopper's warpgroup products, tiles of an expert's pairs
};
struct ExpertsFacts {
  std::int64_t pairs = 0, experts = 1, hidden = 0, width = 0;
  DType x = DType::kF32, w = DType::kF32;
  bool aligned = true;
  bool deterministic = false;
  int sm = 0;
};
ExpertsKernel choose_experts(const ExpertsFacts& facts);
inline constexpr std::int64_t kMaxStreamedPairs = 2048;
// Rows of an expert that kStream multiplies together, 8 or 16: the weights are read again for more.
int streamed_rows(std::int64_t pairs, std::int64_t experts);
// Tiles of kTiles have 64 rows times this.
int expert_row_groups(std::int64_t pairs, std::int64_t experts);

// Attention over pages.
enum class AttentionChoice : std::uint8_t {
  kReference,            // plain kernels: any type and size, one order of summation
  kSingleRows,           // a row at a time, its keys split over blocks
  kTiles,                // tiles of rows of one sequence; deterministic: of any rows
  kTilesAndSingleRows,   // runs of several rows in tiles, then the rows that stand alone
};
struct AttentionFacts {
  std::int64_t tokens = 0, seqs = 0, group = 1, dim = 0, value_dim = 0;
  DType plane = DType::kF32;
  bool aligned = true;           // rows of the planes begin on 16 bytes
  bool deterministic = false;
  int sm = 0;
};
AttentionChoice choose_attention(const AttentionFacts& facts);
inline constexpr std::int64_t kMaxTiledGroup = 64;   // heads that share keys, of a tile
// What kReference means: whether attention_tiles.cu takes it, and whether row by row then.
bool tiles_are_fast(const AttentionFacts& facts);
bool rows_one_by_one(const AttentionFacts& facts);

// Tokens of a tile of kTiles, of `group` heads each, in `rows` rows: one where rows are rather taken one by one, and fewer than
// there is room for while that gives work to more multiprocessors. A row's bits do not depend on it.
int tile_tokens(const AttentionFacts& facts, int rows, std::int64_t kv_heads, std::int64_t multiprocessors);

// How a row is split when rows are taken one by one. Depends on what a captured graph keeps, not on lengths.
struct DecodeFacts {
  std::int64_t rows = 0, kv_heads = 0, group = 1, dim = 0, max_pages = 0;
  int multiprocessors = 1;
  bool clusters = false;   // the splits of a row may be one cluster
};
struct DecodePlan {
  int head_tiles = 1;    // 8 heads each
  int head_blocks = 1;   // blocks for the heads of a group
  int heads_each = 1;    // heads of such a block
  int splits = 1;        // blocks for the keys of a row
  bool together = false;   // they are one cluster
};
DecodePlan plan_decode(const DecodeFacts& facts);

// How query rows are packed: heads that share keys, times neighbouring tokens.
struct AttentionTile {
  int heads = 1;
  int tokens = 1;
  int rows() const { return heads * tokens; }
};
inline constexpr int kMaxTileRows = 8;
// `group`: heads that share a key head. Rows of one sequence that stand together share the work of reading keys, which
// pays when there are more tokens than sequences; a sparse row shares its keys with no other token.
AttentionTile choose_attention_tile(std::int64_t tokens, std::int64_t seqs, std::int64_t group, bool sparse);

// Blocks that share the keys of a row in kReference, where the order of a row's sums may depend on it: enough for the GPU,
// no more than there are pages in the longest row or partial results fit.
struct SplitFacts {
  std::int64_t blocks = 0;        // without splits
  int blocks_of_each = 8;         // that a multiprocessor works on at once
  std::int64_t max_pages = 0;
  std::int64_t split_bytes = 0;   // of the partial results of one split
  std::int64_t scratch_bytes = 0;
  int multiprocessors = 1;
};
int attention_splits(const SplitFacts& facts);
inline constexpr int kMostSplits = 64;   // that attention_splits() gives

// Shared memory of a block of attention, and the columns of the values that a thread holds.
struct AttentionLaunch {
  int threads = 128;
  int columns = 1;              // 1, 2, 4 or 8
  std::int64_t shared_bytes = 0;
};
AttentionLaunch plan_attention(int rows, std::int64_t key_dim, std::int64_t value_dim);

}  // namespace sluice::cuda
