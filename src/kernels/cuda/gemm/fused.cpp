// Fused operations. Few rows of bfloat16: one kernel. Many rows: SwiGLU GEMM or options of
// cuBLASLt. Otherwise: the operations one after the other.
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/session.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/swiglu_plan.h"

namespace sluice::cuda {
namespace {

// Whether the GEMM of x and w streams w past few rows (gemm_skinny).
bool streams(const Context& ctx, const Tensor& x, const Tensor& w) {
  return ctx.cuda != nullptr && !ctx.deterministic && x.dim(0) > 0 &&
         x.dim(0) <= ops::kMaxFusedRows && w.dtype == DType::kBF16 && x.dim(1) % 8 == 0 &&
         rows_aligned(x) && rows_aligned(w);
}
bool norms(const Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& w) {
  return streams(ctx, x, w) && norm.weight.dtype == DType::kF32 &&
         reinterpret_cast<std::uintptr_t>(norm.weight.data) % 16 == 0;
}

GemmArgs gemm_args(const Tensor& x, const Tensor& w, const Tensor& bias, std::int64_t n) {
  return {.x = x.data,
          .w = w.data,
          .bias = bias.defined() ? bias.data : nullptr,
          .m = x.dim(0),
          .n = n,
          .k = x.dim(1),
          .x_stride = x.stride[0],
          .w_stride = w.stride[0],
          .x_type = x.dtype,
          .w_type = w.dtype,
          .bias_type = bias.dtype};
}

// Gate/up projections of many rows with SwiGLU in one kernel. False: nothing was launched.
bool gate_many(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias,
               const RowsAround& around, const Tensor& out) {
  if (ctx.cuda == nullptr || out.numel() == 0) return false;
  const DeviceInfo& device = ctx.cuda->info();
  if (!fuses_swiglu({.m = x.dim(0),
                     .n = out.dim(1),
                     .k = x.dim(1),
                     .x = x.dtype,
                     .w = w.dtype,
                     .out = out.dtype,
                     .aligned = rows_aligned(x) && rows_aligned(w) && rows_aligned(out),
                     .biased = bias.defined(),
                     .known = around.gated != nullptr,
                     .deterministic = ctx.deterministic,
                     .sm = device.sm,
                     .num_sms = device.num_sms}))
    return false;
  return gemm_swiglu(ctx, gemm_args(x, w, bias, out.dim(1)), around);
}

}  // namespace

void norm_linear(Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& w,
                 const Tensor& bias, const Tensor& normed, const Tensor& out) {
  if (norms(ctx, x, norm, w) && normed.dtype == DType::kBF16) {
    GemmArgs args = gemm_args(x, w, bias, w.dim(0));
    args.out = out.ptr<float>();
    args.out_stride = out.stride[0];
    const RowsAround around{.norm = norm.weight.ptr<float>(), .eps = norm.eps};
    if (can_fuse_in_skinny(ctx, args, around)) return gemm_skinny(ctx, args, around);
  }
  rms_norm(ctx, x, norm.weight, norm.eps, normed);
  linear(ctx, normed, w, bias, out);
}

void norm_gate_up(Context& ctx, const Tensor& x, const RowNorm& norm, const Tensor& w,
                  const Tensor& bias, Activation activation, const Tensor& normed,
                  const Tensor& both, const Tensor& out) {
  const bool fuses = activation <= Activation::kGeluTanh &&
                     out.dtype == DType::kBF16;  // the activations that GEMMs can fuse
  RowsAround around;
  if (fuses) {
    around.gated = static_cast<__nv_bfloat16*>(out.data);
    around.gated_stride = out.stride[0];
    around.gelu = activation == Activation::kGeluTanh;
  }
  if (fuses && norm.weight.defined() && norms(ctx, x, norm, w) && normed.dtype == DType::kBF16) {
    const GemmArgs args = gemm_args(x, w, bias, out.dim(1));
    RowsAround with_norm = around;
    with_norm.norm = norm.weight.ptr<float>();
    with_norm.eps = norm.eps;
    if (can_fuse_in_skinny(ctx, args, with_norm)) return gemm_skinny(ctx, args, with_norm);
  }
  if (norm.weight.defined()) rms_norm(ctx, x, norm.weight, norm.eps, normed);
  const Tensor& input = norm.weight.defined() ? normed : x;
  if (fuses && streams(ctx, input, w) && input.dtype == DType::kBF16) {
    const GemmArgs args = gemm_args(input, w, bias, out.dim(1));
    if (can_fuse_in_skinny(ctx, args, around)) return gemm_skinny(ctx, args, around);
  }
  if (gate_many(ctx, input, w, bias, around, out)) return;
  if (input.dtype == DType::kBF16 && out.dtype == DType::kBF16 && !bias.defined() &&
      w.dtype == DType::kBF16) {
    // Many rows: the intermediate is as large as all other data together, so it is bfloat16.
    Tensor halves = both;
    halves.dtype = DType::kBF16;
    GemmArgs args = gemm_args(input, w, bias, w.dim(0));
    args.out = static_cast<float*>(both.data);
    args.out_stride = halves.stride[0];
    args.out_type = DType::kBF16;
    if (multiply_by_library(ctx, args)) return act_and_mul(ctx, activation, halves, out);
  }
  linear(ctx, input, w, bias, both);
  act_and_mul(ctx, activation, both, out);
}

void linear_add(Context& ctx, const Tensor& x, const Tensor& w, const Tensor& bias,
                const Tensor& branch, const Tensor& sum) {
  GemmArgs args = gemm_args(x, w, bias, w.dim(0));
  args.out = sum.ptr<float>();
  args.out_stride = sum.stride[0];
  args.add = true;
  if (multiply_by_library(ctx, args)) return;
  if (streams(ctx, x, w) && x.dtype == DType::kBF16) return gemm_skinny(ctx, args, {.add = true});
  linear(ctx, x, w, bias, branch);
  add(ctx, sum, branch, sum);
}

}  // namespace sluice::cuda
