// Programmatic dependent launch: a kernel may begin while the kernel before it still runs. It calls
// wait_for_earlier_kernels() before it touches data that the earlier kernel reads or writes.
#pragma once

#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/session.h"

namespace sluice::cuda {

inline constexpr std::int64_t kPlainSharedBytes = 48
                                                  << 10;  // more needs an attribute of the kernel

template <class... Params, class... Args>
void launch_dependent(Context& ctx, const char* what, void (*kernel)(Params...), dim3 grid,
                      int threads, std::int64_t shared_bytes, const Args&... args) {
  // All kernels use one division of an SM's memory into L1 and shared memory. Kernels with
  // different divisions cannot run on an SM at the same time.
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
  // Before Hopper the attribute does not exist: kernels run one after the other.
  config.numAttrs = ctx.cuda != nullptr && ctx.cuda->info().sm >= 90 ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  check_launch(what);
}

}  // namespace sluice::cuda
