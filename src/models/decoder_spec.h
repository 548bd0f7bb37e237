// What sets one family of decoders apart from another: where its files keep the parts of a layer,
// and how they are put together. A family is one row of the table (decoder_table.cpp) beside its
// row of config/config_families.cpp.
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
  NormSpec norm = {};                  // of all norms but those of heads
  // Norms of a layer: what attention reads, what it adds to the stream, and the same for the MLP.
  // Empty: none. Where both halves read one norm (ResidualForm::kParallelOneNorm) it is
  // `attention_in`.
  std::string_view attention_in = "input_layernorm";
  std::string_view attention_out = {};
  std::string_view mlp_in = "post_attention_layernorm";
  std::string_view mlp_out = {};
  std::string_view attention = "self_attn";
  AttentionSpec attention_spec = {};
  std::string_view mlp = "mlp";
  MlpNames mlp_names = {};
  MoeNames moe = kQwenMoeNames;  // of layers that are mixtures
  // What depends on the configuration; null: nothing does.
  void (*adjust)(const ModelConfig& config, DecoderSpec& spec) = nullptr;
};

// The rows, and that of `config`'s architecture, adjusted; nothing when there is none.
std::span<const DecoderSpec> decoder_table();
std::optional<DecoderSpec> decoder_spec(const ModelConfig& config);

}  // namespace sluice
