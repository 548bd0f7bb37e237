// LFM2's short convolution between two gates: out(c * conv(b * u)), [b | c | u] = in(x).
//
// Source: transformers Lfm2ShortConv.
#pragma once

#include "layers/recurrent.h"

namespace sluice {

struct GatedConv {
  Linear in, out;
  ShortConvolution conv;
  int layer = 0;

  // `weights` is the decoder layer's conv.
  static GatedConv load(const Weights& weights, const ModelConfig& config, int layer) {
    const RecurrentConfig& dims = *config.recurrent;
    const std::int64_t hidden = config.hidden_size;
    GatedConv out;
    out.layer = layer;
    out.in = Linear::load(weights, {{"in_proj", 3 * hidden}}, hidden, Shard::kReplicated,
                          weights.has("in_proj.bias", dims.proj_bias));
    out.conv = ShortConvolution::load(weights, {{"conv", hidden}}, dims.conv_kernel,
                                      weights.has("conv.bias", dims.conv_bias), false);
    out.out = Linear::load(weights, {{"out_proj", hidden}}, hidden, Shard::kReplicated,
                           weights.has("out_proj.bias", dims.proj_bias));
    return out;
  }

  // stream [query rows, hidden] += the convolution of x [T, hidden] f32.
  void forward(Context& ctx, const ForwardBatch& fb, const AttentionBackend& backend,
               const ops::NormedRows& x, ops::Residual& stream) const {
    Arena::Scope scope(*ctx.arena);
    const std::int64_t hidden = in.columns();
    const Tensor fused = ctx.arena->take(DType::kF32, {x.count(), 3 * hidden});
    in.forward(ctx, x, fused);
    const Tensor b = fused.slice(1, 0, hidden), c = fused.slice(1, hidden, hidden),
                 u = fused.slice(1, 2 * hidden, hidden);
    ops::gated_mul(ctx, ops::Gate::kLinear, b, u, u);
    conv.forward(ctx, fb, backend, layer, u, u);
    if (fb.query_rows.none()) return;
    const Tensor own = fb.query_rows.of(ctx, u);
    ops::gated_mul(ctx, ops::Gate::kLinear, fb.query_rows.of(ctx, c), own, own);
    out.add(ctx, own, stream);
  }
};

}  // namespace sluice
