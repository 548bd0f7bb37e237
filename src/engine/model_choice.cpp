#include "engine/model_choice.h"

#include "base/error.h"
#include "checkpoint/load_config.h"
#include "models/plugin.h"

namespace sluice {

ImplementationChoice implementation_choice(const Options& options) {
  return {.impl = options.model_impl == "transformers" ? ModelImpl::kTransformers
                  : options.model_impl == "sluice"     ? ModelImpl::kSluice
                                                       : ModelImpl::kAuto,
          .plugin_installed = !transformers_plugin().empty(),
          .trust_remote_code = options.trust_remote_code};
}

int serving_context(const Options& options, const ModelConfig& config) {
  const std::int64_t wanted =
      options.context_length > 0 ? options.context_length : config.max_position_embeddings;
  if (wanted <= config.max_position_embeddings) return static_cast<int>(wanted);
  require(config.positions != PositionKind::kLearned,
          "--context-length is {}, and {} has learned embeddings for {} positions "
          "(max_position_embeddings); ask for at "
          "most that, --allow-longer cannot help",
          wanted, config.architecture, config.max_position_embeddings);
  require(options.allow_longer,
          "--context-length is {}, and the model's max_position_embeddings is {}; ask for at most "
          "that, or add "
          "--allow-longer",
          wanted, config.max_position_embeddings);
  return static_cast<int>(wanted);
}

ModelConfig read_model_config(const Options& options, const std::string& directory) {
  return load_model_config(directory, options.json_model_override_args,
                           implementation_choice(options));
}

}  // namespace sluice
