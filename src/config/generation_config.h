// generation_config.json: the sampling settings that a model's authors recommend, and when
// generation stops.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"

namespace sluice {

// An empty optional means that the file does not say; the server then uses its own default.
struct GenerationConfig {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int> top_k;  // 0 and -1: no limit
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int> max_new_tokens;
  std::optional<bool> do_sample;    // false: greedy unless a request says otherwise
  std::vector<int> eos_token_ids;   // union with config.json's, ascending
  std::optional<int> bos_token_id;  // config.json's where this file is silent
  std::optional<int> pad_token_id;

  bool operator==(const GenerationConfig&) const = default;
};

// Reads `directory`/generation_config.json; without that file the ids are config.json's and all
// else is empty. Error{kBadInput} names the key, the value and the range. checkpoint/load_config.h
// reads GGUF files too.
GenerationConfig load_generation_config_json(const std::string& directory,
                                             const ModelConfig& model);

// As above, from the text of the file; `what` names it in errors.
GenerationConfig parse_generation_config(std::string_view text, std::string_view what,
                                         const ModelConfig& model);

}  // namespace sluice
