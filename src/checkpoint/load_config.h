// The configuration of a model on disk: a directory with config.json, or one GGUF file.
#pragma once

#include <string>
#include <string_view>

#include "config/generation_config.h"
#include "config/model_config.h"

namespace sluice {

// Reads `path`/config.json, or the metadata of a .gguf file in the same form. `override_args` is as
// in load_config_json(). Error{kBadInput} names the file, the key, the value and the range.
ModelConfig load_model_config(const std::string& path, std::string_view override_args = {},
                              const ImplementationChoice& choice = {});

// Reads `path`/generation_config.json and the end tokens of config.json, or the keys of a .gguf
// file that mean the same (checkpoint/gguf_generation.h).
GenerationConfig load_generation_config(const std::string& path, const ModelConfig& model);

}  // namespace sluice
