// The Transformers plugin: a shared library beside the program. It runs architectures without a
// class here, in an embedded Python. It is opened only for such a model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "layers/linear.h"
#include "models/registry.h"

namespace sluice {

// The plugin's file: $SLUICE_TRANSFORMERS_PLUGIN, else libsluice_transformers.so in the program's
// folder `lib`, beside its folder `bin`. Empty when there is none.
std::string transformers_plugin();

// A fingerprint of what both sides must have compiled alike: the sizes of the types that cross the
// boundary.
constexpr std::uint64_t plugin_layout() {
  std::uint64_t mix = 0;
  for (const std::size_t size : {sizeof(Context), sizeof(ModelConfig), sizeof(WeightSource),
                                 sizeof(ModelOptions), sizeof(StageIO), sizeof(ForwardBatch),
                                 sizeof(MhaArgs), sizeof(PageGroupSpec), sizeof(Linear)})
    mix = mix * 1000003 + size;
  return mix;
}

// The model of a configuration whose `fallback` is set. Error{kBadInput}: there is no plugin, or
// the plugin cannot run the model; see plugins/transformers/foreign_model.h.
std::unique_ptr<Model> load_foreign_model(Context& ctx, const ModelConfig& config,
                                          const WeightSource& source, const ModelOptions& options);

}  // namespace sluice
