#include "checkpoint/load_config.h"

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/gguf/gguf_config.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/gguf_generation.h"

namespace sluice {

ModelConfig load_model_config(const std::string& path, std::string_view override_args,
                              const ImplementationChoice& choice) {
  if (!is_gguf_path(path)) return load_config_json(path, override_args, choice);
  require(
      choice.impl != ModelImpl::kTransformers,
      "--model-impl transformers needs a model directory with a config.json, not the GGUF file {}",
      path);
  const GgufFile file(open_regular_file(path), path);
  return parse_model_config(dump_json(gguf_config(file)), path, override_args);
}

GenerationConfig load_generation_config(const std::string& path, const ModelConfig& model) {
  if (!is_gguf_path(path)) return load_generation_config_json(path, model);
  return gguf_generation_config(GgufFile(open_regular_file(path), path), model);
}

}  // namespace sluice
