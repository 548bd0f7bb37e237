// Measures what steps with drafts cost on this device, for this model.
#pragma once

#include <functional>

#include "batch/draft_costs.h"
#include "runtime/model_runner.h"

namespace sluice {

struct DraftMeterLimits {
  int vocab_size = 1;
  int max_sequences = 1;  // of a step
  int max_rows = 1;       // of a step with drafts
  int max_own_rows = 0;   // of a sequence in it; 0: a page
  int max_drafts = 0;     // of the runner's draft; 0: there is none, or it costs nothing
  int topk = 1;           // drafts behind each token; 1: chains
  int levels = 0;         // of trees
  int max_tokens = 0;     // of a prompt that a step computes whole
};

// Runs steps of any tokens in the first pages, which nobody holds yet. It takes one or two seconds,
// or where steps are slower than that a few of them. Large steps on a CPU are left out: the lines
// behind the last points stand for them. What the tokens before a row cost is seen behind a prompt,
// unless that takes long: then weights, not tokens, are what a step reads.
//
// `run` does a step on all ranks and returns when its results are there. `runner` is the first of
// them. Each of `num_groups` data-parallel groups has the same rows: limits are those of a group.
DraftCosts measure_draft_costs(const ModelRunner& runner, int num_groups, DraftMeterLimits limits,
                               const std::function<void(const Step&)>& run);

}  // namespace sluice
