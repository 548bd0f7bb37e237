#include "layers/mamba2.h"

#include "layers/view.h"

namespace sluice {

Mamba2 Mamba2::load(const Weights& weights, const ModelConfig& config, int layer) {
  Mamba2 mixer;
  mixer.dims = *config.recurrent;
  mixer.layer = layer;
  const RecurrentConfig& dims = mixer.dims;
  const std::int64_t heads = dims.num_value_heads, groups = dims.num_key_heads;
  const std::int64_t inner = heads * dims.value_head_dim,
                     channels = inner + 2 * groups * dims.key_head_dim;
  mixer.in = Linear::load(weights, {{"in_proj", inner + channels + heads}}, config.hidden_size,
                          Shard::kReplicated, weights.has("in_proj.bias", dims.proj_bias));
  mixer.conv = ShortConvolution::load(weights, {{"conv1d", channels}}, dims.conv_kernel,
                                      weights.has("conv1d.bias", dims.conv_bias), true);
  mixer.rate = load_decay_rates(weights, heads, 1, {heads});
  mixer.bias = weights.vector("dt_bias", heads, WeightInit::kOnes);
  mixer.skip = weights.vector("D", heads, WeightInit::kOnes);
  const RmsNorm norm = RmsNorm::load(weights, "norm", inner, config.rms_norm_eps);
  for (std::int64_t g = 0; g < groups; ++g)
    mixer.norms.push_back({norm.weight.slice(0, g * (inner / groups), inner / groups), norm.eps});
  mixer.out = Linear::load(weights, {{"out_proj", config.hidden_size}}, inner, Shard::kReplicated,
                           weights.has("out_proj.bias", dims.proj_bias));
  return mixer;
}

void Mamba2::forward(Context& ctx, const ForwardBatch& fb, const AttentionBackend& backend,
                     const ops::NormedRows& x, ops::Residual& stream) const {
  Arena::Scope scope(*ctx.arena);
  const std::int64_t tokens = x.count(), heads = dims.num_value_heads, groups = dims.num_key_heads;
  const std::int64_t inner = heads * dims.value_head_dim, keys = groups * dims.key_head_dim;
  const Tensor fused = ctx.arena->take(DType::kF32, {tokens, in.rows()});
  in.forward(ctx, x, fused);
  const Tensor mixed = fused.slice(1, inner, conv.channels());
  conv.forward(ctx, fb, backend, layer, mixed, mixed);

  const Tensor step = fused.slice(1, inner + conv.channels(), heads);
  const Tensor decay = ctx.arena->take(DType::kF32, {tokens, heads});
  ops::decay_gates(ctx, step, bias, rate, static_cast<float>(dims.min_step),
                   static_cast<float>(dims.max_step), step, decay);
  const Tensor read = ctx.arena->take(DType::kF32, {tokens, inner});
  ops::recurrent_scan(ctx,
                      {.q = split_heads(mixed.slice(1, inner + keys, keys), groups),
                       .k = split_heads(mixed.slice(1, inner, keys), groups),
                       .v = split_heads(mixed.slice(1, 0, inner), heads),
                       .decay = decay,
                       .beta = step,
                       .skip = skip,
                       .delta = false},
                      fb.state_rows, backend.state_plane(layer, kMatrixPlane),
                      split_heads(read, heads));
  if (fb.query_rows.none()) return;
  const Tensor own = fb.query_rows.of(ctx, read),
               gate = fb.query_rows.of(ctx, fused.slice(1, 0, inner));
  ops::gated_mul(ctx, ops::Gate::kSilu, own, gate, own);
  for (std::int64_t g = 0; g < groups; ++g) {
    const Tensor part = own.slice(1, g * (inner / groups), inner / groups);
    norms[static_cast<std::size_t>(g)].forward(ctx, part, part);
  }
  out.add(ctx, own, stream);
}

}  // namespace sluice
