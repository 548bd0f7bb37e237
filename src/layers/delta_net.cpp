#include "layers/delta_net.h"

#include <cmath>

#include "layers/view.h"

namespace sluice {
namespace {

constexpr double kL2Eps = 1e-6;  // added to the sum of squares in the norms of q and k

}  // namespace

// Qwen3-Next stores rows by key head: [q | k | its v | its z] and [its b | its a]. Qwen3.5 stores
// them in the order of use.
void DeltaNet::load_gated(const Weights& weights, const ModelConfig& config) {
  const std::int64_t dk = dims.key_head_dim, heads = dims.num_key_heads, all = dims.num_value_heads;
  const std::int64_t v = all / heads * dims.value_head_dim, gates = all / heads;
  if (weights.has("in_proj_qkv.weight", false)) {
    in = Linear::load(weights,
                      {{"in_proj_qkv", 2 * key_width() + value_width()},
                       {"in_proj_z", value_width()},
                       {"in_proj_b", all},
                       {"in_proj_a", all}},
                      config.hidden_size, Shard::kReplicated, false);
  } else {
    std::vector<WeightPart> parts;
    const auto take = [&](std::string_view name, std::int64_t rows, std::int64_t begin,
                          std::int64_t count) {
      for (std::int64_t h = 0; h < heads; ++h)
        parts.push_back({name, count, h * rows + begin, heads * rows});
    };
    const std::int64_t group = 2 * dk + 2 * v;
    take("in_proj_qkvz", group, 0, dk);
    take("in_proj_qkvz", group, dk, dk);
    take("in_proj_qkvz", group, 2 * dk, v);
    take("in_proj_qkvz", group, 2 * dk + v, v);
    take("in_proj_ba", 2 * gates, 0, gates);
    take("in_proj_ba", 2 * gates, gates, gates);
    in = Linear::load(weights, parts, config.hidden_size, Shard::kReplicated, false);
  }
  conv = ShortConvolution::load(weights, {{"conv1d", 2 * key_width() + value_width()}},
                                dims.conv_kernel, false, true);
  rate = load_decay_rates(weights, all, 1, {all});
  bias = weights.vector("dt_bias", all, WeightInit::kOnes);
  norm = RmsNorm::load(weights, "norm", dims.value_head_dim, config.rms_norm_eps);
  out = Linear::load(weights, {{"out_proj", config.hidden_size}}, value_width(), Shard::kReplicated,
                     false);
}

void DeltaNet::load_kimi(const Weights& weights, const ModelConfig& config) {
  const std::int64_t dk = dims.key_head_dim, heads = dims.num_value_heads, width = key_width();
  in = Linear::load(weights,
                    {{"q_proj", width},
                     {"k_proj", width},
                     {"v_proj", width},
                     {"b_proj", heads},
                     {"f_a_proj", dk},
                     {"g_a_proj", dk}},
                    config.hidden_size, Shard::kReplicated, false);
  decay_up = Linear::load(weights, {{"f_b_proj", width}}, dk, Shard::kReplicated, false);
  gate_up = Linear::load(weights, {{"g_b_proj", width}}, dk, Shard::kReplicated, false);
  conv = ShortConvolution::load(weights,
                                {{"q_conv1d", width}, {"k_conv1d", width}, {"v_conv1d", width}},
                                dims.conv_kernel, false, true);
  rate = load_decay_rates(weights, heads, dk, {1, 1, heads, 1});
  bias = weights.vector("dt_bias", width, WeightInit::kZeros);
  norm = RmsNorm::load(weights, "o_norm", dims.value_head_dim, config.rms_norm_eps);
  out = Linear::load(weights, {{"o_proj", config.hidden_size}}, width, Shard::kReplicated, false);
}

DeltaNet DeltaNet::load(const Weights& weights, const ModelConfig& config, int layer) {
  DeltaNet net;
  net.dims = *config.recurrent;
  net.layer = layer;
  const auto dk = static_cast<double>(net.dims.key_head_dim);
  // x / sqrt(sum x^2 + eps) = x / sqrt(mean x^2 + eps / dk) / sqrt(dk); queries are also divided by
  // sqrt(dk).
  net.q_scale = uniform_vector(weights, net.dims.key_head_dim, 1 / dk);
  net.k_scale = uniform_vector(weights, net.dims.key_head_dim, 1 / std::sqrt(dk));
  if (net.dims.kind == RecurrentKind::kKeyDelta)
    net.load_kimi(weights, config);
  else
    net.load_gated(weights, config);
  return net;
}

void DeltaNet::forward(Context& ctx, const ForwardBatch& fb, const AttentionBackend& backend,
                       const ops::NormedRows& x, ops::Residual& stream) const {
  Arena::Scope scope(*ctx.arena);
  const std::int64_t tokens = x.count(), heads = dims.num_value_heads, qkv = conv.channels();
  const bool by_key = dims.kind == RecurrentKind::kKeyDelta;
  const Tensor fused = ctx.arena->take(DType::kF32, {tokens, in.rows()});
  in.forward(ctx, x, fused);
  const Tensor mixed = fused.slice(1, 0, qkv);
  conv.forward(ctx, fb, backend, layer, mixed, mixed);
  const Tensor q = split_heads(mixed.slice(1, 0, key_width()), dims.num_key_heads);
  const Tensor k = split_heads(mixed.slice(1, key_width(), key_width()), dims.num_key_heads);
  const Tensor v = split_heads(mixed.slice(1, 2 * key_width(), value_width()), heads);
  const float eps = static_cast<float>(kL2Eps / dims.key_head_dim);
  ops::rms_norm(ctx, q, q_scale, eps, q);
  ops::rms_norm(ctx, k, k_scale, eps, k);

  const Tensor decay = ctx.arena->take(DType::kF32, {tokens, by_key ? key_width() : heads});
  Tensor beta, steps;
  if (by_key) {
    beta = fused.slice(1, qkv, heads);
    steps = decay;
    decay_up.forward(ctx, fused.slice(1, qkv + heads, dims.key_head_dim), steps);
  } else {
    beta = fused.slice(1, qkv + value_width(), heads);
    steps = fused.slice(1, qkv + value_width() + heads, heads);
  }
  ops::decay_gates(ctx, steps, bias, rate, 0, 0, {}, decay);
  ops::sigmoid(ctx, beta, beta);

  const Tensor read = ctx.arena->take(DType::kF32, {tokens, value_width()});
  ops::recurrent_scan(
      ctx, {.q = q, .k = k, .v = v, .decay = decay, .beta = beta, .skip = {}, .delta = true},
      fb.state_rows, backend.state_plane(layer, kMatrixPlane), split_heads(read, heads));
  if (fb.query_rows.none()) return;
  const Tensor own = fb.query_rows.of(ctx, read), by_head = split_heads(own, heads);
  Tensor gate;
  if (by_key) {
    gate = ctx.arena->take(DType::kF32, {own.dim(0), value_width()});
    gate_up.forward(
        ctx,
        fb.query_rows.of(ctx, fused.slice(1, qkv + heads + dims.key_head_dim, dims.key_head_dim)),
        gate);
  } else {
    gate = fb.query_rows.of(ctx, fused.slice(1, qkv, value_width()));
  }
  norm.forward(ctx, by_head, by_head);
  ops::gated_mul(ctx, by_key ? ops::Gate::kSigmoid : ops::Gate::kSilu, own, gate, own);
  out.add(ctx, own, stream);
}

}  // namespace sluice
