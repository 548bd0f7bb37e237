// What a draft adds to a model's memory, by arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/models/model_files.h"
#include "engine/draft_choice.h"

namespace sluice {

struct DraftSize {
  std::string what;  // "NEXTN's layer"; empty: nothing drafts, or it takes no memory
  std::int64_t weight_bytes = 0;
  std::vector<PageGroupSpec> kept;  // of tokens
};

// `form`: of the target's weights, in which the draft's lie too.
DraftSize draft_size(const Options& options, const ServingPlan& plan, const ModelConfig& target,
                     const std::string& target_directory, const WeightForm& form);

}  // namespace sluice
