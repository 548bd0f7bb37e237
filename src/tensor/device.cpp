#include "tensor/device.h"

#include <algorithm>

#include "base/build.h"
#include "base/error.h"
#include "tensor/cuda_runtime.h"
#include "tensor/host_memory.h"

namespace sluice {
namespace {

// The GPU with this index, or for -1 the first, that the kernels support; -1, with the reason, if
// there is none.
int usable_gpu([[maybe_unused]] int index, std::string& why) {
  if constexpr (kHasCuda) {
    const int count = cuda::device_count(why);
    if (index >= count && count > 0)
      fail(ErrorKind::kNoDevice, "--base-gpu-id is {}, and there {} here: {}", index,
           count == 1 ? "is 1 GPU" : fmt::format("are {} GPUs", count),
           count == 1 ? "0" : fmt::format("0 to {}", count - 1));
    for (int i = std::max(index, 0); i < (index < 0 ? count : std::min(count, index + 1)); ++i) {
      const DeviceInfo info = cuda::device_info(i);
      if (info.sm >= kOldestSm) return i;
      why =
          fmt::format("{} has compute capability {}.{}, and {}.{} is the oldest that is supported",
                      info.name, info.sm / 10, info.sm % 10, kOldestSm / 10, kOldestSm % 10);
    }
  } else {
    why = "this build has no GPU kernels; configure with -DSLUICE_CUDA=ON";
  }
  return -1;
}

}  // namespace

Device choose_device(std::string_view wanted, int index) {
  if (wanted == "cpu") return {};
  std::string why;
  const int gpu = usable_gpu(index, why);
  if (gpu >= 0) return {.kind = DeviceKind::kCuda, .index = gpu};
  if (wanted != "auto")
    fail(ErrorKind::kNoDevice,
         "no usable GPU for --device {}: {}; --device cpu computes on the CPU", wanted, why);
  return {};
}

void make_current([[maybe_unused]] Device device) {
  if constexpr (kHasCuda)
    if (device.kind == DeviceKind::kCuda) cuda::choose_device(device.index);
}

DeviceInfo device_info(Device device) {
  if constexpr (kHasCuda)
    if (device.kind == DeviceKind::kCuda) return cuda::device_info(device.index);
  DeviceInfo info;
  info.name = "CPU";
  info.total_bytes = info.free_bytes = available_host_bytes();
  return info;
}

std::string describe(Device device) {
  if (device.kind == DeviceKind::kCpu) return "CPU";
  const DeviceInfo info = device_info(device);
  return fmt::format("{} (compute capability {}.{}, {:.1f} GiB)", info.name, info.sm / 10,
                     info.sm % 10, static_cast<double>(info.total_bytes) / (1 << 30));
}

}  // namespace sluice
