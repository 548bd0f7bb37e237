// Grouped-query attention of the Llama-like families: biases, norms of query and key heads, and windows as
// the checkpoint and its configuration have them.
//
// Sources: transformers LlamaAttention, Qwen2Attention, Qwen3Attention.
#pragma once

#include "attention/backend.h"
#include "hub/model_config.h"
#include "layers/linear.h"
#include "layers/norm.h"

namespace sluice {

struct GqaAttention {
  Linear qkv;  // rows q | k | v
  Linear o;
  RmsNorm q_norm, k_norm;  // over each head, before the rotation; undefined where the model has none
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;  // of this rank
  std::int64_t window = 0;
  bool rope_interleaved = false;
  int layer = 0;

  // `weights` is the decoder layer's self_attn.
  static GqaAttention load(const Weights& weights, const ModelConfig& config, int layer);
  // x [T, hidden] f32 or in the type of qkv.input, out [T, hidden] f32, not overlapping; cos_sin [T, rotary_dim] f32.
  void forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend, const Tensor& cos_sin,
               const Tensor& x, const Tensor& out) const;
};

}  // namespace sluice
