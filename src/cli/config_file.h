// The file of --config: options by name, in YAML or JSON (docs/config.md).
//
//   model: Qwen/Qwen3-0.6B
//   max-model-len: 32k
//   served_model_name: [qwen, default]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/options.h"

namespace sluice {

// An option of the file and its value, as a command line would give it.
struct ConfigOption {
  const OptionRow* row = nullptr;
  std::string name;  // as the file spells it
  std::string text;
};

// In the order of the text. Error{kBadInput} names `what` and the key: an unknown one with the
// nearest known one, one that stands twice under two names, and one without a value.
std::vector<ConfigOption> parse_config(std::string_view text, std::string_view what);
// The options of the file at `path`.
std::vector<ConfigOption> read_config(const std::string& path);

}  // namespace sluice
