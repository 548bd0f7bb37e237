// Multimodal checkpoints keep the configuration of their language model in a dictionary of its own.
// Private to hub.
#pragma once

#include <string>

#include "base/json.h"

namespace sluice {

// `json` itself, or the nested configuration of its language model, completed by what stands around
// it; `wrapper` then becomes the name of the outer architecture. `what` names the file.
Json unwrap_config(const Json& json, const std::string& what, std::string& wrapper);

}  // namespace sluice
