// Expert MLPs with weights in fragments: the definition, in plain loops over the pairs. Rows of w13
// alternate: eight gate rows, then the eight up rows of the same columns.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/types/int_fragments.h"

namespace sluice::cpu {
namespace {

// act(gate) * up of column n, from the sums of w13's rows.
float inner_of(const Context& ctx, const ExpertParams& params, const float* both, std::int64_t n,
               std::int64_t width, const float* bias, float weight) {
  float gate = both[ops::gate_row_of_fragments(n)], up = both[ops::up_row_of_fragments(n)];
  if (params.weigh_input) gate *= weight, up *= weight;
  if (bias != nullptr) {
    gate += bias[params.interleaved ? 2 * n : n];
    up += bias[params.interleaved ? 2 * n + 1 : width + n];
  }
  if (params.clamp > 0) {
    gate = std::min(gate, params.clamp);
    up = std::clamp(up, -params.clamp, params.clamp);
    return gate / (1 + std::exp(-params.alpha * gate)) * (up + 1);
  }
  float result;
  kernels(ctx).act_and_mul_f32(params.activation, &gate, &up, &result, 1);
  return result;
}

}  // namespace

void fused_experts_fragments(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                             const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                             const MoeWorkspace& workspace, const Tensor& out) {
  const std::int64_t width = w2.columns, hidden = w2.rows;
  const Tensor both = workspace.gate_up.rows(0, 1), inner = workspace.hidden.rows(0, 1),
               down = workspace.down.rows(0, 1);
  for (std::int64_t t = 0; t < x.dim(0); ++t) {
    float* to = row<float>(out, t);
    std::fill_n(to, hidden, 0.0f);
    for (std::int64_t j = 0; j < ids.dim(1); ++j) {
      const std::int32_t expert = row<std::int32_t>(ids, t)[j];
      if (expert == -1) continue;
      check(expert >= 0 && expert < w13.count, "expert {} of {}", expert, w13.count);
      const float weight = row<float>(weights, t)[j];
      linear_fragments(ctx, x.rows(t, 1), w13.at(expert), {}, both);
      const float* bias = params.up_bias.defined() ? row<float>(params.up_bias, expert) : nullptr;
      for (std::int64_t n = 0; n < width; ++n)
        row<BF16>(inner, 0)[n] =
            BF16(inner_of(ctx, params, row<float>(both, 0), n, width, bias, weight));
      linear_fragments(ctx, inner, w2.at(expert), {}, down);
      const float* add =
          params.down_bias.defined() ? row<float>(params.down_bias, expert) : nullptr;
      for (std::int64_t n = 0; n < hidden; ++n)
        to[n] += (params.weigh_input ? 1.0f : weight) *
                 (row<float>(down, 0)[n] + (add == nullptr ? 0.0f : add[n]));
    }
  }
}

}  // namespace sluice::cpu
