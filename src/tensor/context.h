// Where an op runs. One Context per rank, passed by reference; there are no globals.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/build.h"
#include "base/thread_pool.h"
#include "tensor/buffer.h"
#include "tensor/communicator.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace sluice {

// Instruction sets of the CPU kernels; each includes the previous ones. kAvx2 includes FMA and
// F16C, kAmx the matrix units for bfloat16 and bytes.
enum class CpuIsa : std::uint8_t { kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmx };
inline constexpr std::array kCpuIsas = {CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Vnni,
                                        CpuIsa::kAvx512Bf16, CpuIsa::kAmx};

// The highest set that this processor and its kernel support. Requests AMX from the kernel, for all
// threads of the process.
CpuIsa detect_cpu_isa();
std::string_view cpu_isa_name(CpuIsa isa);

namespace cuda {
class Session;
}

struct Context {
  Device device;
  const Stream* stream = nullptr;  // stream of the GPU's work; null on the CPU
  cuda::Session* cuda =
      nullptr;                 // kernels/cuda/common/session.h: libraries and workspaces of the GPU
  Arena* arena = nullptr;      // activations of one step
  ThreadPool* pool = nullptr;  // worker 0 is the calling thread
  Communicator* communicator = nullptr;
  CpuIsa cpu_isa = CpuIsa::kAvx2;
  int rank = 0;
  // On a GPU: a row's bits may not depend on the rows beside it. On the CPU they never do.
  bool deterministic = false;
  // Several ranks share the model's matrices: all of them make the same collectives.
  bool shares_model() const { return communicator != nullptr && communicator->size() > 1; }
  // True while memory is measured: ops check their arguments and return without touching data.
  bool dry_run = false;
};

}  // namespace sluice
