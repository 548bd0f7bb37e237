#include "tensor/device.h"

#include "base/build.h"
#include "base/error.h"
#include "tensor/cuda_runtime.h"
#include "tensor/host_memory.h"

namespace sluice {
namespace {

// The first GPU that kernels run on; -1, with the reason, when there is none.
int usable_gpu(std::string& why) {
  if constexpr (kHasCuda) {
    const int count = cuda::device_count(why);
    for (int i = 0; i < count; ++i) {
      const DeviceFacts facts = cuda::device_facts(i);
      if (facts.sm >= kOldestSm) return i;
      why = fmt::format("{} has compute capability {}.{}, and {}.{} is the oldest that is supported", facts.name,
                        facts.sm / 10, facts.sm % 10, kOldestSm / 10, kOldestSm % 10);
    }
  } else {
    why = "this build has no GPU kernels; configure with -DSLUICE_CUDA=ON";
  }
  return -1;
}

}  // namespace

Device choose_device(std::string_view wanted) {
  if (wanted == "cpu") return {};
  std::string why;
  const int gpu = usable_gpu(why);
  if (gpu >= 0) return {.kind = DeviceKind::kCuda, .index = gpu};
  if (wanted != "auto")
    fail(ErrorKind::kNoDevice, "no usable GPU for --device {}: {}; --device cpu computes on the CPU", wanted, why);
  return {};
}

void make_current([[maybe_unused]] Device device) {
  if constexpr (kHasCuda)
    if (device.kind == DeviceKind::kCuda) cuda::choose_device(device.index);
}

DeviceFacts device_facts(Device device) {
  if constexpr (kHasCuda)
    if (device.kind == DeviceKind::kCuda) return cuda::device_facts(device.index);
  DeviceFacts facts;
  facts.name = "CPU";
  facts.total_bytes = facts.free_bytes = available_host_bytes();
  return facts;
}

std::string describe(Device device) {
  if (device.kind == DeviceKind::kCpu) return "CPU";
  const DeviceFacts facts = device_facts(device);
  return fmt::format("{} (compute capability {}.{}, {:.1f} GiB)", facts.name, facts.sm / 10, facts.sm % 10,
                     static_cast<double>(facts.total_bytes) / (1 << 30));
}

}  // namespace sluice
