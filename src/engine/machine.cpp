#include "engine/machine.h"

#include "base/thread_pool.h"
#include "tensor/device.h"

namespace sluice {

Device serving_device(const Options& options) {
  return choose_device(options.device, options.base_gpu_id);
}

Machine read_machine(Device device) {
  return {.device = device,
          .sm = device_info(device).sm,
          .num_threads = usable_threads(),
          .numa_nodes = usable_numa_nodes()};
}

}  // namespace sluice
