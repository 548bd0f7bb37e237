// The differences between families of decoders: where the files keep the parts of a layer, and how
// the parts are combined. A family is one row of this table (decoder_table.cpp) and one row of
// config/config_families.cpp.
#pragma once

#include <span>
#include <string_view>

#include "layers/gqa.h"
#include "layers/moe.h"
#include "models/embed_head.h"

namespace sluice {

struct DecoderSpec {
  std::string_view architecture;
  EndNames ends = {};
  std::string_view layers = "layers";  // below ends.body
  NormSpec norm = {};                  // for all norms but those of heads
  // Norms of a layer: before and after attention, before and after the MLP. Empty: none. If both
  // halves read one norm (ResidualForm::kParallelOneNorm), it is `attention_in`.
  std::string_view attention_in = "input_layernorm";
  std::string_view attention_out = {};
  std::string_view mlp_in = "post_attention_layernorm";
  std::string_view mlp_out = {};
  std::string_view attention = "self_attn";
  AttentionSpec attention_spec = {};
  std::string_view mlp = "mlp";
  MlpNames mlp_names = {};
  MoeNames moe = kQwenMoeNames;  // names in mixture layers
  // Adjusts the row by the configuration; null: no adjustment.
  void (*adjust)(const ModelConfig& config, DecoderSpec& spec) = nullptr;
};

// The rows of the table; and the adjusted row of `config`'s architecture, or nothing.
std::span<const DecoderSpec> decoder_table();
std::optional<DecoderSpec> decoder_spec(const ModelConfig& config);

}  // namespace sluice
