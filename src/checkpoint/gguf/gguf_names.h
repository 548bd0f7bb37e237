// Architectures of GGUF files, and how their tensors answer to the names that models ask for.
// Private to hub.
//
// Source: llama.cpp's gguf-py, `constants.py` and `tensor_mapping.py`; convert_hf_to_gguf.py for
// the orders of rows.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <memory>
#include <span>

#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/tensors/tensor_info.h"

namespace sluice {

struct GgufArchitecture {
  std::string_view name;  // general.architecture
  std::string_view hf;    // of the configuration
  bool has_experts = false;
  bool pairs_rotate = false;       // rows of q and k heads are stored pair by pair
  std::string_view block = "mlp";  // experts and router lie below it
  std::array<std::string_view, 3> expert = {"gate_proj", "up_proj", "down_proj"};
  std::string_view shared = {};  // below `block`
};

// The row of the file's general.architecture. Error{kBadInput} when there is none.
const GgufArchitecture& gguf_architecture(const GgufFile& file);

// How the rows that models ask for lie in the file.
enum class RowOrder {
  kAsStored,
  kPairs,   // row (head, half, i) of a head of `group` rows is the stored row (head, i, half)
  kLatent,  // rows of a head: `group` columns of `tensor`, which is transposed, then the rows of
            // `second`
};

struct GgufEntry {
  TensorInfo info;  // under the models' name; offset and bytes are those of the stored rows
  const GgufTensor* tensor = nullptr;
  const GgufTensor* second = nullptr;  // kLatent: attn_v_b beside attn_k_b
  int second_file = 0;                 // info.file is that of `tensor`
  RowOrder order = RowOrder::kAsStored;
  std::int64_t group = 1;
  std::int64_t first_row = 0;  // of `tensor`: where an expert begins
};

// An entry for each tensor of all files (for each expert of a stacked one); the first file has the
// values. A tensor of no known name answers to its own. Frequencies of the rotation
// (rope_freqs.weight) are part of the configuration and have no entry.
std::vector<GgufEntry> gguf_entries(std::span<const std::unique_ptr<GgufFile>> files);

}  // namespace sluice
