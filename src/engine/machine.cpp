#include "engine/machine.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "tensor/device.h"

namespace sluice {

Device serving_device(const Options& options, int rank) {
  if (options.tp_size == 1) return choose_device(options.device, options.base_gpu_id);
  return choose_device(options.device, std::max(0, options.base_gpu_id) + rank);
}

Machine read_machine(Device device, int rank) {
  return {.device = device,
          .sm = device_info(device).sm,
          .num_threads = usable_threads(),
          .numa_nodes = usable_numa_nodes(),
          .rank = rank};
}

}  // namespace sluice
