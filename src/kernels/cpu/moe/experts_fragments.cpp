// Expert MLPs with weights in fragments, expert by expert, with all rows that chose it. Rows of w13
// alternate: eight gate rows, then the eight up rows of the same columns. The results of a token
// are added in the order of its choices, so its bits do not depend on other tokens.
#include <algorithm>
#include <cmath>
#include <vector>

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

// Rows of x that chose an expert, side by side.
Tensor gathered(const Tensor& x, const std::vector<std::int64_t>& tokens,
                std::vector<std::byte>& memory) {
  const std::int64_t bytes = x.dim(1) * dtype_size(x.dtype);
  memory.resize(tokens.size() * static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    std::copy_n(row_bytes(x, tokens[i]), bytes,
                memory.data() + i * static_cast<std::size_t>(bytes));
  return Tensor::dense(memory.data(), x.dtype,
                       {static_cast<std::int64_t>(tokens.size()), x.dim(1)});
}

// The (token, choice) pairs of an expert, whose results lie together from row `first` on.
struct Chosen {
  std::vector<std::int64_t> tokens;
  std::vector<float> weights;
  std::int64_t first = 0;
};

}  // namespace

void fused_experts_fragments(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                             const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                             const MoeWorkspace& workspace, const Tensor& out) {
  const std::int64_t width = w2.columns, hidden = w2.rows, top_k = ids.dim(1);
  const std::int64_t block = workspace.gate_up.dim(0) / top_k;
  std::vector<std::byte> memory;
  for (std::int64_t first = 0; first < x.dim(0); first += block) {
    const std::int64_t tokens = std::min(block, x.dim(0) - first);
    std::vector<Chosen> experts(static_cast<std::size_t>(w13.count));
    std::vector<std::int64_t> place(static_cast<std::size_t>(tokens * top_k), -1);  // in its expert
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t j = 0; j < top_k; ++j) {
        const std::int32_t expert = row<std::int32_t>(ids, first + t)[j];
        if (expert == -1) continue;
        check(expert >= 0 && expert < w13.count, "expert {} of {}", expert, w13.count);
        Chosen& chosen = experts[static_cast<std::size_t>(expert)];
        place[static_cast<std::size_t>(t * top_k + j)] =
            static_cast<std::int64_t>(chosen.tokens.size());
        chosen.tokens.push_back(first + t);
        chosen.weights.push_back(row<float>(weights, first + t)[j]);
      }
    std::int64_t pairs = 0;
    for (std::int64_t e = 0; e < w13.count; ++e) {
      Chosen& chosen = experts[static_cast<std::size_t>(e)];
      const auto count = static_cast<std::int64_t>(chosen.tokens.size());
      chosen.first = pairs;
      if (count == 0) continue;
      const Tensor both = workspace.gate_up.rows(pairs, count),
                   inner = workspace.hidden.rows(pairs, count);
      linear_fragments(ctx, gathered(x, chosen.tokens, memory), w13.at(e), {}, both);
      const float* bias = params.up_bias.defined() ? row<float>(params.up_bias, e) : nullptr;
      parallel(ctx, count, 16 * width, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          for (std::int64_t n = 0; n < width; ++n)
            row<BF16>(inner, i)[n] = BF16(inner_of(ctx, params, row<float>(both, i), n, width, bias,
                                                   chosen.weights[static_cast<std::size_t>(i)]));
      });
      linear_fragments(ctx, inner, w2.at(e), {}, workspace.down.rows(pairs, count));
      pairs += count;
    }
    parallel(ctx, tokens, top_k * hidden, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        float* to = row<float>(out, first + t);
        std::fill_n(to, hidden, 0.0f);
        for (std::int64_t j = 0; j < top_k; ++j) {
          const std::int64_t at = place[static_cast<std::size_t>(t * top_k + j)];
          if (at < 0) continue;
          const std::int32_t expert = row<std::int32_t>(ids, first + t)[j];
          const Chosen& chosen = experts[static_cast<std::size_t>(expert)];
          const float* down = row<float>(workspace.down, chosen.first + at);
          const float* add =
              params.down_bias.defined() ? row<float>(params.down_bias, expert) : nullptr;
          const float weight =
              params.weigh_input ? 1.0f : chosen.weights[static_cast<std::size_t>(at)];
          for (std::int64_t n = 0; n < hidden; ++n)
            to[n] += weight * (down[n] + (add == nullptr ? 0.0f : add[n]));
        }
      }
    });
  }
}

}  // namespace sluice::cpu
