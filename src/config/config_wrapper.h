// Multimodal checkpoints keep the configuration of their language model in a nested dictionary.
// Private to config/.
#pragma once

#include <string>

#include "base/json.h"

namespace sluice {

// `json` itself, or the nested configuration of its language model, completed by the outer keys. In
// the second case `wrapper` becomes the name of the outer architecture. `what` names the file.
Json unwrap_config(const Json& json, const std::string& what, std::string& wrapper);

// One list of the ids of both levels; each is one id or a list.
Json ids_of_both(const Json& outer, const Json& inner);

}  // namespace sluice
