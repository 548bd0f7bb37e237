// generation_config.json: the sampling settings that a model's authors recommend, and the end
// tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"

namespace sluice {

// An empty optional means that the file has no such key; then the server uses its own default.
struct GenerationConfig {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int> top_k;  // 0 and -1: no limit
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int> max_new_tokens;
  std::optional<bool> do_sample;    // false: greedy unless a request overrides it
  std::vector<int> eos_token_ids;   // union with config.json's, ascending
  std::optional<int> bos_token_id;  // config.json's if this file has none
  std::optional<int> pad_token_id;

  bool operator==(const GenerationConfig&) const = default;
};

// Reads `directory`/generation_config.json. Without that file the ids are config.json's and all
// other fields are empty. Error{kBadInput} names the key, the value and the range.
// checkpoint/load_config.h reads GGUF files too.
GenerationConfig load_generation_config_json(const std::string& directory,
                                             const ModelConfig& model);

// As load_generation_config_json(), from the text of the file; `what` names it in errors.
GenerationConfig parse_generation_config(std::string_view text, std::string_view what,
                                         const ModelConfig& model);

}  // namespace sluice
