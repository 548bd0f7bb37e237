// Linear layers with FP8 or int8 weights: few rows in one kernel; many rows are rounded first.
#include "base/error.h"
#include "kernels/cuda/common/session.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/fp8/fp8_plan.h"
#include "kernels/cuda/fp8/gemm_fp8.h"

namespace sluice::cuda {
namespace {

int sm_of(const Context& ctx) {
  return ctx.cuda == nullptr ? 90 : ctx.cuda->info().sm;
}

GemmArgs gemm_args(const Tensor& x, const Weight& w, const Tensor& bias, const Tensor& out) {
  return {.x = x.data,
          .w = w.data.data,
          .bias = bias.defined() ? bias.data : nullptr,
          .out = static_cast<float*>(out.data),
          .m = x.dim(0),
          .n = w.rows,
          .k = w.columns,
          .x_stride = x.stride[0],
          .w_stride = w.data.stride[0],
          .out_stride = out.defined() ? out.stride[0] : 0,
          .x_type = x.dtype,
          .w_type = w.data.dtype,
          .bias_type = bias.dtype,
          .out_type = out.dtype};
}

Fp8Scales scales_of(const Weight& w) {
  return {w.scales.ptr<float>(), w.group == 0 ? 0 : w.scales.stride[0], w.group != 0,
          w.format == ops::Format::kInt8};
}

Fp8Rows rows_in(const Tensor& prepared, const Weight& w) {
  return {static_cast<unsigned char*>(prepared.data), prepared.stride[0], w.columns};
}

std::int64_t rows_at_once(const Context& ctx, const Weight& w, std::int64_t m) {
  return fp8_rows_at_once(m, w.columns, w.group != 0, ctx.deterministic, sm_of(ctx));
}

// Whether x is as the layers gave it; else it is prepared for gemm_fp8_tiles().
bool is_plain(const Tensor& x) {
  return x.dtype != DType::kU8;
}

// Four elements load at once.
void expect_rows(const Tensor& x) {
  check(x.dim(1) <= kMaxFp8Groups * ops::kFp8Group, "rows of FP8 with {} columns", x.dim(1));
  check(x.stride[0] % 4 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0,
        "rows of x for FP8 weights begin {} elements apart", x.stride[0]);
}

void skinny(Context& ctx, const GemmArgs& args, const Weight& w, const RowsAround& around,
            std::int64_t at_once) {
  check(at_once > 0, "{} plain rows for FP8 weights that take prepared ones", args.m);
  for (std::int64_t m = 0; m < args.m; m += at_once) {
    GemmArgs part = args;
    RowsAround around_part = around;
    part.m = std::min(at_once, args.m - m);
    part.x = static_cast<const std::byte*>(args.x) + m * args.x_stride * dtype_size(args.x_type);
    if (args.out != nullptr) part.out = args.out + m * args.out_stride;
    if (around.gated != nullptr) around_part.gated = around.gated + m * around.gated_stride;
    const Fp8SkinnyPlan plan =
        plan_fp8_skinny({.m = part.m,
                         .n = part.n,
                         .k = part.k,
                         .gated = around.gated != nullptr,
                         .num_sms = ctx.cuda == nullptr ? 1 : ctx.cuda->info().num_sms,
                         .sm = sm_of(ctx)});
    check(plan.stages > 0 && part.m <= kMaxStreamedRows,
          "an FP8 GEMM of {} rows of {} elements does not fit in shared memory", part.m, part.k);
    gemm_fp8_skinny(ctx, part, scales_of(w), around_part, plan);
  }
}

RowsAround gated_into(const Tensor& out, Activation activation) {
  return {.gated = static_cast<__nv_bfloat16*>(out.data),
          .gated_stride = out.stride[0],
          .gelu = activation == Activation::kGeluTanh};
}

// Whether kernels fuse the norm.
bool is_plain(const RowNorm& norm, const Tensor& x) {
  return norm.weight.dtype == DType::kF32 && x.stride[0] % 4 == 0;
}
void expect_norm(const RowNorm& norm, const Tensor& x, const Tensor& normed) {
  check(is_plain(norm, x) || is_plain(normed),
        "a norm weight of {} and rows {} elements apart, for rows of FP8",
        dtype_name(norm.weight.dtype), x.stride[0]);
}

// The activations that kernels fuse.
bool fuses(Activation activation) {
  return activation <= Activation::kGeluTanh;
}

}  // namespace

bool reads_plain_rows(const Context& ctx, const Weight& w, std::int64_t rows) {
  return rows_at_once(ctx, w, rows) > 0;
}

void prepare_fp8(Context& ctx, const Tensor& x, const Weight& w, const Tensor& out) {
  expect_rows(x);
  fp8_rows(ctx, x, {}, w, rows_in(out, w));
}

void linear_fp8(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                const Tensor& out) {
  const GemmArgs args = gemm_args(x, w, bias, out);
  if (args.m == 0 || args.n == 0) return;
  if (is_plain(x)) {
    expect_rows(x);
    return skinny(ctx, args, w, {}, rows_at_once(ctx, w, args.m));
  }
  gemm_fp8_tiles(ctx, args, scales_of(w));
  if (args.bias != nullptr) add_bias(ctx, args);
}

void linear_add_fp8(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                    const Tensor& branch, const Tensor& sum) {
  if (is_plain(x)) {
    expect_rows(x);
    return skinny(ctx, gemm_args(x, w, bias, sum), w, {.add = true},
                  rows_at_once(ctx, w, x.dim(0)));
  }
  if (bias.defined()) {
    linear_fp8(ctx, x, w, bias, branch);
    return add(ctx, sum, branch, sum);
  }
  GemmArgs args = gemm_args(x, w, bias, sum);
  args.add = true;
  gemm_fp8_tiles(ctx, args, scales_of(w));
}

void norm_linear_fp8(Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& w,
                     const Tensor& bias, const Tensor& normed, const Tensor& out) {
  expect_norm(norm, x, normed);
  if (!is_plain(norm, x)) {
    rms_norm(ctx, x, norm.weight, norm.eps, normed);
    return linear_fp8(ctx, normed, w, bias, out);
  }
  if (is_plain(normed))
    return skinny(ctx, gemm_args(x, w, bias, out), w,
                  {.norm = norm.weight.ptr<float>(), .eps = norm.eps},
                  rows_at_once(ctx, w, x.dim(0)));
  fp8_rows(ctx, x, {norm.weight.ptr<float>(), norm.eps}, w, rows_in(normed, w));
  linear_fp8(ctx, normed, w, bias, out);
}

void gate_up_fp8(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                 Activation activation, const Tensor& both, const Weight& next, const Tensor& out) {
  if (is_plain(x) && fuses(activation) && out.dtype == DType::kBF16) {
    expect_rows(x);
    GemmArgs args = gemm_args(x, w, bias, {});
    args.n = w.rows / 2;
    const std::int64_t at_once = rows_at_once(ctx, w, args.m);
    return skinny(ctx, args, w, gated_into(out, activation), at_once);
  }
  Tensor halves = both;
  if (!is_plain(x) && !bias.defined()) {
    // Many rows: the intermediate is as large as all other data together, so it is bfloat16.
    halves.dtype = DType::kBF16;
    gemm_fp8_tiles(ctx, gemm_args(x, w, bias, halves), scales_of(w));
  } else {
    linear_fp8(ctx, x, w, bias, both);
  }
  if (is_plain(out)) return act_and_mul(ctx, activation, halves, out);
  if (fuses(activation))
    return fp8_rows_gated(ctx, halves, activation == Activation::kGeluTanh, next,
                          rows_in(out, next));
  const Tensor inner = halves.slice(1, 0, next.columns);  // in place, element by element
  act_and_mul(ctx, activation, halves, inner);
  fp8_rows(ctx, inner, {}, next, rows_in(out, next));
}

void norm_gate_up_fp8(Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& w,
                      const Tensor& bias, Activation activation, const Tensor& normed,
                      const Tensor& both, const Weight& next, const Tensor& out) {
  expect_norm(norm, x, normed);
  if (is_plain(normed) && is_plain(norm, x) && fuses(activation) && out.dtype == DType::kBF16) {
    RowsAround around = gated_into(out, activation);
    around.norm = norm.weight.ptr<float>(), around.eps = norm.eps;
    GemmArgs args = gemm_args(x, w, bias, {});
    args.n = w.rows / 2;
    return skinny(ctx, args, w, around, rows_at_once(ctx, w, args.m));
  }
  if (is_plain(normed))
    rms_norm(ctx, x, norm.weight, norm.eps, normed);
  else
    fp8_rows(ctx, x, {norm.weight.ptr<float>(), norm.eps}, w, rows_in(normed, w));
  gate_up_fp8(ctx, normed, w, bias, activation, both, next, out);
}

}  // namespace sluice::cuda
