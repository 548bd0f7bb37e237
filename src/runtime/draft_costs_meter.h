// Measures what steps with drafts cost on this device, for this model.
#pragma once

#include "batch/draft_costs.h"
#include "runtime/model_runner.h"

namespace sluice {

// Runs decode steps of one sequence in the first pages, which nobody holds yet: of 1, 2, 4 ...
// rows, at most `max_rows`, each a few times. `max_drafts`: what the runner's draft makes; 0: there
// is none, or it costs nothing. Large steps on a CPU are left out.
DraftCosts measure_draft_costs(ModelRunner& runner, int max_rows, int max_drafts);

}  // namespace sluice
