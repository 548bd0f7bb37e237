// Which names of a model the API takes, and which it tells.
#pragma once

#include <string>
#include <vector>

#include "hub/resolve.h"

namespace sluice {

struct ModelNames {
  std::vector<std::string> names;    // told to clients; never empty
  std::vector<std::string> aliases;  // taken as well
  bool any = false;                  // every name is taken
};

// `served` is --served-model-name, where `*` takes every name; `given` is the MODEL argument.
// Without a served name a model of the hub has its repository's name, `org/name`. Another one has
// the last part of its path, without `.gguf` and the numbers of its parts: paths stay private.
// `given`, and words that clients send when they know no name, are aliases.
ModelNames model_names(const std::vector<std::string>& served, const std::string& given,
                       const ResolvedModel& model);

}  // namespace sluice
