#include "layers/gqa.h"

#include <bit>
#include <cmath>

#include "layers/view.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/heads.h"
#include "ops/recurrent.h"

namespace sluice {
namespace {

// The rows q | k | v of this rank, as parts of the stored tensors.
std::vector<WeightPart> qkv_parts(const Weights& weights, const AttentionSpec& spec,
                                  std::int64_t heads, std::int64_t kv_heads, std::int64_t d,
                                  std::int64_t value_dim, Shard& shard) {
  const std::int64_t q = heads * d, kv = kv_heads * d, all = q + 2 * kv;
  check(value_dim == d || spec.layout == QkvLayout::kSeparate,
        "fused keys of {} elements, values of {}", d, value_dim);
  if (kv_heads < weights.tp_size() && spec.layout != QkvLayout::kGroups) {
    // Several ranks have the same KV head, so each rank's rows are selected here.
    shard = Shard::kReplicated;
    const AxisRange own_q = weights.share(heads, "attention heads"),
                    own_kv = share_heads(weights, kv_heads, "key heads");
    const bool separate = spec.layout == QkvLayout::kSeparate;
    const std::int64_t q_width = separate && spec.output_gate ? 2 * d : d;
    const auto part = [&](std::string_view name, std::int64_t width, AxisRange own,
                          std::int64_t first, std::int64_t rows) {
      return WeightPart{.name = separate ? name : spec.qkv,
                        .rows = own.count * width,
                        .first_row = (separate ? 0 : first) + own.begin * width,
                        .total_rows = separate ? rows : all,
                        .transposed = spec.transposed};
    };
    return {part(spec.q, q_width, own_q, 0, heads * q_width), part(spec.k, d, own_kv, q, kv),
            part(spec.v, value_dim, own_kv, q + kv, kv_heads * value_dim)};
  }
  shard = Shard::kColumn;
  switch (spec.layout) {
    case QkvLayout::kSeparate:
      return {{.name = spec.q, .rows = spec.output_gate ? 2 * q : q, .transposed = spec.transposed},
              {.name = spec.k, .rows = kv, .transposed = spec.transposed},
              {.name = spec.v, .rows = kv_heads * value_dim, .transposed = spec.transposed}};
    case QkvLayout::kRows:
      return {{spec.qkv, q, 0, all, spec.transposed},
              {spec.qkv, kv, q, all, spec.transposed},
              {spec.qkv, kv, q + kv, all, spec.transposed}};
    case QkvLayout::kGroups:
      break;
  }
  // Whole KV heads go to a rank, so its rows are selected here.
  shard = Shard::kReplicated;
  const AxisRange own = share_heads(weights, kv_heads, "key heads");
  const std::int64_t queries = heads / kv_heads * d, group = queries + 2 * d;
  // Of the queries of its one KV head, a rank may have a part.
  const std::int64_t own_queries = weights.share(heads, "attention heads").count / own.count * d;
  const std::int64_t first_query =
      weights.share(heads, "attention heads").begin * d % (own.count > 1 ? 1 : queries);
  std::vector<WeightPart> parts;
  for (const auto& [offset, rows] :
       {std::pair{first_query, own_queries}, {queries, d}, {queries + d, d}})
    for (std::int64_t head = own.begin; head < own.begin + own.count; ++head)
      parts.push_back({spec.qkv, rows, head * group + offset, all, spec.transposed});
  return parts;
}

}  // namespace

std::vector<float> alibi_slopes(std::int64_t heads) {
  const auto whole = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<float> slopes;
  for (std::int64_t j = 0; j < heads; ++j) {
    // Heads beyond a power of two take every second slope of the next power of two.
    const double power = j < whole ? -8.0 * static_cast<double>(j + 1)
                                   : -4.0 * static_cast<double>(2 * (j - whole) + 1);
    slopes.push_back(static_cast<float>(std::exp2(power / static_cast<double>(whole))));
  }
  return slopes;
}

GqaAttention GqaAttention::load(const Weights& weights, const ModelConfig& config, int layer,
                                const AttentionSpec& spec) {
  const std::int64_t d = config.head_dim, heads = config.num_heads,
                     kv_heads = config.kv_heads_of(layer);
  const LayerConfig layer_config = config.layer(layer);
  GqaAttention attention;
  attention.num_heads = weights.share(heads, "attention heads").count;
  attention.num_kv_heads = share_heads(weights, kv_heads, "key heads").count;
  attention.head_dim = d;
  attention.value_dim = config.value_dim();
  attention.value_scale = static_cast<float>(config.value_scale);
  attention.params.window = layer_config.window;
  attention.params.chunk = layer_config.chunk;
  attention.rope_interleaved = config.rope.interleaved;
  attention.layer = layer;
  attention.params.scale = static_cast<float>(
      config.attention_scale > 0 ? config.attention_scale : 1 / std::sqrt(static_cast<double>(d)));
  attention.clip = static_cast<float>(config.clip_qkv);
  if (config.query_scaling &&
      (!config.query_scaling->unrotated_only || layer_config.rope == LayerRope::kNone))
    attention.query_scaling = config.query_scaling;
  attention.params.softcap = static_cast<float>(config.attention_softcap);
  if (config.positions == PositionKind::kAlibi) {
    const std::vector<float> slopes = alibi_slopes(heads);
    const AxisRange own = weights.share(heads, "attention heads");
    attention.params.slopes =
        weights.constant({slopes.begin() + own.begin, slopes.begin() + own.begin + own.count});
  }
  if (layer_config.sinks) {
    const AxisRange own = weights.share(heads, "attention heads");
    attention.params.sinks = weights.take(DType::kF32, {own.count});
    weights.fill(attention.params.sinks, spec.sinks, {heads}, {own});
  }

  attention.output_gate = spec.output_gate;
  check(!spec.output_gate || spec.layout == QkvLayout::kSeparate,
        "gates of heads are stored with separate queries");
  Shard shard{};
  const std::vector<WeightPart> parts =
      qkv_parts(weights, spec, heads, kv_heads, d, attention.value_dim, shard);
  const bool bias = weights.has(std::string(parts.front().name) + ".bias", config.qkv_bias);
  const std::int64_t input = spec.input_size > 0 ? spec.input_size : config.hidden_size;
  attention.qkv = Linear::load(weights, parts, input, shard, bias);
  const WeightPart out{.name = spec.o, .rows = config.hidden_size, .transposed = spec.transposed};
  attention.o = Linear::load(weights, {out}, heads * attention.value_dim, Shard::kRow,
                             weights.has(std::string(spec.o) + ".bias", config.o_bias));
  // Families with head norms require them: a file without them is an error, not another model.
  const bool wanted = config.qk_norm && (spec.head_norm.kind != HeadNormKind::kUnit ||
                                         layer_config.rope != LayerRope::kNone);
  if (wanted || weights.has(std::string(spec.head_norm.q) + ".weight", false)) {
    attention.norm_after_rope = spec.head_norm.after_rope;
    attention.q_norm =
        HeadNorm::load(weights, spec.head_norm.q, spec.head_norm, heads, d, config.rms_norm_eps);
    attention.k_norm =
        HeadNorm::load(weights, spec.head_norm.k, spec.head_norm, kv_heads, d, config.rms_norm_eps);
  }
  return attention;
}

void GqaAttention::forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                           const Tensor& cos_sin, const ops::NormedRows& x,
                           ops::Residual& stream) const {
  Arena::Scope scope(*ctx.arena);
  const Heads heads = prepare_heads(ctx, fb, cos_sin, x);
  const Tensor mixed = attend(ctx, fb, backend, heads);
  if (mixed.defined()) gate_and_project(ctx, heads, mixed, stream);
}

GqaAttention::Heads GqaAttention::prepare_heads(Context& ctx, const ForwardBatch& fb,
                                                const Tensor& cos_sin,
                                                const ops::NormedRows& x) const {
  const std::int64_t k_width = num_kv_heads * head_dim, v_width = num_kv_heads * value_dim;
  const auto [queries, rest] =
      split_forward(ctx, qkv, fb, x, (output_gate ? 2 : 1) * num_heads * head_dim);
  Heads heads{.q = {},
              .gate = {},
              .k = split_heads(rest.slice(1, 0, k_width), num_kv_heads),
              .v = split_heads(rest.slice(1, k_width, v_width), num_kv_heads),
              .rotation = {}};
  if (queries.defined()) {
    const Tensor q_and_gate = split_heads(queries, num_heads);
    heads.q = q_and_gate.slice(2, 0, head_dim);
    if (output_gate) heads.gate = q_and_gate.slice(2, head_dim, head_dim);
  }
  const Tensor values = rest.slice(1, k_width, v_width);
  if (value_scale != 1) ops::scale(ctx, values, value_scale, values);

  // One operation norms and rotates in the common order.
  const bool norm_in_rotation =
      cos_sin.defined() && !norm_after_rope && clip == 0 && q_norm.kind == HeadNormKind::kRms;
  if (!norm_in_rotation && !norm_after_rope) normalise(ctx, heads);
  if (clip > 0) {
    if (queries.defined()) ops::clamp(ctx, queries, clip, queries);
    ops::clamp(ctx, rest, clip, rest);
  }
  if (cos_sin.defined()) {
    const ops::HeadRotation rotation{.q_weight = norm_in_rotation ? q_norm.weight : Tensor{},
                                     .k_weight = norm_in_rotation ? k_norm.weight : Tensor{},
                                     .eps = q_norm.eps,
                                     .cos_sin = cos_sin,
                                     .interleaved = rope_interleaved};
    // Attention does it, unless something comes between or queries have other rows than keys.
    if (norm_after_rope || query_scaling || !fb.query_rows.all())
      rotate(ctx, fb, rotation, heads);
    else
      heads.rotation = rotation;
  }
  if (norm_after_rope) normalise(ctx, heads);
  if (query_scaling && heads.q.defined())
    ops::scale_queries(ctx, fb.query_rows.all() ? fb.positions : fb.query_rows.positions,
                       static_cast<float>(query_scaling->beta), query_scaling->length,
                       query_scaling->offset, heads.q);
  return heads;
}

Tensor GqaAttention::attend(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                            const Heads& heads) const {
  const bool queries = heads.q.defined();
  const bool rounds = queries && o.input() == DType::kBF16 && !output_gate;
  const auto result = [&](DType dtype) {
    return ctx.arena->take(dtype, {fb.num_query_rows(), num_heads * value_dim});
  };
  const Tensor mixed = queries ? result(DType::kF32) : Tensor{},
               rounded = rounds ? result(DType::kBF16) : Tensor{};
  backend.mha(ctx, fb,
              {.layer = layer,
               .q = heads.q,
               .k = heads.k,
               .v = heads.v,
               .params = params,
               .rotation = heads.rotation,
               .out = queries ? split_heads(mixed, num_heads) : Tensor{},
               .rounded = rounds ? split_heads(rounded, num_heads) : Tensor{}});
  return rounds ? rounded : mixed;
}

void GqaAttention::gate_and_project(Context& ctx, const Heads& heads, const Tensor& mixed,
                                    ops::Residual& stream) const {
  if (heads.gate.defined()) {
    const Tensor by_head = split_heads(mixed, num_heads);
    ops::gated_mul(ctx, ops::Gate::kSigmoid, by_head, heads.gate, by_head);
  }
  o.add(ctx, mixed, stream);
}

void GqaAttention::normalise(Context& ctx, const Heads& heads) const {
  if (!q_norm.defined()) return;
  if (heads.q.defined()) q_norm.forward(ctx, heads.q);
  k_norm.forward(ctx, heads.k);
}

void GqaAttention::rotate(Context& ctx, const ForwardBatch& fb, const ops::HeadRotation& rotation,
                          const Heads& heads) const {
  const auto apply = [&](const Tensor& q, const Tensor& k, const Tensor& cos_sin) {
    ops::norm_and_rotate_heads(ctx, q, k, rotation.q_weight, rotation.k_weight, rotation.eps,
                               cos_sin, rotation.interleaved);
  };
  if (fb.query_rows.all()) return apply(heads.q, heads.k, rotation.cos_sin);
  apply(heads.k.slice(1, 0, 0), heads.k, rotation.cos_sin);
  if (heads.q.defined())
    apply(heads.q, heads.q.slice(1, 0, 0), fb.query_rows.of(ctx, rotation.cos_sin));
}

}  // namespace sluice
