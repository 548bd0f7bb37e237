#include "layers/indexer.h"

#include <cmath>

#include "layers/view.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "ops/indexer.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace sluice {

Indexer Indexer::load(const Weights& weights, const ModelConfig& config, int layer, bool hadamard) {
  const IndexerConfig& own = *config.indexer;
  Indexer indexer;
  indexer.num_heads = own.num_heads;
  indexer.head_dim = own.head_dim;
  indexer.topk = own.topk;
  indexer.rope_interleaved = own.rope_interleaved;
  indexer.hadamard = hadamard;
  indexer.layer = layer;
  indexer.wq_b = Linear::load(weights, {{"wq_b", indexer.num_heads * indexer.head_dim}},
                              config.mla->q_lora_rank, Shard::kReplicated, false);
  indexer.wk = Linear::load(weights, {{"wk", indexer.head_dim}}, config.hidden_size,
                            Shard::kReplicated, false);
  indexer.weights_proj =
      weights.matrix({{"weights_proj", indexer.num_heads}}, config.hidden_size, Shard::kReplicated);
  indexer.k_norm_weight = weights.vector("k_norm.weight", indexer.head_dim, WeightInit::kOnes);
  indexer.k_norm_bias = weights.vector("k_norm.bias", indexer.head_dim, WeightInit::kZeros);
  return indexer;
}

void Indexer::write_keys(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                         const Tensor& cos_sin, const Tensor& x) const {
  Arena::Scope scope(*ctx.arena);
  const Tensor keys = ctx.arena->take(DType::kF32, {x.dim(0), head_dim});
  wk.forward(ctx, x, keys);
  ops::layer_norm(ctx, keys, k_norm_weight, k_norm_bias, kKeyNormEps, keys);
  // In the indexer the rotated part comes first; in the attention heads it comes last.
  ops::rope(ctx, cos_sin, split_heads(keys, 1).slice(2, 0, cos_sin.dim(1)), rope_interleaved);
  if (hadamard) ops::hadamard(ctx, keys);
  backend.write_index_keys(ctx, fb, layer, keys);
}

void Indexer::select(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                     const Tensor& cos_sin, const Tensor& x, const Tensor& q_latent,
                     const Tensor& indices) const {
  Arena::Scope scope(*ctx.arena);
  const std::int64_t rows = x.dim(0);
  const Tensor queries = ctx.arena->take(DType::kF32, {rows, num_heads * head_dim});
  const Tensor weights = ctx.arena->take(DType::kF32, {rows, num_heads});
  const Tensor heads = split_heads(queries, num_heads);
  // If no sequence is longer than topk, every key is selected without reading the queries.
  if (fb.max_seq_len > topk || ctx.dry_run) {
    wq_b.forward(ctx, q_latent, queries);
    ops::rope(ctx, cos_sin, heads.slice(2, 0, cos_sin.dim(1)), rope_interleaved);
    if (hadamard) ops::hadamard(ctx, heads);
    ops::linear(ctx, x, weights_proj, {}, weights);
    const double factor =
        1 / std::sqrt(static_cast<double>(num_heads) * static_cast<double>(head_dim));
    ops::scale(ctx, weights, static_cast<float>(factor), weights);
  }
  backend.select_keys(ctx, fb, layer, heads, weights, indices);
}

}  // namespace sluice
