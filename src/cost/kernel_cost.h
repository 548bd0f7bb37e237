// The price of one kernel or collective: the larger of its bytes and its operations over what the
// machine can do, and what a launch or a message costs in any case.
#pragma once

#include "cost/gpu_machine.h"

namespace sluice {

// Rows of a product that gemm_skinny.cu takes: it reads weights while it waits for the kernel
// before, and norms rows itself.
inline constexpr double kSkinnyRows = 8;

enum class KernelKind {
  kProduct,      // rows times a matrix
  kExperts,      // rows times the matrices of the experts that they chose
  kAttention,    // scores, softmax and values
  kElementwise,  // bytes alone
  kSum,          // all-reduce of float32
  kGather,       // all-gather
  kSend,         // to the next stage, or of tokens to experts
};

// What one rank does in a kernel.
struct KernelWork {
  KernelKind kind = KernelKind::kElementwise;
  double launches = 1;       // kernels in a row; 0: done within another one
  double rows = 0;           // of products
  double columns = 0;        // of a product's output, at this rank
  double weight_bytes = 0;   // read once
  double converted = 0;      // weights that are stored in less than 16 bits
  double bytes = 0;          // all else that is read and written
  double operations = 0;     // multiplications and additions
  bool is_fp8 = false;       // multiplied in FP8; rows of experts where they are many
  double message_bytes = 0;  // of a collective: of the whole tensor
  int ranks = 1;             // that take part
};

// Seconds. Pure.
double kernel_seconds(const KernelWork& work, const GpuMachine& machine,
                      const CostConstants& constants);

// The longest sum that kernels take among `ranks` GPUs, in bytes of float32; NCCL takes longer ones
// (distributed/peer/peer_communicator.cpp).
double peer_sum_bytes(int ranks);

}  // namespace sluice
