// The ranks around one in a pipeline: RunnerOptions::model says which layers are its own.
#pragma once

#include "distributed/stage_link.h"
#include "tensor/communicator.h"

namespace sluice {

// All outlive the runner.
struct PipelineLinks {
  Communicator* all_ranks = nullptr;  // of all stages; over host memory, too
  StageLink* previous = nullptr;      // null in the first stage
  StageLink* next = nullptr;          // null in the last stage
};

}  // namespace sluice
