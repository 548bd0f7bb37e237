#include "engine/model_choice.h"

#include "checkpoint/load_config.h"
#include "engine/draft_choice.h"
#include "models/plugin.h"

namespace sluice {

ImplementationChoice implementation_choice(const Options& options) {
  return {.impl = options.model_impl == "transformers" ? ModelImpl::kTransformers
                  : options.model_impl == "sluice"     ? ModelImpl::kSluice
                                                       : ModelImpl::kAuto,
          .plugin_installed = !transformers_plugin().empty(),
          .trust_remote_code = options.trust_remote_code};
}

ModelConfig read_model_config(const Options& options, const std::string& directory) {
  check_is_no_draft(directory);
  return load_model_config(directory, options.json_model_override_args,
                           implementation_choice(options));
}

}  // namespace sluice
