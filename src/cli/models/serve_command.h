// The command that serves a model with given options, as a shell reads it.
#pragma once

#include <string>

#include "engine/options.h"

namespace sluice {

// "sluice serve MODEL --tp-size 4": what is not the default. The model stands behind the verb.
// Where it has no weights these are random.
std::string serve_command(const std::string& model, Options options, bool has_weights);

}  // namespace sluice
