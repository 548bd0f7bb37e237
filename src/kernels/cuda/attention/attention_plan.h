// Which kernel computes attention, and its launch: pure functions of shapes and device, tested
// without a GPU.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice::cuda {

// Attention over pages.
enum class AttentionChoice : std::uint8_t {
  kReference,           // plain kernels: any type and size, one order of summation
  kSingleRows,          // a row at a time, its keys split over blocks
  kTiles,               // tiles of rows of one sequence; deterministic: of any rows
  kTilesAndSingleRows,  // runs of several rows in tiles, then the rows that stand alone
};
struct AttentionInputs {
  std::int64_t tokens = 0, seqs = 0, group = 1, dim = 0, value_dim = 0;
  DType plane = DType::kF32;
  bool aligned = true;  // rows of the planes begin on 16 bytes
  bool deterministic = false;
  int sm = 0;
};
AttentionChoice choose_attention(const AttentionInputs& inputs);
inline constexpr std::int64_t kMaxTiledGroup = 64;  // heads that share keys, of a tile
// What kReference means: whether attention_tiles.cu takes it, and whether row by row then.
bool tiles_are_fast(const AttentionInputs& inputs);
bool rows_one_by_one(const AttentionInputs& inputs);

// Tokens of a tile of kTiles, of `group` heads each, in `rows` rows: one where rows are rather
// taken one by one, and fewer than there is room for while that gives work to more num_sms. A row's
// bits do not depend on it.
int tile_tokens(const AttentionInputs& inputs, int rows, std::int64_t kv_heads,
                std::int64_t num_sms);

// How a row is split when rows are taken one by one. Depends on what a captured graph keeps, not on
// lengths.
struct DecodeInputs {
  std::int64_t rows = 0, kv_heads = 0, group = 1, dim = 0, max_pages = 0;
  int num_sms = 1;
  bool clusters = false;  // the splits of a row may be one cluster
};
struct DecodePlan {
  int head_tiles = 1;       // 8 heads each
  int head_blocks = 1;      // blocks for the heads of a group
  int heads_each = 1;       // heads of such a block
  int splits = 1;           // blocks for the keys of a row
  bool is_cluster = false;  // they are one cluster
};
DecodePlan plan_decode(const DecodeInputs& inputs);

// How query rows are packed: heads that share keys, times neighbouring tokens.
struct AttentionTile {
  int heads = 1;
  int tokens = 1;
  int rows() const { return heads * tokens; }
};
inline constexpr int kMaxTileRows = 8;
// `group`: heads that share a key head. Rows of one sequence that stand together share the work of
// reading keys, which pays when there are more tokens than sequences; a sparse row shares its keys
// with no other token.
AttentionTile choose_attention_tile(std::int64_t tokens, std::int64_t seqs, std::int64_t group,
                                    bool sparse);

// Blocks that share the keys of a row in kReference, where the order of a row's sums may depend on
// it: enough for the GPU, no more than there are pages in the longest row or partial results fit.
struct SplitInputs {
  std::int64_t blocks = 0;  // without splits
  int blocks_of_each = 8;   // that a multiprocessor works on at once
  std::int64_t max_pages = 0;
  std::int64_t split_bytes = 0;  // of the partial results of one split
  std::int64_t scratch_bytes = 0;
  int num_sms = 1;
};
int attention_splits(const SplitInputs& inputs);
inline constexpr int kMaxKeySplits = 64;  // that attention_splits() gives

// Shared memory of a block of attention, and the columns of the values that a thread holds.
struct AttentionLaunch {
  int threads = 128;
  int columns = 1;  // 1, 2, 4 or 8
  std::int64_t shared_bytes = 0;
};
AttentionLaunch plan_attention(int rows, std::int64_t key_dim, std::int64_t value_dim);

}  // namespace sluice::cuda
