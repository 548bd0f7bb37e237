// Calls the body that an operation has on the device of a context.
//
//   on_device<cpu::rms_norm, cuda::rms_norm>(ctx, x, weight, eps, out);
//
// Nothing is called while memory is measured.
#pragma once

#include "base/build.h"
#include "base/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "ops/arguments.h"

namespace sluice::ops {

template <auto kCpuBody, auto kCudaBody, class... Args>
void on_device(Context& ctx, const Args&... args) {
  if (!runs(ctx)) return;
  if (ctx.device.kind == DeviceKind::kCpu) return kCpuBody(ctx, args...);
  if constexpr (kHasCuda)
    kCudaBody(ctx, args...);  // discarded in other builds, which then link without it
  else
    fail(ErrorKind::kBug, "this build has no kernels for a GPU");
}

}  // namespace sluice::ops
