// Where a rank computes: its device, the worker threads of the host, and their NUMA nodes.
#pragma once

#include "base/numa.h"
#include "tensor/device.h"

namespace sluice {

struct Placement {
  Device device;
  int num_threads = 1;
  NumaNodes numa_nodes;  // over which workers and memory are dealt; empty: the system places both
  int num_sharers = 1;   // ranks that take memory of the same device
};

}  // namespace sluice
