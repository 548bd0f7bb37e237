// The machine that a model is to run on, as the options choose among its devices.
#pragma once

#include "base/numa.h"
#include "engine/options.h"
#include "tensor/tensor.h"

namespace sluice {

struct Machine {
  Device device;
  int sm = 0;           // compute capability of a GPU, x 10
  int num_threads = 1;  // that the calling thread may use
  NumaNodes numa_nodes;
  int rank = 0;  // of the ranks that share what the machine has
};

// The device that --device and --base-gpu-id name; of several ranks each has the next GPU,
// stage by stage.
// Error{kNoDevice} as choose_device().
Device serving_device(const Options& options, int rank = 0);

// Reads what is there now.
Machine read_machine(Device device, int rank = 0);

}  // namespace sluice
