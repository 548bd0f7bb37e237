// Launches that may begin while the kernel before still runs ("programmatic dependent launch"): the
// kernel calls wait_for_earlier_kernels() before it touches what that one reads or writes.
#pragma once

#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/session.h"

namespace sluice::cuda {

inline constexpr std::int64_t kPlainSharedBytes = 48 << 10;  // more must be asked for

template <class... Params, class... Args>
void launch_dependent(Context& ctx, const char* what, void (*kernel)(Params...), dim3 grid,
                      int threads, std::int64_t shared_bytes, const Args&... args) {
  // One split of the SM's memory into L1 and shared memory for all kernels: those with different
  // splits do not run at the same time on an SM.
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                       cudaSharedmemCarveoutMaxShared);
  if (shared_bytes > kPlainSharedBytes)
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(shared_bytes));
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream_of(ctx);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = ctx.cuda != nullptr && ctx.cuda->info().sm >= 90 ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  check_launch(what);
}

}  // namespace sluice::cuda
