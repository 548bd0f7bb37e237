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
};

// The device that --device and --base-gpu-id name. Error{kNoDevice} as choose_device().
Device serving_device(const Options& options);

// Reads what is there now.
Machine read_machine(Device device);

}  // namespace sluice
