// Linear layers with integer weights in fragments (kernels/types/int_fragments.h), the operations
// fused into them, and tables of embeddings. Few rows: one kernel. Many rows: tiles of Hopper,
// which read rows in the order of the weight's columns. Very many: GEMMs of bfloat16
// (linear_widened.cpp).
#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/session.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm/gemm_int.h"
#include "kernels/types/int_fragments.h"

namespace sluice::cuda {
namespace {

int sm_of(const Context& ctx) {
  return ctx.cuda == nullptr ? 80 : ctx.cuda->info().sm;
}

// out: undefined, float32, or bfloat16.
GemmArgs gemm_args(const Tensor& x, const Weight& w, const Tensor& bias, const Tensor& out) {
  return {.x = x.data,
          .w = w.data.data,
          .bias = bias.defined() ? bias.data : nullptr,
          .out = static_cast<float*>(out.data),
          .m = x.dim(0),
          .n = w.rows,
          .k = w.columns,
          .x_stride = x.stride[0],
          .out_stride = out.defined() ? out.stride[0] : 0,
          .x_type = x.dtype,
          .bias_type = bias.dtype,
          .out_type = out.dtype};
}

// Rows that the kernel of few rows takes at once; 0: tiles take them.
std::int64_t rows_at_once(const Context& ctx, const Tensor& x, const Weight& w,
                          bool gated = false) {
  return int_rows_at_once({.m = x.dim(0),
                           .k = w.columns,
                           .bits = fragment_unit(w).bits,
                           .gated = gated,
                           .deterministic = ctx.deterministic,
                           .sm = sm_of(ctx)});
}

// Four elements load at once, and the kernels count columns in 32 bits.
void expect_rows(const Tensor& x, const Weight& w) {
  check(
      w.columns % 8 == 0 && w.columns < (std::int64_t{1} << 30) && w.rows < (std::int64_t{1} << 30),
      "integer weights [{}, {}]", w.rows, w.columns);
  check(x.stride[0] % 4 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0,
        "rows of x for integer weights begin {} elements apart", x.stride[0]);
}

// With more columns a kernel of its own puts few rows in the weight's order: every CTA of the GEMM
// would gather all of them.
constexpr std::int64_t kMaxGathered = 8192;

void skinny(Context& ctx, GemmArgs args, const Weight& w, const RowsAround& around,
            std::int64_t at_once) {
  IntWeights weights = weights_of(w);
  check(weights.kind != IntKind::kFp8, "FP8 weights of a linear layer lie in fragments");
  if (weights.order != nullptr && args.k > kMaxGathered && args.x_type == DType::kBF16 &&
      ctx.cuda != nullptr && args.m * args.k * 2 <= ctx.cuda->scratch_bytes()) {
    order_columns(ctx, args.x, args.x_stride, weights.order, args.m, args.k, ctx.cuda->scratch(),
                  args.k);
    args.x = ctx.cuda->scratch(), args.x_stride = args.k;
    weights.order = nullptr;
  }
  for (std::int64_t m = 0; m < args.m; m += at_once) {
    GemmArgs part = args;
    RowsAround around_part = around;
    part.m = std::min(at_once, args.m - m);
    part.x = static_cast<const std::byte*>(args.x) + m * args.x_stride * dtype_size(args.x_type);
    if (args.out != nullptr) part.out = args.out + m * args.out_stride;
    if (around.gated != nullptr) around_part.gated = around.gated + m * around.gated_stride;
    const IntSkinnyPlan plan =
        plan_int_skinny({.m = part.m,
                         .n = part.n,
                         .k = part.k,
                         .bits = fragment_unit(w).bits,
                         .unit_bytes = weights.unit_bytes,
                         .gated = around.gated != nullptr,
                         .num_sms = ctx.cuda == nullptr ? 1 : ctx.cuda->info().num_sms,
                         .sm = sm_of(ctx)});
    check(plan.stages > 0 && part.m <= kMaxStreamedRows,
          "a GEMM of {} rows of {} elements with integer weights does not fit in shared memory",
          part.m, part.k);
    gemm_int_skinny(ctx, part, weights, around_part, plan);
  }
}

// Many rows, in pieces whose reordered copy fits in the second half of the scratch memory.
void tiles(Context& ctx, const GemmArgs& args, const Weight& w) {
  const IntWeights weights = weights_of(w);
  const std::int64_t half = ctx.cuda->scratch_bytes() / 2;
  const bool moves =
      weights.order != nullptr || !rows_aligned(args.x, args.x_stride, dtype_size(args.x_type));
  const std::int64_t at_once =
      moves ? std::max<std::int64_t>(half / (args.k * 2) / kIntTileRows, 1) * kIntTileRows : args.m;
  for (std::int64_t m = 0; m < args.m; m += at_once) {
    GemmArgs part = args;
    part.m = std::min(at_once, args.m - m);
    part.x = static_cast<const std::byte*>(args.x) + m * args.x_stride * dtype_size(args.x_type);
    part.out = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(args.out) +
                                        m * args.out_stride * dtype_size(args.out_type));
    if (moves) {
      void* const ordered = static_cast<std::byte*>(ctx.cuda->scratch()) + half;
      order_columns(ctx, part.x, part.x_stride, weights.order, part.m, part.k, ordered, part.k);
      part.x = ordered;
      part.x_stride = part.k;
    }
    gemm_int_tiles(ctx, part, weights);
  }
}

RowsAround gated_into(const Tensor& out, Activation activation) {
  return {.gated = static_cast<__nv_bfloat16*>(out.data),
          .gated_stride = out.stride[0],
          .gelu = activation == Activation::kGeluTanh};
}
// Whether the kernel of few rows computes act(gate) * up.
bool fuses(const Weight& w, Activation activation, const Tensor& out) {
  return activation <= Activation::kGeluTanh && out.dtype == DType::kBF16 &&
         w.rows / 2 % ops::kFragmentRows == 0;
}

IntKind kind_of(const Weight& w) {
  for (const BlockKind& row : kBlockKinds)
    if (row.format == w.format) return row.kind;
  if (w.format == ops::Format::kFp8) return IntKind::kFp8;
  if (w.format == ops::Format::kMxFp4) return IntKind::kFp4;
  if (w.format == ops::Format::kNvFp4) return IntKind::kNvFp4;
  return fragment_unit(w).bits == 4 ? IntKind::kInt4 : IntKind::kInt8;
}

}  // namespace

IntWeights weights_of(const Weight& w) {
  const ops::FragmentUnit unit = fragment_unit(w);
  return {.of = static_cast<const unsigned char*>(w.data.data),
          .order = w.order.defined() ? w.order.ptr<std::int32_t>() : nullptr,
          .kind = kind_of(w),
          .units = static_cast<int>(ops::fragment_units(w.columns)),
          .unit_bytes = static_cast<int>(unit.bytes()),
          .runs = unit.bytes() > 2048 ? 2 : 1,
          .groups = unit.groups,
          .has_zeros = unit.has_zeros,
          .in_bf16 = w.scale == DType::kBF16};
}

void linear_fragments(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                      const Tensor& out) {
  const GemmArgs args = gemm_args(x, w, bias, out);
  if (args.m == 0 || args.n == 0) return;
  expect_rows(x, w);
  if (const std::int64_t at_once = rows_at_once(ctx, x, w); at_once > 0)
    return skinny(ctx, args, w, {}, at_once);
  if (!linear_widened(ctx, x, w, bias, out)) tiles(ctx, args, w);
}

void embedding_fragments(Context& ctx, const Tensor& ids, const Weight& table, const Tensor& out) {
  if (out.numel() == 0) return;
  const IntWeights weights = weights_of(table);
  check(weights.kind != IntKind::kFp8, "FP8 in fragments is for experts, not for a table");
  check(table.columns % 8 == 0 && table.columns < (std::int64_t{1} << 30),
        "a table of integers [{}, {}]", table.rows, table.columns);
  embed_fragments(ctx, weights, table.rows, table.columns, ids.ptr<std::int32_t>(), ids.dim(0),
                  out.ptr<float>(), out.stride[0]);
}

void linear_add_fragments(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                          const Tensor& branch, const Tensor& sum) {
  GemmArgs args = gemm_args(x, w, bias, sum);
  if (args.m == 0 || args.n == 0) return;
  expect_rows(x, w);
  if (const std::int64_t at_once = rows_at_once(ctx, x, w); at_once > 0)
    return skinny(ctx, args, w, {.add = true}, at_once);
  if (linear_add_widened(ctx, x, w, bias, branch, sum)) return;
  args.add = true;
  tiles(ctx, args, w);
}

void norm_linear_fragments(Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& w,
                           const Tensor& bias, const Tensor& normed, const Tensor& out) {
  const std::int64_t at_once = rows_at_once(ctx, x, w);
  if (at_once > 0 && x.dtype == DType::kF32 && norm.weight.dtype == DType::kF32) {
    expect_rows(x, w);
    return skinny(ctx, gemm_args(x, w, bias, out), w,
                  {.norm = norm.weight.ptr<float>(), .eps = norm.eps}, at_once);
  }
  rms_norm(ctx, x, norm.weight, norm.eps, normed);
  linear_fragments(ctx, normed, w, bias, out);
}

void gate_up_fragments(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                       Activation activation, const Tensor& both, const Weight& /*next*/,
                       const Tensor& out) {
  const std::int64_t at_once = rows_at_once(ctx, x, w, fuses(w, activation, out));
  if (at_once > 0 && fuses(w, activation, out)) {
    expect_rows(x, w);
    GemmArgs args = gemm_args(x, w, bias, {});
    args.n = w.rows / 2;
    return skinny(ctx, args, w, gated_into(out, activation), at_once);
  }
  if (at_once == 0 && gate_up_widened(ctx, x, w, bias, activation, both, out)) return;
  Tensor halves = both;
  // Many rows: the intermediate is as large as all other data together, so it is bfloat16.
  if (at_once == 0 && !bias.defined()) halves.dtype = DType::kBF16;
  linear_fragments(ctx, x, w, bias, halves);
  act_and_mul(ctx, activation, halves, out);
}

void norm_gate_up_fragments(Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& w,
                            const Tensor& bias, Activation activation, const Tensor& normed,
                            const Tensor& both, const Weight& next, const Tensor& out) {
  const std::int64_t at_once = rows_at_once(ctx, x, w, fuses(w, activation, out));
  if (at_once > 0 && fuses(w, activation, out) && x.dtype == DType::kF32 &&
      norm.weight.dtype == DType::kF32) {
    expect_rows(x, w);
    RowsAround around = gated_into(out, activation);
    around.norm = norm.weight.ptr<float>(), around.eps = norm.eps;
    GemmArgs args = gemm_args(x, w, bias, {});
    args.n = w.rows / 2;
    return skinny(ctx, args, w, around, at_once);
  }
  rms_norm(ctx, x, norm.weight, norm.eps, normed);
  gate_up_fragments(ctx, normed, w, bias, activation, both, next, out);
}

}  // namespace sluice::cuda
