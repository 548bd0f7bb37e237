// `sluice bench kernel --device cuda`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "tensor/device.h"

namespace sluice {

struct GpuKernelBench {
  Device device;
  std::string title;               // whose shapes these are
  std::vector<std::int64_t> rows;  // that products multiply
  std::int64_t rotate_bytes = 0;   // of the copies that launches read in turn
  bool as_json = false;
};

// Kernels of the GPU at the model's shapes, alone and in a chain, against what a copy and a large
// product reach right before. Prints a table or a JSON object a line.
void bench_gpu_kernels(const GpuKernelBench& wanted, const ModelConfig& config);

}  // namespace sluice
