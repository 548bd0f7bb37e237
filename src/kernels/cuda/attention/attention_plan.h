// Kernels of attention and their launches: pure functions of shapes and device, tested without a
// GPU.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace sluice::cuda {

// Attention over pages.
enum class AttentionChoice : std::uint8_t {
  kReference,           // portable kernels: any type and size
  kSingleRows,          // decode: a row at a time, its keys split over CTAs
  kTiles,               // tiles of rows of one sequence
  kTilesAndSingleRows,  // runs of several rows in tiles, then single rows
};
struct AttentionInputs {
  std::int64_t tokens = 0, seqs = 0, group = 1, dim = 0, value_dim = 0;
  DType plane = DType::kF32;
  bool aligned = true;  // rows of the planes begin on 16 bytes
  bool deterministic = false;
  bool is_widened = false;  // tiles read pages of e4m3 as bfloat16 (kernels/cuda/pages/wide_plan.h)
  int sm = 0;
};
AttentionChoice choose_attention(const AttentionInputs& inputs);
inline constexpr std::int64_t kMaxTiledGroup = 64;  // maximum GQA group of a tile
// Within kReference: whether attention_tiles.cu takes the launch, and whether row by row. It takes
// deterministic launches over e4m3 alone.
bool tiles_are_fast(const AttentionInputs& inputs);
bool rows_one_by_one(const AttentionInputs& inputs);

// Tokens per tile. 1 if decode rows are better processed singly; otherwise as many as fit in
// `rows`, reduced while that puts more SMs to work. The bits of a row do not depend on it.
int tile_tokens(const AttentionInputs& inputs, int rows, std::int64_t kv_heads,
                std::int64_t num_sms);

// KV splits of decode rows. They depend on what a captured graph keeps, not on lengths.
struct DecodeInputs {
  std::int64_t rows = 0, kv_heads = 0, group = 1, dim = 0, max_pages = 0;
  int num_sms = 1;
  bool clusters = false;  // the splits of a row may be one cluster
};
struct DecodePlan {
  int head_tiles = 1;       // 8 heads each
  int head_blocks = 1;      // CTAs that share the heads of a GQA group
  int heads_each = 1;       // heads of such a CTA
  int splits = 1;           // CTAs that share the keys of a row
  bool is_cluster = false;  // the splits are one cluster
};
DecodePlan plan_decode(const DecodeInputs& inputs);

// How query rows are packed: heads of a GQA group times neighbouring tokens.
struct AttentionTile {
  int heads = 1;
  int tokens = 1;
  int rows() const { return heads * tokens; }
};
inline constexpr int kMaxTileRows = 8;
// `group`: heads of a GQA group. Neighbouring rows of one sequence share the loads of keys if there
// are more tokens than sequences. A sparse row shares its keys with no other token.
AttentionTile choose_attention_tile(std::int64_t tokens, std::int64_t seqs, std::int64_t group,
                                    bool sparse);

// KV splits of a row in kReference, if its order of summation may depend on them: enough to fill
// the GPU, at most the pages of the longest row, and no more than partial results fit.
struct SplitInputs {
  std::int64_t blocks = 0;  // without splits
  int blocks_of_each = 8;   // CTAs an SM
  std::int64_t max_pages = 0;
  std::int64_t split_bytes = 0;  // of the partial results of one split
  std::int64_t scratch_bytes = 0;
  int num_sms = 1;
};
int attention_splits(const SplitInputs& inputs);
inline constexpr int kMaxKeySplits = 64;  // maximum of attention_splits()

// Shared memory of a CTA of attention_reference.cu, and the columns of values that a thread holds.
struct AttentionLaunch {
  int threads = 128;
  int columns = 1;  // 1, 2, 4 or 8
  std::int64_t shared_bytes = 0;
};
AttentionLaunch plan_attention(int rows, std::int64_t key_dim, std::int64_t value_dim);

}  // namespace sluice::cuda
