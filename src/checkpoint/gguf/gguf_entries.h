// The tensors of a GGUF file under the names of the checkpoint, and how their values become those
// of the checkpoint. Private to checkpoint/gguf/.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/tensors/tensor_info.h"

namespace sluice {

// The order of the file's rows, relative to that of the checkpoint.
enum class RowOrder {
  kAsStored,
  kPairs,        // row (head, half, i) of a head of `group` rows is the stored row (head, i, half)
  kGroups,       // GgufQkv::kGroups: of `heads` and `kv_heads` heads with `group` rows
  kTiles,        // from `first_moved` on: head (k, j) of `group` rows is the stored head (j, k)
  kTilesAcross,  // the same of columns
  kGates,        // row h of a matrix is row h % group, and `first_moved`, of each 2 `group` rows
  kTransposed,   // the checkpoint stores [columns, rows]
  kBeside,       // a row of `tensor`, then the row of `second`
  kLatent,       // rows of a head: `group` columns of `tensor`, which is transposed, then the rows
                 // of `second`
};

// What was done to the values, and is undone.
enum class ValueChange { kNone, kAddedOne, kNegatedExponential };

struct GgufEntry {
  TensorInfo info;  // under the checkpoint's name; offset and bytes are those of the stored rows
  const GgufTensor* tensor = nullptr;  // null: `constants` are the values
  const GgufTensor* second = nullptr;  // kLatent: attn_v_b beside attn_k_b; kBeside
  int second_file = 0;                 // file of `second`; info.file is the file of `tensor`
  RowOrder order = RowOrder::kAsStored;
  ValueChange change = ValueChange::kNone;
  std::int64_t group = 1;
  std::int64_t first_row = 0;  // of an expert, or of a part of a fused tensor, in `tensor`
  std::int64_t first_moved = 0;
  std::int64_t heads = 0, kv_heads = 0;
  std::vector<float> constants = {};

  // The stored row of row `row`, of those after first_row.
  std::int64_t stored_row(std::int64_t row) const;
};

// One entry per tensor of all files, and one per part of a tensor that the checkpoint splits. The
// first file has the values. A tensor of unknown name keeps its own name. Rotary frequencies are
// part of the configuration and have no entry.
std::vector<GgufEntry> gguf_entries(std::span<const std::unique_ptr<GgufFile>> files);

}  // namespace sluice
