// Grouped-query attention. Data describes how queries, keys and values are stored, normalised,
// rotated and scored.
//
// Sources: transformers LlamaAttention, Qwen2Attention, Qwen3Attention; Gemma2Attention (soft cap),
// Olmo2Attention (norms of whole rows), CohereAttention (LayerNorm of heads), BloomAttention
// (ALiBi, rows by head), FalconAttention (rows by key head), GPT2Attention (transposed weights),
// Ministral3Attention (scaled queries), GptOssAttention (sinks), Llama4TextAttention (chunks, norms
// after the rotation), MiMoV2FlashAttention (values of another width).
#pragma once

#include "attention/backend.h"
#include "config/model_config.h"
#include "layers/head_norm.h"
#include "layers/kv_scales.h"
#include "layers/linear.h"

namespace sluice {

enum class QkvLayout {
  kSeparate,  // three tensors
  kRows,      // one: all rows of q, then k, then v
  kGroups,    // one: for each KV head the rows of its query heads, of its key, of its value
};

// Where a family keeps the parts of attention, below its own name, and how they are used.
struct AttentionSpec {
  QkvLayout layout = QkvLayout::kSeparate;
  bool transposed = false;  // weights are stored [in, out]
  std::string_view q = "q_proj", k = "k_proj", v = "v_proj";
  std::string_view qkv = "qkv_proj";  // if one tensor holds all of them
  std::string_view o = "o_proj";
  std::string_view sinks = "sinks";  // [heads], in layers that have them
  HeadNormSpec head_norm = {};
  std::int64_t input_size = 0;  // elements of x; 0: hidden_size
  // q has 2 d rows per head: first the query, then a gate of the head's output
  bool output_gate = false;
};

struct GqaAttention {
  Linear qkv;  // rows q | k | v
  Linear o;
  HeadNorm q_norm, k_norm;  // undefined where the model has none
  bool norm_after_rope = false;
  bool output_gate = false;  // each head's query in q is followed by its gate
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;  // on this rank
  std::int64_t value_dim = 0;
  ops::AttentionParams params;
  KvScales kv_scales;
  float clip = 0;  // q, k and v are clamped to [-clip, clip]; 0: no clamp
  std::optional<QueryScaling> query_scaling;
  float value_scale = 1;
  bool rope_interleaved = false;
  int layer = 0;

  // `weights` is the decoder layer's self_attn.
  static GqaAttention load(const Weights& weights, const ModelConfig& config, int layer,
                           const AttentionSpec& spec = {});
  // stream [query rows, hidden] += attention of x [T, hidden]; cos_sin [T, rotary_dim] f32, or
  // undefined: nothing rotates. Where no row has a query, keys and values are stored.
  void forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
               const Tensor& cos_sin, const ops::NormedRows& x, ops::Residual& stream) const;

 private:
  // The inputs of attention, f32.
  struct Heads {
    Tensor q;     // [query rows, heads, d]; undefined without query rows
    Tensor gate;  // [query rows, heads, d], of the output; undefined without output_gate
    Tensor k, v;  // [T, kv heads, d], [T, kv heads, dv]
    ops::HeadRotation rotation;  // rotation that attention does
  };
  // Projection, norm, clip, rotation and scale, in the order of the model family.
  Heads prepare_heads(Context& ctx, const ForwardBatch& fb, const Tensor& cos_sin,
                      const ops::NormedRows& x) const;
  // softmax(q k^T) v, [query rows, heads * dv] in the type that o reads. Stores keys and values.
  Tensor attend(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                const Heads& heads) const;
  void gate_and_project(Context& ctx, const Heads& heads, const Tensor& mixed,
                        ops::Residual& stream) const;

  void normalise(Context& ctx, const Heads& heads) const;
  void rotate(Context& ctx, const ForwardBatch& fb, const ops::HeadRotation& rotation,
              const Heads& heads) const;
};

// The ALiBi slopes of `heads` heads (arXiv 2108.12409; transformers build_alibi_tensor).
std::vector<float> alibi_slopes(std::int64_t heads);

}  // namespace sluice
