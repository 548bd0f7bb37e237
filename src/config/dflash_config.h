// The configuration of a DFlash draft: decoder layers that draft a block of tokens in one pass from
// a target's states.
//
//   if (is_dflash_config(text)) DflashConfig draft = parse_dflash_config(text, what, target);
//
// Read is the layout of the DFlash repository (DFlashDraftModel). Error{kBadInput} names the key
// and says what does not fit the target.
#pragma once

#include <string_view>
#include <vector>

#include "config/model_config.h"

namespace sluice {

struct DflashConfig {
  ModelConfig layers;  // a Qwen3 model of these layers
  int block_size = 0;  // the known token and the masks behind it
  int mask_token = 0;
  // The residual streams that enter these layers of the target, ascending; the number of layers
  // stands for what enters the last norm.
  std::vector<int> target_layers;
};

// Whether a config.json describes such a draft.
bool is_dflash_config(std::string_view text);
DflashConfig parse_dflash_config(std::string_view text, std::string_view what,
                                 const ModelConfig& target);

}  // namespace sluice
