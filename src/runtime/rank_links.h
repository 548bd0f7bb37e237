// The ranks around one, beside those that share its matrices (Context::communicator): stages of a
// pipeline (RunnerOptions::model says which layers are its own), groups of data-parallel attention.
#pragma once

#include "attention/dp_groups.h"
#include "distributed/stage_link.h"
#include "tensor/communicator.h"

namespace sluice {

// All outlive the runner.
struct RankLinks {
  Communicator* all_ranks = nullptr;  // of all stages or groups; over host memory, too
  StageLink* previous = nullptr;      // null in the first stage
  StageLink* next = nullptr;          // null in the last stage
  DpGroups dp = {};
};

}  // namespace sluice
