// Reads a model's configuration as the options ask: with their overrides, for the class that will
// run it.
#pragma once

#include <string>

#include "checkpoint/load_config.h"
#include "engine/options.h"

namespace sluice {

// What the options say of it, and whether the plugin is there.
ImplementationChoice implementation_choice(const Options& options);

// load_model_config() with all of these. Errors as there; where only the plugin is missing, the
// message says so.
ModelConfig read_model_config(const Options& options, const std::string& directory);

}  // namespace sluice
