// The configuration of an encoder: a model whose tokens see each other in both directions.
//
// Sources: transformers modeling_bert.py, modeling_roberta.py, modeling_xlm_roberta.py,
// modeling_modernbert.py, modeling_nomic_bert.py, modeling_eurobert.py, modeling_gemma3.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "kernels/types/model_enums.h"
#include "tensor/tensor.h"

namespace sluice {

// How the head for sequence classification makes scores of the last states.
enum class EncoderHead : std::uint8_t {
  kNone,
  kPooler,  // BERT: tanh of a dense layer of the first state, then the classifier
  kDense,   // RoBERTa: the same under the classifier's name
  kNormed,  // ModernBERT: activation and norm of a dense layer of the pooled state
  kPooled,  // EuroBERT: activation of a dense layer of the pooled state
  kLate,    // EuroBERT: the mean of what kPooled makes of every state
};

// The names of tensors and the order of a layer's steps.
enum class EncoderFamily : std::uint8_t {
  kBert,    // norms behind the halves of a layer, a table of positions
  kNomic,   // BERT with rotations and gated MLPs
  kModern,  // norms before the halves, rotations, gated MLPs, neighbourhoods
  kLlama,   // EuroBERT: a decoder's layers without the causal mask
  kGemma,   // Gemma 3 the same way: norms before and behind the halves, norms of heads
};

struct EncoderConfig {
  std::string architecture, model_type;
  DType dtype = DType::kF32;  // of the file
  EncoderFamily family = EncoderFamily::kBert;
  std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0;
  int num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::int64_t num_positions = 0;  // rows of the table of positions; 0: positions are rotations
  int max_tokens = 0;              // of a text
  int num_types = 0;               // rows of the table of token types; 0: there is none
  int pad_id = -1;                 // a token that has no position of its own; -1: none
  int position_offset = 0;         // row of the table for position 0
  double norm_eps = 1e-12;
  Activation activation = Activation::kGelu;
  double attention_scale = 0;  // of queries times keys
  double embedding_scale = 1;
  std::vector<bool> is_local;  // by layer, whether it sees its neighbourhood alone; empty: none
  int window = 0;              // how far that reaches
  double rope_theta = 0, local_rope_theta = 0;
  bool attention_bias = true, norm_bias = true;
  bool mlp_bias = true, down_bias = true;

  // Whether norms stand before the halves of a layer.
  bool has_norms_first() const { return family >= EncoderFamily::kModern; }
  bool is_gated() const { return family != EncoderFamily::kBert; }
  bool has_rms_norms() const { return family >= EncoderFamily::kLlama; }

  EncoderHead head = EncoderHead::kNone;
  std::vector<std::string> labels;  // of the head's scores
  bool head_pools_mean = false;     // the mean of all states, not the first
  bool head_waits = false;          // EuroBERT: states are pooled behind the dense layer
  bool head_bias = true;            // of ModernBERT's dense layer
  Activation head_activation = Activation::kGelu;
  bool is_multi_label = false;  // labels exclude each other not
  // Of a reranker, what files say of its scores: "sigmoid", "identity"; empty: nothing.
  std::string score_activation;
};

// Whether config.json names an encoder's class.
bool is_encoder(const Json& config);

// Error{kBadInput} names the key at fault.
EncoderConfig parse_encoder_config(const Json& config);

}  // namespace sluice
