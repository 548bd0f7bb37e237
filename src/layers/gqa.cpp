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
  const AxisRange own = weights.share(kv_heads, "key heads");
  const std::int64_t queries = heads / kv_heads * d, group = queries + 2 * d;
  std::vector<WeightPart> parts;
  for (const auto& [offset, rows] :
       {std::pair{std::int64_t{0}, queries}, {queries, d}, {queries + d, d}})
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
  attention.num_kv_heads = weights.share(kv_heads, "key heads").count;
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
  attention.qkv = Linear::load(weights, parts, config.hidden_size, shard, bias);
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

Tensor GqaAttention::mix(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                         const Tensor& cos_sin, const OutputRows& wanted,
                         const SplitProduct& fused) const {
  const std::int64_t k_width = num_kv_heads * head_dim, v_width = num_kv_heads * value_dim;
  const Tensor k = split_heads(fused.others.slice(1, 0, k_width), num_kv_heads);
  const Tensor values = fused.others.slice(1, k_width, v_width);
  const bool queries = !wanted.none(),
             rounds = queries && o.input() == DType::kBF16 && !output_gate;
  const std::int64_t rows = wanted.count(fb.num_tokens);
  const auto result = [&](DType dtype) {
    return ctx.arena->take(dtype, {rows, num_heads * value_dim});
  };
  const Tensor mixed = queries ? result(DType::kF32) : Tensor{},
               rounded = rounds ? result(DType::kBF16) : Tensor{};
  const Tensor q_and_gate = queries ? split_heads(fused.first, num_heads) : Tensor{};
  const Tensor q = queries ? q_and_gate.slice(2, 0, head_dim) : Tensor{};
  if (value_scale != 1) ops::scale(ctx, values, value_scale, values);

  // One op does the common form; other forms take several ops.
  const bool one_step =
      cos_sin.defined() && !norm_after_rope && clip == 0 && q_norm.kind == HeadNormKind::kRms;
  const auto normalise = [&] {
    if (!q_norm.defined()) return;
    if (queries) q_norm.forward(ctx, q);
    k_norm.forward(ctx, k);
  };
  if (!one_step && !norm_after_rope) normalise();
  if (clip > 0) {
    if (queries) ops::clamp(ctx, fused.first, clip, fused.first);
    ops::clamp(ctx, fused.others, clip, fused.others);
  }
  ops::HeadRotation rotation;
  if (cos_sin.defined())
    rotation = {.q_weight = one_step ? q_norm.weight : Tensor{},
                .k_weight = one_step ? k_norm.weight : Tensor{},
                .eps = q_norm.eps,
                .cos_sin = cos_sin,
                .interleaved = rope_interleaved};
  // The attention op rotates, unless another op comes between or queries and keys have different
  // rows.
  if (rotation.defined() && (norm_after_rope || query_scaling || !wanted.all())) {
    const auto rotate = [&](const Tensor& queries_now, const Tensor& keys_now,
                            const Tensor& angles) {
      ops::norm_and_rotate_heads(ctx, queries_now, keys_now, rotation.q_weight, rotation.k_weight,
                                 rotation.eps, angles, rope_interleaved);
    };
    if (wanted.all()) {
      rotate(q, k, cos_sin);
    } else {
      rotate(k.slice(1, 0, 0), k, cos_sin);
      if (queries) rotate(q, q.slice(1, 0, 0), wanted.of(ctx, cos_sin));
    }
    rotation = {};
  }
  if (norm_after_rope) normalise();
  if (query_scaling && queries)
    ops::scale_queries(ctx, wanted.all() ? fb.positions : wanted.positions,
                       static_cast<float>(query_scaling->beta), query_scaling->length,
                       query_scaling->offset, q);

  backend.mha(ctx, fb,
              {.layer = layer,
               .wanted = wanted,
               .q = q,
               .k = k,
               .v = split_heads(values, num_kv_heads),
               .params = params,
               .rotation = rotation,
               .out = queries ? split_heads(mixed, num_heads) : Tensor{},
               .rounded = rounds ? split_heads(rounded, num_heads) : Tensor{}});
  if (output_gate && queries) {
    const Tensor heads = split_heads(mixed, num_heads);
    ops::gated_mul(ctx, ops::Gate::kSigmoid, heads, q_and_gate.slice(2, head_dim, head_dim), heads);
  }
  return rounds ? rounded : mixed;
}

void GqaAttention::forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                           const Tensor& cos_sin, const ops::NormedRows& x,
                           const OutputRows& wanted, ops::Residual& stream) const {
  Arena::Scope scope(*ctx.arena);
  const Tensor mixed =
      mix(ctx, fb, backend, cos_sin, wanted, split_forward(ctx, qkv, x, query_rows(), wanted));
  if (!wanted.none()) o.add(ctx, mixed, stream);
}

}  // namespace sluice
