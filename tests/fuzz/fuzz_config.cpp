// config/model_config.h: an untrusted config.json. An accepted configuration obeys the ranges that
// the layers rely on.
#include "base/error.h"
#include "base/log.h"
#include "config/model_config.h"
#include "config/modules/module_patterns.h"
#include "fuzz_support.h"
#include "fuzz_target.h"

namespace sluice::fuzz {

void run_one(std::string_view input) {
  set_log_level(LogLevel::kOff);
  try {
    const ModelConfig config = parse_model_config(input, "config.json");
    must_hold(config.layers.size() == static_cast<std::size_t>(config.num_layers),
              "one entry a layer");
    must_hold(config.vocab_size > 0 && config.hidden_size > 0 && config.num_heads > 0 &&
                  config.head_dim > 0,
              "sizes above 0");
    must_hold(config.num_kv_heads > 0 && config.num_heads % config.num_kv_heads == 0,
              "whole groups of heads");
    must_hold(config.rope.rotary_dim >= 0 && config.rope.rotary_dim % 2 == 0, "whole rotary pairs");
    if (config.moe)
      must_hold(config.moe->top_k > 0 && config.moe->top_k <= config.moe->num_experts,
                "experts to choose from");
    config.layer(config.num_layers);
    if (config.quantization)
      QuantizedModules(*config.quantization).has("model.layers.10.self_attn.q_proj");
  } catch (const Error& error) {
    must_hold(error.kind() == sluice::ErrorKind::kBadInput, error.what());
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts = golden_texts("models", "config.json", 16 << 10);
  for (std::string& text : golden_texts("models", "config.hub.json", 16 << 10))
    texts.push_back(std::move(text));
  return texts;
}

}  // namespace sluice::fuzz
