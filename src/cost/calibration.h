// Written by tools/cost_constants from docs/benchmarks/gpu_machines.json and measured steps;
// docs/cost_model.md has the sources. Do not change it by hand.
#pragma once

#include "cost/gpu_machine.h"

namespace sluice {

inline constexpr GpuMachine kGpuMachines[] = {
    {.name = "H100",
     .full_name = "NVIDIA H100 SXM 80GB",
     .memory_bytes = 85520809984,
     .copy_bytes_per_s = 2.985e+12,
     .bf16_flops = 7.616e+14,
     .fp8_flops = 8.8e+14,
     .link_bytes_per_s = 4.5e+11,
     .num_sms = 132,
     .max_gpus = 8},
    {.name = "H200",
     .full_name = "NVIDIA H200 141GB",
     .memory_bytes = 150109880320,
     .copy_bytes_per_s = 4.277e+12,
     .bf16_flops = 7.616e+14,
     .fp8_flops = 8.8e+14,
     .link_bytes_per_s = 4.5e+11,
     .num_sms = 132,
     .max_gpus = 8},
};

inline constexpr CostConstants kCalibratedConstants{
    .launch_s = 4.799e-06,
    .stream_share = 0.905,
    .rows_share = 0.9767,
    .gemm_share = 0.8875,
    .expert_gemm_share = 0.2192,
    .prefill_attention_share = 0.6952,
    .converted_per_s = 3.828e+12,
    .sum_s = 8.072e-06,
    .nccl_s = 1.161e-05,
    .peer_s = 1e-06,
    .link_share = 0.474,
};

}  // namespace sluice
