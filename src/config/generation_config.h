// generation_config.json: the sampling settings that a model's authors recommend, and the end
// tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/end_tokens.h"
#include "config/model_config.h"

namespace sluice {

// An empty optional means that the file has no such key; then the server uses its own default.
struct GenerationConfig {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int> top_k;  // 0 and -1: no limit
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int> max_new_tokens;  // of a request that says none
  std::optional<bool> do_sample;      // false: greedy unless a request overrides it
  EndTokens ends;                     // of every file
  std::vector<int> eos_token_ids;     // ends.ids()
  std::optional<int> bos_token_id;    // config.json's if this file has none
  std::optional<int> pad_token_id;
  std::vector<std::string> ignored_keys;  // keys of this file that change nothing

  // Adds to the end tokens.
  void add_end(const EndToken& token);

  bool operator==(const GenerationConfig&) const = default;
};

// Reads `directory`/generation_config.json, and the end tokens of config.json, over which
// the overrides of `model` are laid. Without generation_config.json the sampling
// fields are empty. Error{kBadInput} names the key, the value and the range.
// checkpoint/load_config.h reads GGUF files too.
GenerationConfig load_generation_config_json(const std::string& directory,
                                             const ModelConfig& model);

// The same from the texts of both files; `what` names generation_config.json in errors.
GenerationConfig parse_generation_config(std::string_view text, std::string_view what,
                                         const ModelConfig& model, const Json& config_json = {});

}  // namespace sluice
