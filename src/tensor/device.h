// The devices of this machine, and the choice among them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tensor/tensor.h"

namespace sluice {

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  int sm = 0;        // compute capability x 10: 90 for Hopper
  int num_sms = 0;
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;  // at the time of the call
  std::int64_t l2_bytes = 0;
  int driver = 0;  // newest CUDA version that the driver supports: 13000 for 13.0
};

// The oldest compute capability that kernels are built for.
inline constexpr int kOldestSm = 80;

// --device: "cpu", "cuda", or "auto", which takes a usable GPU, else the CPU. `index`: of the GPU
// among those that the process sees; -1: the first usable one. Error{kNoDevice} when "cuda" is
// impossible, or no GPU has this index; the message says what was looked for and what was found.
Device choose_device(std::string_view wanted, int index = -1);

// Makes a GPU current for the calling thread; no effect for the CPU.
void make_current(Device device);

// Properties of a GPU; for the CPU only free_bytes and total_bytes are set.
DeviceInfo device_info(Device device);

// "NVIDIA H200 (compute capability 9.0, 139.7 GiB)", or "CPU".
std::string describe(Device device);

}  // namespace sluice
