// What one GPU and its links can do, and the few constants of the programs that run on it.
//
//   const GpuMachine* machine = find_gpu_machine("H200");
//   const double floor_s = bytes / machine->copy_bytes_per_s;
//
// The rows stand in calibration.h, which tools/cost_constants writes from measurements.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

// Limits of one GPU, in bytes and operations a second.
struct GpuMachine {
  std::string_view name;  // "H200"
  std::string_view full_name;
  std::int64_t memory_bytes = 0;
  double copy_bytes_per_s = 0;
  double bf16_flops = 0;
  double fp8_flops = 0;
  double link_bytes_per_s = 0;  // to all other GPUs of the host together, one direction
  int num_sms = 0;
  int max_gpus = 0;  // of one host
};

// What a step costs beyond the limits of the machine. Shares are of the limits above.
struct CostConstants {
  double launch_s = 0;           // start and end of a kernel that waits for the one before
  double stream_share = 0;       // products of one row, experts, decode attention: of the copy rate
  double rows_share = 0;         // products of several rows: of the copy rate
  double gemm_share = 0;         // products of many rows: of the matrix rate
  double expert_gemm_share = 0;  // products of experts with many rows: of the matrix rate
  double prefill_attention_share = 0;  // of the matrix rate
  double converted_per_s = 0;          // weights of less than 16 bits that become operands
  double sum_s = 0;                    // a sum of two GPUs by kernels
  double nccl_s = 0;                   // a collective of two GPUs by NCCL
  double peer_s = 0;                   // what each further GPU adds to either
  double link_share = 0;               // of the link rate
};

std::span<const GpuMachine> gpu_machines();
const CostConstants& calibrated_constants();

// Null: there is no machine of that name. Case does not count.
const GpuMachine* find_gpu_machine(std::string_view name);
std::string gpu_machine_names();  // "H100, H200"

// "8xH200".
struct GpuSet {
  int count = 0;
  const GpuMachine* machine = nullptr;
};
// Error{kBadInput} names what is allowed.
GpuSet parse_gpu_set(std::string_view text);

}  // namespace sluice
