// What the options say about the model, as a question to the hub (hub/obtain.h).
#pragma once

#include "engine/options.h"
#include "hub/hub_environment.h"
#include "hub/obtain.h"

namespace sluice {

// --model at --revision. `weights` false: the configuration and the tokenizer will do.
ModelRequest model_request(const Options& options, bool weights = true);
// The draft model at a directory or repo id. Its format is its own; weights that are made up are so
// in both.
ModelRequest draft_request(const Options& options, const std::string& draft, bool weights = true);
// The other tokenizer that the options name, or the model's in another revision; without weights.
ModelRequest tokenizer_request(const Options& options);

// Whether the model's own tokenizer is taken, as it is.
bool has_own_tokenizer(const Options& options);
// The hub's cache, as the environment and the options say.
HubEnvironment hub_environment(const Options& options);

}  // namespace sluice
