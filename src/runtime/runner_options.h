// The options of a rank's runner: parts of a serving plan (engine/serving_plan.h), which the runner
// passes on to the modules that they configure.
#pragma once

#include <memory>
#include <vector>

#include "attention/registry.h"
#include "models/drafted_model.h"
#include "models/registry.h"
#include "runtime/memory_plan.h"
#include "runtime/placement.h"
#include "runtime/steps/decode_graphs.h"

namespace sluice {

struct RunnerOptions {
  Placement placement;
  ModelOptions model;
  AttentionOptions attention;
  Limits limits;
  KvPolicy kv;
  GraphOptions graphs;           // on a GPU
  bool pads_draft_rows = false;  // as graphs do, on a CPU: steps with drafts, for tests
  int max_drafts = 0;            // tokens of a sequence that a draft proposes; 0: there is none
  int draft_topk = 1;            // drafts behind each token; 1: chains
  int draft_steps = 0;           // depth of a tree
  // What drafts beside the model; null: nothing, or its own layer does (ModelOptions::draft_layer).
  std::shared_ptr<const DraftSource> draft = {};
  // For measurements: how often the draft at each place counts as right; empty: where it is.
  std::vector<double> synthetic_acceptance = {};
  // For measurements: the tokens of every sequence by position, whatever the model says.
  std::vector<std::int32_t> replayed_tokens = {};
};

}  // namespace sluice
