// The architectures of GGUF files, and the mapping of their tensors to the names of the Hugging
// Face checkpoint. Private to checkpoint/gguf/.
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
  std::string_view hf;    // architecture of the configuration
  bool has_experts = false;
  bool pairs_rotate = false;       // rows of q and k heads are stored pair by pair
  std::string_view block = "mlp";  // parent of experts and router
  std::array<std::string_view, 3> expert = {"gate_proj", "up_proj", "down_proj"};
  std::string_view shared = {};  // below `block`
};

// The row of the file's general.architecture. Error{kBadInput} if there is none.
const GgufArchitecture& gguf_architecture(const GgufFile& file);

// The order of the file's rows, relative to the order of the models.
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
  int second_file = 0;                 // file of `second`; info.file is the file of `tensor`
  RowOrder order = RowOrder::kAsStored;
  std::int64_t group = 1;
  std::int64_t first_row = 0;  // first row of an expert in `tensor`
};

// One entry per tensor of all files, and one per expert of a stacked tensor. The first file has the
// values. A tensor of unknown name keeps its own name. The rotary frequencies (rope_freqs.weight)
// are part of the configuration and have no entry.
std::vector<GgufEntry> gguf_entries(std::span<const std::unique_ptr<GgufFile>> files);

}  // namespace sluice
