#include "layers/gqa.h"

#include <cmath>

#include "layers/view.h"
#include "ops/heads.h"

namespace sluice {

GqaAttention GqaAttention::load(const Weights& weights, const ModelConfig& config, int layer) {
  const std::int64_t d = config.head_dim, heads = config.num_heads, kv_heads = config.num_kv_heads;
  GqaAttention attention;
  attention.num_heads = weights.share(heads, "attention heads").count;
  attention.num_kv_heads = weights.share(kv_heads, "key heads").count;
  attention.head_dim = d;
  attention.window = config.layer(layer).window;
  attention.rope_interleaved = config.rope.interleaved;
  attention.layer = layer;
  attention.qkv =
      Linear::load(weights, {{"q_proj", heads * d}, {"k_proj", kv_heads * d}, {"v_proj", kv_heads * d}},
                   config.hidden_size, Shard::kColumn, weights.has("q_proj.bias", config.qkv_bias));
  attention.o = Linear::load(weights, {{"o_proj", config.hidden_size}}, heads * d, Shard::kRow,
                             weights.has("o_proj.bias", config.o_bias));
  // A family that is defined with head norms must have them: a file without is an error, not another model.
  if (config.qk_norm || weights.has("q_norm.weight", false)) {
    attention.q_norm = RmsNorm::load(weights, "q_norm", d, config.rms_norm_eps);
    attention.k_norm = RmsNorm::load(weights, "k_norm", d, config.rms_norm_eps);
  }
  return attention;
}

void GqaAttention::forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                           const Tensor& cos_sin, const Tensor& x, const Tensor& out) const {
  Arena::Scope scope(*ctx.arena);
  const std::int64_t tokens = x.dim(0), q_width = num_heads * head_dim, kv_width = num_kv_heads * head_dim;
  const Tensor fused = ctx.arena->take(DType::kF32, {tokens, qkv.rows()});
  const Tensor mixed = ctx.arena->take(DType::kF32, {tokens, q_width});
  qkv.forward(ctx, x, fused);
  const Tensor q = split_heads(fused.slice(1, 0, q_width), num_heads);
  const Tensor k = split_heads(fused.slice(1, q_width, kv_width), num_kv_heads);
  const Tensor v = split_heads(fused.slice(1, q_width + kv_width, kv_width), num_kv_heads);
  ops::norm_and_rotate_heads(ctx, q, k, q_norm.weight, k_norm.weight, q_norm.eps, cos_sin, rope_interleaved);
  backend.mha(ctx, fb,
              {.layer = layer,
               .q = q,
               .k = k,
               .v = v,
               .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim))),
               .window = window,
               .out = split_heads(mixed, num_heads)});
  o.forward(ctx, mixed, out);
}

}  // namespace sluice
