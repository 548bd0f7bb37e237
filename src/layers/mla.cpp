#include "layers/mla.h"

#include <cmath>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "layers/rope.h"
#include "layers/view.h"
#include "ops/rope.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

// Epsilon of q_a_layernorm and kv_a_layernorm. transformers builds them with 1e-6 whatever
// rms_norm_eps says, and so do the reference outputs. Other engines use rms_norm_eps, which is 1e-5
// for GLM. With activations of trained weights the difference is not measurable. With the small
// activations of the fixtures the configured value costs most of the tolerance.
constexpr double kLatentNormEps = 1e-6;

template <class T>
void split_kv_b(const Tensor& kv_b, const MlaWeights& w) {
  const std::int64_t heads = w.w_uv.dim(0), v = w.w_uv.dim(1), latent = w.w_uv.dim(2);
  const std::int64_t nope = w.w_uk_transposed.dim(2);
  const T* in = kv_b.ptr<T>();
  for (std::int64_t h = 0; h < heads; ++h) {
    const T* w_uk = in + h * (nope + v) * latent;
    T* transposed = w.w_uk_transposed.ptr<T>() + h * latent * nope;
    for (std::int64_t i = 0; i < nope; ++i)
      for (std::int64_t j = 0; j < latent; ++j) transposed[j * nope + i] = w_uk[i * latent + j];
    if (w.w_uk.defined())
      std::memcpy(w.w_uk.ptr<T>() + h * nope * latent, w_uk, sizeof(T) * nope * latent);
    std::memcpy(w.w_uv.ptr<T>() + h * v * latent, w_uk + nope * latent, sizeof(T) * v * latent);
  }
}

// Copies the halves of kv_b, a host tensor, to the memory of w on any device.
void put_kv_b(const Tensor& kv_b, const MlaWeights& w) {
  HostImage w_uk_transposed(w.w_uk_transposed), w_uv(w.w_uv);
  std::optional<HostImage> w_uk;
  if (w.w_uk.defined()) w_uk.emplace(w.w_uk);
  const MlaWeights host{.w_uk_transposed = w_uk_transposed.tensor(),
                        .w_uv = w_uv.tensor(),
                        .w_uk = w_uk ? w_uk->tensor() : Tensor{}};
  if (kv_b.dtype == DType::kF32)
    split_kv_b<float>(kv_b, host);
  else if (kv_b.dtype == DType::kBF16)
    split_kv_b<BF16>(kv_b, host);
  else
    split_kv_b<F16>(kv_b, host);
  w_uk_transposed.put();
  w_uv.put();
  if (w_uk) w_uk->put();
}

// kv_b_proj holds, per head, nope rows of W_UK then v rows of W_UV.
MlaWeights load_kv_b(const Weights& weights, const MlaConfig& dims, std::int64_t num_heads,
                     std::int64_t all_heads, bool expandable) {
  const DType dtype = weights.matrix_dtype({"kv_b_proj.weight"});
  const std::int64_t nope = dims.qk_nope_head_dim, v = dims.v_head_dim, latent = dims.kv_lora_rank;
  MlaWeights w;
  w.w_uk_transposed = weights.take(dtype, {num_heads, latent, nope});
  w.w_uv = weights.take(dtype, {num_heads, v, latent});
  if (expandable) w.w_uk = weights.take(dtype, {num_heads, nope, latent});
  // Read whole, then split. Besides the weights, loading needs only the kv_b of one layer.
  weights.read_then("kv_b_proj.weight", dtype, {all_heads * (nope + v), latent},
                    {weights.share(all_heads * (nope + v), "kv_b_proj")},
                    [w](const Tensor& kv_b) { put_kv_b(kv_b, w); });
  return w;
}

}  // namespace

MlaAttention MlaAttention::load(const Weights& weights, const ModelConfig& config, int layer,
                                const MlaOptions& options) {
  const MlaConfig& dims = *config.mla;
  const LayerConfig layer_config = config.layer(layer);
  const std::int64_t heads = config.num_heads, hidden = config.hidden_size, qk = dims.qk_head_dim();
  const std::int64_t kv_a_rows = dims.kv_lora_rank + dims.qk_rope_head_dim;
  const std::int64_t input = options.input_size > 0 ? options.input_size : hidden;
  MlaAttention mla;
  mla.dims = dims;
  mla.layer = layer;
  mla.num_heads = weights.share(heads, "attention heads").count;
  mla.rope_interleaved = config.rope.interleaved;
  mla.scale =
      static_cast<float>(yarn_softmax_factor(config.rope) / std::sqrt(static_cast<double>(qk)));
  const bool a_bias = weights.has("kv_a_proj_with_mqa.bias", config.qkv_bias);
  if (dims.q_lora_rank > 0) {
    mla.q_kv_a =
        Linear::load(weights, {{"q_a_proj", dims.q_lora_rank}, {"kv_a_proj_with_mqa", kv_a_rows}},
                     input, Shard::kReplicated, a_bias);
    mla.q_a_norm = RmsNorm::load(weights, "q_a_layernorm", dims.q_lora_rank, kLatentNormEps);
    mla.q_b =
        Linear::load(weights, {{"q_b_proj", heads * qk}}, dims.q_lora_rank, Shard::kColumn, false);
  } else {
    mla.q_kv_a = Linear::load(weights, {{"kv_a_proj_with_mqa", kv_a_rows}}, input,
                              Shard::kReplicated, a_bias);
    mla.q_b = Linear::load(weights, {{"q_proj", heads * qk}}, input, Shard::kColumn, false);
  }
  mla.kv_a_norm = RmsNorm::load(weights, "kv_a_layernorm", dims.kv_lora_rank, kLatentNormEps);
  mla.weights = load_kv_b(weights, dims, mla.num_heads, heads, options.expandable);
  mla.o = Linear::load(weights, {{"o_proj", hidden}}, heads * dims.v_head_dim, Shard::kRow,
                       weights.has("o_proj.bias", config.o_bias));
  mla.sparse = layer_config.indexer != IndexerRole::kNone;
  if (layer_config.indexer == IndexerRole::kFull) {
    require(dims.q_lora_rank > 0,
            "a sparse model needs q_lora_rank: its indexer reads the query latent");
    mla.indexer = Indexer::load(weights.sub("indexer"), config, layer, options.index_hadamard);
  }
  return mla;
}

void MlaAttention::forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                           const Tensor& cos_sin, const ops::NormedRows& input,
                           const Tensor& topk_indices, ops::Residual& stream) const {
  Arena::Scope scope(*ctx.arena);
  const Tensor x = ops::rows_of(ctx, input, DType::kF32);
  const auto [q_latent, latent] = split_forward(ctx, q_kv_a, fb, x, dims.q_lora_rank);
  MlaArgs args{.layer = layer,
               .q = {},
               .latent = latent.slice(1, 0, dims.kv_lora_rank),
               .k_rope = latent.slice(1, dims.kv_lora_rank, dims.qk_rope_head_dim),
               .weights = &weights,
               .scale = scale,
               .topk_indices = {},
               .out = {}};
  kv_a_norm.forward(ctx, args.latent, args.latent);
  if (cos_sin.defined()) ops::rope(ctx, cos_sin, split_heads(args.k_rope, 1), rope_interleaved);
  check(!sparse || topk_indices.defined(),
        "layer {} attends to chosen keys but was given no place for them", layer);
  if (indexer) indexer->write_keys(ctx, fb, backend, cos_sin, x);
  if (fb.query_rows.none()) return backend.mla(ctx, fb, args);

  prepare_queries(ctx, fb, backend, cos_sin, x, q_latent, topk_indices, args);
  const Tensor mixed =
      ctx.arena->take(DType::kF32, {fb.num_query_rows(), num_heads * dims.v_head_dim});
  args.out = split_heads(mixed, num_heads);
  backend.mla(ctx, fb, args);
  o.add(ctx, mixed, stream);
}

void MlaAttention::prepare_queries(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                                   const Tensor& cos_sin, const Tensor& x, const Tensor& q_latent,
                                   const Tensor& topk_indices, MlaArgs& args) const {
  const OutputRows& rows = fb.query_rows;
  const Tensor own_cos_sin = cos_sin.defined() ? rows.of(ctx, cos_sin) : Tensor{};
  const Tensor own_x = !q_latent.defined() || indexer ? rows.of(ctx, x) : Tensor{};
  if (q_latent.defined()) q_a_norm.forward(ctx, q_latent, q_latent);
  const Tensor queries = ctx.arena->take(DType::kF32, {fb.num_query_rows(), q_b.rows()});
  q_b.forward(ctx, q_latent.defined() ? q_latent : own_x, queries);
  args.q = split_heads(queries, num_heads);
  if (cos_sin.defined())
    ops::rope(ctx, own_cos_sin, args.q.slice(2, dims.qk_nope_head_dim, dims.qk_rope_head_dim),
              rope_interleaved);
  if (indexer) {
    args.topk_indices = topk_indices.rows(0, fb.num_query_rows());
    indexer->select(ctx, fb, backend, own_cos_sin, own_x, q_latent, args.topk_indices);
  } else if (sparse) {
    args.topk_indices = rows.of(ctx, topk_indices);
  }
}

}  // namespace sluice
