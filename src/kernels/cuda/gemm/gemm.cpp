#include "kernels/cuda/gemm/gemm.h"

#include <limits>

#include "base/error.h"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/session.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/gemm/gemm_plan.h"

namespace sluice::cuda {
namespace {

bool on_sixteen_bytes(const void* base, std::int64_t stride, std::int64_t batch, DType dtype) {
  return rows_aligned(base, stride, dtype_size(dtype)) &&
         rows_aligned(base, batch, dtype_size(dtype));
}

GemmKernel kernel_for(const Context& ctx, const GemmArgs& args) {
  return choose_gemm(
      {.m = args.m,
       .n = args.n,
       .k = args.k,
       .x = args.x_type,
       .w = args.w_type,
       .library = ctx.cuda != nullptr && ctx.cuda->library() != nullptr,
       .aligned = on_sixteen_bytes(args.x, args.x_stride, args.x_batch, args.x_type) &&
                  on_sixteen_bytes(args.w, args.w_stride, args.w_batch, args.w_type) &&
                  on_sixteen_bytes(args.out, args.out_stride, args.out_batch, args.out_type),
       .deterministic = ctx.deterministic,
       .batch = args.batch,
       .sm = ctx.cuda == nullptr ? 0 : ctx.cuda->info().sm});
}

SkinnyPlan plan_of(const Context& ctx, const GemmArgs& args, const RowsAround& around) {
  const bool known = ctx.cuda != nullptr;
  return plan_skinny({.m = args.m,
                      .n = args.n,
                      .k = args.k,
                      .batch = args.batch,
                      .gated = around.gated != nullptr,
                      .norm = around.norm != nullptr,
                      .add = around.add,
                      .num_sms = known ? ctx.cuda->info().num_sms : 1,
                      .sm = known ? ctx.cuda->info().sm : 80});
}

void multiply(Context& ctx, const GemmArgs& args) {
  if (args.m == 0 || args.n == 0 || args.batch == 0) return;
  switch (kernel_for(ctx, args)) {
    case GemmKernel::kSkinny:
      gemm_skinny(ctx, args);
      return;
    case GemmKernel::kRows:
      gemm_by_rows(ctx, args);
      break;
    case GemmKernel::kLibrary:
      if (ctx.cuda->library()->multiply(ctx, args)) break;
      [[fallthrough]];  // the library has nothing for this shape
    case GemmKernel::kTiled:
      gemm_tiled(ctx, args);
      break;
    case GemmKernel::kSplit:
      gemm_split(ctx, args);
      break;
    case GemmKernel::kBatchInvariant:
      gemm_batch_invariant(ctx, args);
      break;
  }
  if (args.bias != nullptr) add_bias(ctx, args);
}

}  // namespace

bool can_fuse_in_skinny(const Context& ctx, const GemmArgs& args, const RowsAround& around) {
  return plan_of(ctx, args, around).stages > 0;
}

SkinnyPlan skinny_plan(const Context& ctx, const GemmArgs& args, const RowsAround& around) {
  const SkinnyPlan plan = plan_of(ctx, args, around);
  constexpr std::int64_t kMaxDim = std::numeric_limits<std::int32_t>::max();
  check(args.n <= kMaxDim && args.k <= kMaxDim, "a GEMM with {} by {} weights", args.n, args.k);
  check(plan.stages > 0,
        "a GEMM of {} rows of {} elements with its fused operations does not fit in shared memory",
        args.m, args.k);
  return plan;
}

bool multiply_by_library(Context& ctx, const GemmArgs& args) {
  if (args.m == 0 || args.n == 0 || args.batch == 0) return true;
  if (kernel_for(ctx, args) != GemmKernel::kLibrary || !ctx.cuda->library()->multiply(ctx, args))
    return false;
  if (args.bias != nullptr) add_bias(ctx, args);
  return true;
}

void linear(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& out) {
  multiply(ctx, {.x = x.data,
                 .w = w.data,
                 .bias = bias.defined() ? bias.data : nullptr,
                 .out = out.ptr<float>(),
                 .m = x.dim(0),
                 .n = w.dim(0),
                 .k = x.dim(1),
                 .x_stride = x.stride[0],
                 .w_stride = w.stride[0],
                 .out_stride = out.stride[0],
                 .x_type = x.dtype,
                 .w_type = w.dtype,
                 .bias_type = bias.dtype});
}

void linear_heads(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& out) {
  multiply(ctx, {.x = x.data,
                 .w = w.data,
                 .out = out.ptr<float>(),
                 .m = x.dim(0),
                 .n = w.dim(1),
                 .k = x.dim(2),
                 .batch = x.dim(1),
                 .x_stride = x.stride[0],
                 .w_stride = w.stride[1],
                 .out_stride = out.stride[0],
                 .x_batch = x.stride[1],
                 .w_batch = w.stride[0],
                 .out_batch = out.stride[1],
                 .x_type = x.dtype,
                 .w_type = w.dtype});
}

}  // namespace sluice::cuda
