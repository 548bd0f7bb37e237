// The options of a rank's runner: parts of a serving plan (engine/serving_plan.h), which the runner
// passes on to the modules that they configure.
#pragma once

#include "attention/registry.h"
#include "models/registry.h"
#include "runtime/decode_graphs.h"
#include "runtime/memory_plan.h"
#include "runtime/placement.h"

namespace sluice {

struct RunnerOptions {
  Placement placement;
  ModelOptions model;
  AttentionOptions attention;
  Limits limits;
  KvPolicy kv;
  GraphOptions graphs;  // on a GPU
  int max_drafts = 0;   // tokens that the model's draft layer drafts; 0: it is not there
};

}  // namespace sluice
