#include "engine/machine.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "tensor/device.h"

namespace sluice {

Device serving_device(const Options& options, int rank) {
  if (options.num_ranks() == 1) return choose_device(options.device, options.base_gpu_id);
  // The first stage has the first GPUs, and the last ranks.
  const int stage = options.pp_size - 1 - rank / options.tp_size;
  return choose_device(options.device, std::max(0, options.base_gpu_id) + stage * options.tp_size +
                                           rank % options.tp_size);
}

Machine read_machine(Device device, int rank) {
  return {.device = device,
          .sm = device_info(device).sm,
          .num_threads = usable_threads(),
          .numa_nodes = usable_numa_nodes(),
          .rank = rank};
}

}  // namespace sluice
