// What the options say about the model, as a question to the hub (hub/obtain.h).
#pragma once

#include "engine/options.h"
#include "hub/obtain.h"

namespace sluice {

// --model at --revision. `weights` false: the configuration and the tokenizer will do.
ModelRequest model_request(const Options& options, bool weights = true);
// --tokenizer-path where it is given, else --model, at --tokenizer-revision; without weights.
ModelRequest tokenizer_request(const Options& options);

}  // namespace sluice
