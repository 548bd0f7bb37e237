// The lightning indexer of DeepSeek sparse attention: which keys a row attends to.
//
// Sources: DeepSeek-V3.2 model code (`Indexer`), transformers DeepseekV32Indexer, GlmMoeDsaIndexer.
#pragma once

#include "attention/backend.h"
#include "config/model_config.h"
#include "layers/linear.h"

namespace sluice {

struct Indexer {
  // Epsilon of the key's LayerNorm. Every published implementation fixes it, whatever rms_norm_eps
  // says.
  static constexpr float kKeyNormEps = 1e-6f;

  Linear wq_b;          // from the normed query latent: [heads * head_dim]
  Linear wk;            // from the layer's input: one key head
  Tensor weights_proj;  // [heads, hidden], applied to float32 inputs: the head weights are float32
  Tensor k_norm_weight, k_norm_bias;  // [head_dim]
  std::int64_t num_heads = 0, head_dim = 0, topk = 0;
  bool rope_interleaved = false;
  // orthonormal, so scores do not change; all keys of a cache must agree on it
  bool hadamard = false;
  int layer = 0;

  // `weights` is self_attn.indexer. Every rank holds all of it and selects the same keys.
  static Indexer load(const Weights& weights, const ModelConfig& config, int layer, bool hadamard);
  // Stores the index keys of all rows: x [T, hidden] f32, cos_sin [T, rope dims] f32.
  void write_keys(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                  const Tensor& cos_sin, const Tensor& x) const;
  // Selects the keys of the query rows (at least one); all keys are stored. cos_sin and x as above
  // but of these rows only, q_latent [query rows, q_lora_rank] f32 (normed), indices [query rows,
  // topk] int32: positions ascending, then -1.
  void select(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
              const Tensor& cos_sin, const Tensor& x, const Tensor& q_latent,
              const Tensor& indices) const;
};

}  // namespace sluice
