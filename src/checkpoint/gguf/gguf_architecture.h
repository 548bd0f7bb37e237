// The architectures of GGUF files: one row each, for the names of tensors, the orders of their rows
// and the configuration. Private to checkpoint/gguf/.
//
// Source: llama.cpp's gguf-py, `constants.py` and `tensor_mapping.py`; the classes of its converter
// for the orders of rows, for values that it changes, and for keys.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf/gguf_file.h"

namespace sluice {

class GgufConfigWriter;

// The name of a tensor in a GGUF file and in the checkpoint, before ".weight" or ".bias".
struct GgufName {
  std::string_view gguf;
  std::string_view hf;
  bool is_whole = false;  // hf is the whole name, without an ending
};

// Where the checkpoint keeps the parts of a mixture, below a layer.
struct GgufMixture {
  std::string_view block = "mlp";
  std::array<std::string_view, 3> expert = {"gate_proj", "up_proj", "down_proj"};
  std::string_view shared = {};  // below `block`; empty: there are none
  std::string_view router = "gate";
  std::string_view correction = "gate.e_score_correction_bias";
};

// What a file stores otherwise than the checkpoint; the rows of a fused tensor, for example.
enum class GgufQkv {
  kSeparate,  // q, k and v, also where a file fuses them
  kRows,      // one tensor: all q, all k, all v
  kGroups     // one tensor: q, k and v of each key head together. Files have all q, all k, all v
};

struct GgufArchitecture {
  std::string_view name;  // general.architecture
  std::string_view hf;    // architecture of the configuration
  // Which of the rows of one name a file belongs to; null: there is no other.
  bool (*is_of)(const GgufFile& file) = nullptr;
  bool has_experts = false;
  bool pairs_rotate = false;  // rows of q and k heads are stored pair by pair
  bool adds_one = false;      // weights of norms are stored with 1 added
  bool transposed = false;    // the checkpoint stores matrices of layers as [in, out]
  bool varies_heads = false;  // layers have different numbers of key heads, or none
  bool tiles_heads = false;   // value heads of recurrent layers lie by their place in a group
  GgufQkv qkv = GgufQkv::kSeparate;
  std::string_view layers = "model.layers.";
  std::span<const GgufName> ends = {};   // before the names of all architectures
  std::span<const GgufName> names = {};  // of tensors of a layer, likewise
  GgufMixture mixture = {};
  // Writes what the keys of all architectures do not say; null: nothing.
  void (*configure)(GgufConfigWriter& writer) = nullptr;
};

// The row of the file's general.architecture. Error{kBadInput} if there is none.
const GgufArchitecture& gguf_architecture(const GgufFile& file);

std::span<const GgufArchitecture> gguf_architectures();
// Of ends and layers of every architecture, unless its row has others.
std::span<const GgufName> gguf_common_ends();
std::span<const GgufName> gguf_common_names();

// The columns of the first matrix of any layer with this name ("ffn_down"), or 0.
std::int64_t gguf_columns_of(const GgufFile& file, std::string_view part);
// Whether any layer has a tensor of this name with its ending ("attn_q_norm.weight").
bool gguf_has_part(const GgufFile& file, std::string_view part);

}  // namespace sluice
