// The configuration of an EAGLE-3 head: decoder layers that draft from a target's states.
//
//   if (is_eagle3_config(text)) Eagle3Config head = parse_eagle3_config(text, what, target);
//
// Read are the layouts of the EAGLE repository and SpecForge (LlamaForCausalLMEagle3), of
// speculators (Eagle3DraftModel), and of heads with latent attention (Eagle3DeepseekV2ForCausalLM).
// Error{kBadInput} names the key and says what does not fit the target.
#pragma once

#include <string_view>
#include <vector>

#include "config/model_config.h"

namespace sluice {

struct Eagle3Config {
  ModelConfig layers;        // a Llama, Qwen3 or DeepSeek-V3 model of these layers
  int draft_vocab_size = 0;  // rows of its own head; 0: it reads the target's
  // The residual streams that enter these layers of the target, ascending; the number of layers
  // stands for what enters the last norm. Empty: the state after the last norm, without `fc`.
  std::vector<int> target_layers;
  bool norm_before_fc = false;        // one norm of all states together
  bool fc_norm = false;               // a norm of each state
  bool norm_before_residual = false;  // the residual stream of the first layer is normed
  bool norm_output = false;           // the next depth gets the state after the last norm
};

// Whether a config.json describes such a head.
bool is_eagle3_config(std::string_view text);
Eagle3Config parse_eagle3_config(std::string_view text, std::string_view what,
                                 const ModelConfig& target);

// The same of a head of EAGLE-1 or EAGLE-2: the layers alone. It reads the last state of its
// target. The EAGLE repository names them LlamaForCausalLM, as ordinary models.
bool is_eagle_config(std::string_view text);
ModelConfig parse_eagle_config(std::string_view text, std::string_view what,
                               const ModelConfig& target);

}  // namespace sluice
