#include "models/encoders/encoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/elementwise.h"

namespace sluice {

void Encoder::attend(Context& ctx, const EncoderBatch& batch, const Layer& layer, const Tensor& x,
                     const Tensor& out) const {
  Arena::Scope scope(*ctx.arena);
  const int d = config_.head_dim, heads = config_.num_heads, shared = config_.num_kv_heads;
  const Tensor qkv = ctx.arena->take(DType::kF32, {x.dim(0), layer.qkv.rows()});
  const Tensor mixed = ctx.arena->take(DType::kF32, {x.dim(0), std::int64_t{heads} * d});
  layer.qkv.forward(ctx, x, qkv);
  if (layer.query_norm.defined()) {
    const Tensor all = qkv.reshape({x.dim(0), heads + 2 * shared, d});
    const Tensor queries = all.slice(1, 0, heads), keys = all.slice(1, heads, shared);
    layer.query_norm.forward(ctx, queries, queries);
    layer.key_norm.forward(ctx, keys, keys);
  }
  attend_both_ways(ctx,
                   {.num_heads = heads,
                    .num_kv_heads = shared,
                    .head_dim = d,
                    .scale = static_cast<float>(config_.attention_scale)},
                   batch.starts, qkv, layer.is_local ? local_rotation_ : rotation_,
                   layer.is_local ? config_.window : 0, mixed);
  layer.attention_out.forward(ctx, mixed, out);
}

void Encoder::feed_forward(Context& ctx, const Layer& layer, const Tensor& x,
                           const Tensor& out) const {
  Arena::Scope scope(*ctx.arena);
  const Tensor up = ctx.arena->take(DType::kF32, {x.dim(0), layer.up.rows()});
  const Tensor inner = ctx.arena->take(layer.down.input(), {x.dim(0), config_.intermediate_size});
  layer.up.forward(ctx, x, up);
  if (config_.is_gated())
    ops::act_and_mul(ctx, config_.activation, up, inner);
  else
    ops::activate(ctx, config_.activation, up, inner);
  layer.down.forward(ctx, inner, out);
}

// x := the layer's output.
void Encoder::run_layer(Context& ctx, const EncoderBatch& batch, const Layer& layer,
                        const Tensor& x) const {
  Arena::Scope scope(*ctx.arena);
  const Tensor branch = ctx.arena->take(DType::kF32, {x.dim(0), x.dim(1)});
  if (!config_.has_norms_first()) {
    attend(ctx, batch, layer, x, branch);
    ops::add(ctx, x, branch, x);
    layer.attention_norm.forward(ctx, x, x);
    feed_forward(ctx, layer, x, branch);
    ops::add(ctx, x, branch, x);
    layer.mlp_norm.forward(ctx, x, x);
    return;
  }
  const Tensor normed = ctx.arena->take(DType::kF32, {x.dim(0), x.dim(1)});
  const bool has_norm = layer.attention_norm.defined();  // ModernBERT's first layer has none
  if (has_norm) layer.attention_norm.forward(ctx, x, normed);
  attend(ctx, batch, layer, has_norm ? normed : x, branch);
  if (layer.attention_last.defined()) layer.attention_last.forward(ctx, branch, branch);
  ops::add(ctx, x, branch, x);
  layer.mlp_norm.forward(ctx, x, normed);
  feed_forward(ctx, layer, normed, branch);
  if (layer.mlp_last.defined()) layer.mlp_last.forward(ctx, branch, branch);
  ops::add(ctx, x, branch, x);
}

void Encoder::forward(Context& ctx, const EncoderBatch& batch, const Tensor& states) const {
  check(batch.ids.dim(0) == states.dim(0) && states.dim(1) == config_.hidden_size,
        "{} tokens, {} states", batch.ids.dim(0), states.dim(0));
  {
    Arena::Scope scope(*ctx.arena);
    const Tensor part = ctx.arena->take(DType::kF32, {states.dim(0), states.dim(1)});
    ops::embedding(ctx, batch.ids, words_, states);
    for (const auto& [rows, table] :
         {std::pair{&batch.types, &types_}, {&batch.positions, &positions_}}) {
      if (!table->defined()) continue;
      ops::embedding(ctx, *rows, *table, part);
      ops::add(ctx, states, part, states);
    }
    if (config_.embedding_scale != 1)
      ops::scale(ctx, states, static_cast<float>(config_.embedding_scale), states);
    if (embedding_norm_.defined()) embedding_norm_.forward(ctx, states, states);
  }
  for (const Layer& layer : layers_) run_layer(ctx, batch, layer, states);
  if (final_norm_.defined()) final_norm_.forward(ctx, states, states);
}

namespace {

// out [texts, hidden] := the first row of each text, or the mean of its rows.
void pool_rows(std::span<const std::int32_t> starts, const Tensor& rows, bool is_mean,
               const Tensor& out) {
  const std::int64_t hidden = rows.dim(1);
  for (std::size_t t = 0; t + 1 < starts.size(); ++t) {
    const std::int64_t begin = starts[t], count = starts[t + 1] - begin;
    float* to = out.ptr<float>() + static_cast<std::int64_t>(t) * hidden;
    const float* from = rows.ptr<float>() + begin * hidden;
    if (!is_mean) {
      std::copy_n(from, hidden, to);
      continue;
    }
    for (std::int64_t c = 0; c < hidden; ++c) {
      double sum = 0;
      for (std::int64_t row = 0; row < count; ++row) sum += from[row * hidden + c];
      to[c] = static_cast<float>(sum / static_cast<double>(count));
    }
  }
}

}  // namespace

void Encoder::score(Context& ctx, std::span<const std::int32_t> starts, const Tensor& states,
                    const Tensor& scores) const {
  Arena::Scope scope(*ctx.arena);
  const auto texts = static_cast<std::int64_t>(starts.size()) - 1;
  const std::int64_t hidden = config_.hidden_size;
  const Tensor pooled = ctx.arena->take(DType::kF32, {texts, hidden});
  const Tensor dense = ctx.arena->take(DType::kF32, {texts, hidden});
  if (config_.head == EncoderHead::kLate) {
    // The classifier is linear, so the mean of its scores is its score of the mean.
    const Tensor wide = ctx.arena->take(DType::kF32, {states.dim(0), hidden});
    const Tensor active = ctx.arena->take(DType::kF32, {states.dim(0), hidden});
    head_dense_.forward(ctx, states, wide);
    ops::activate(ctx, config_.head_activation, wide, active);
    if (!ctx.dry_run) pool_rows(starts, active, true, dense);
  } else {
    if (!ctx.dry_run) pool_rows(starts, states, config_.head_pools_mean, pooled);
    head_dense_.forward(ctx, pooled, dense);
  }
  if (config_.head == EncoderHead::kNormed || config_.head == EncoderHead::kPooled) {
    ops::activate(ctx, config_.head_activation, dense, pooled);
    if (head_norm_.defined())
      head_norm_.forward(ctx, pooled, dense);
    else
      ops::scale(ctx, pooled, 1, dense);
  }
  if (ctx.dry_run) return;
  const bool is_tanh = config_.head == EncoderHead::kPooler || config_.head == EncoderHead::kDense;
  const std::int64_t labels = classifier_.dim(0);
  for (std::int64_t t = 0; t < texts; ++t) {
    float* row = dense.ptr<float>() + t * hidden;
    if (is_tanh)
      for (std::int64_t c = 0; c < hidden; ++c) row[c] = std::tanh(row[c]);
    for (std::int64_t label = 0; label < labels; ++label) {
      const float* weight = classifier_.ptr<float>() + label * hidden;
      double sum = classifier_bias_.ptr<float>()[label];
      for (std::int64_t c = 0; c < hidden; ++c) sum += static_cast<double>(weight[c]) * row[c];
      scores.ptr<float>()[t * labels + label] = static_cast<float>(sum);
    }
  }
}

}  // namespace sluice
