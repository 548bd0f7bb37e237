// Expert MLPs with weights in fragments (kernels/types/int_fragments.h): few tokens stream the
// weights of each selected expert, others take tiles of Hopper.
#include "base/error.h"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/session.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/moe/experts_fragments.h"
#include "kernels/types/int_fragments.h"

namespace sluice::cuda {
namespace {

FragmentExperts shape_of(const Weight& w13, const Weight& w2) {
  check(!w13.order.defined() && !w2.order.defined(), "experts with an order of columns");
  return {.experts = w2.count,
          .hidden = w2.rows,
          .width = w2.columns,
          .w13_bytes = fragment_bytes(w13),
          .w2_bytes = fragment_bytes(w2)};
}

FragmentExpertsPlan plan_of(const Context& ctx, const Tensor& x, const Tensor& ids,
                            const FragmentExperts& shape, const Weight& w13, const Weight& w2) {
  const auto units = [](const Weight& w) {
    const ops::FragmentUnit unit = fragment_unit(w);
    return FragmentExpertsInputs::Units{unit.bits, unit.bytes()};
  };
  return plan_fragment_experts({.tokens = x.dim(0),
                                .top_k = ids.dim(1),
                                .experts = shape.experts,
                                .hidden = shape.hidden,
                                .width = shape.width,
                                .up = units(w13),
                                .down = units(w2),
                                .num_sms = ctx.cuda->info().num_sms,
                                .sm = ctx.cuda->info().sm});
}

// Whether the kernels of few tokens compute it: with --deterministic the choice must not depend on
// the tokens.
bool streams(const Context& ctx, const Tensor& x, const ExpertParams& params,
             const MoeWorkspace& workspace) {
  return !ctx.deterministic && !params.weigh_input &&
         (params.clamp > 0 || params.activation <= Activation::kGeluTanh) && rows_aligned(x) &&
         rows_aligned(workspace.hidden);
}

}  // namespace

void fused_experts_fragments(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                             const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                             const MoeWorkspace& workspace, const Tensor& out) {
  if (x.dim(0) == 0) return;
  const FragmentExperts shape = shape_of(w13, w2);
  check(ctx.cuda != nullptr && ctx.cuda->info().sm == 90, "experts in fragments need Hopper");
  if (streams(ctx, x, params, workspace)) {
    const FragmentExpertsPlan plan = plan_of(ctx, x, ids, shape, w13, w2);
    if (plan.gate_blocks > 0)
      return pipeline_experts_fragments(ctx, x, weights_of(w13), weights_of(w2), shape, weights,
                                        ids, params, workspace.hidden, out, false, plan);
  }
  tile_experts_fragments(ctx, x, weights_of(w13), weights_of(w2), shape, weights, ids, params,
                         workspace, out);
}

void experts_add_fragments(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                           const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                           const MoeWorkspace& workspace, const Tensor& branch, const Tensor& sum) {
  if (x.dim(0) == 0) return;
  const FragmentExperts shape = shape_of(w13, w2);
  if (streams(ctx, x, params, workspace)) {
    const FragmentExpertsPlan plan = plan_of(ctx, x, ids, shape, w13, w2);
    if (plan.gate_blocks > 0)
      return pipeline_experts_fragments(ctx, x, weights_of(w13), weights_of(w2), shape, weights,
                                        ids, params, workspace.hidden, sum, true, plan);
  }
  fused_experts_fragments(ctx, x, w13, w2, weights, ids, params, workspace, branch);
  add(ctx, sum, branch, sum);
}

}  // namespace sluice::cuda
