// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1), with the indexer of
// sparse models.
//
// Sources: transformers DeepseekV3Attention, GlmMoeDsaAttention. A token leaves [latent | rotated
// k_rope] in the cache.
#pragma once

#include <optional>

#include "attention/backend.h"
#include "config/model_config.h"
#include "layers/indexer.h"
#include "layers/linear.h"
#include "layers/norm.h"

namespace sluice {

// How an MLA model is loaded.
struct MlaOptions {
  bool expandable = false;  // store what multi-head prefill needs: W_UK a second time
  bool index_hadamard = false;
  std::int64_t input_size = 0;  // elements of a row that attention reads; 0: hidden_size
};

struct MlaAttention {
  Linear q_kv_a;     // rows q_a | kv_a; without q_lora: kv_a alone
  RmsNorm q_a_norm;  // undefined without q_lora
  RmsNorm kv_a_norm;
  Linear q_b;          // from the query latent, or from x without q_lora: [heads * (nope + rope)]
  MlaWeights weights;  // kv_b_proj, per head
  Linear o;
  std::optional<Indexer> indexer;  // in layers that own an indexer
  bool sparse = false;         // attends to selected keys, its own selection or an earlier layer's
  std::int64_t num_heads = 0;  // on this rank
  MlaConfig dims;
  float scale = 1;
  bool rope_interleaved = true;
  int layer = 0;

  // `weights` is the decoder layer's self_attn.
  static MlaAttention load(const Weights& weights, const ModelConfig& config, int layer,
                           const MlaOptions& options);
  // stream [query rows, hidden] += attention of x [T, hidden]; cos_sin [T, qk_rope_head_dim] f32,
  // or undefined: nothing rotates. topk_indices [T, topk] int32: written by layers with an indexer
  // (in its first rows, those of queries), read by all sparse ones; undefined in dense models.
  // Where no row has a query, latents and index keys are stored.
  void forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
               const Tensor& cos_sin, const ops::NormedRows& x, const Tensor& topk_indices,
               ops::Residual& stream) const;

 private:
  // Queries of the query rows of x, [query rows, heads, nope + rope], and the keys they attend to.
  // q_latent [query rows, q_lora_rank], undefined without q_lora.
  void prepare_queries(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                       const Tensor& cos_sin, const Tensor& x, const Tensor& q_latent,
                       const Tensor& topk_indices, MlaArgs& args) const;
};

}  // namespace sluice
