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
  float clip = 0;  // q, k and v are clamped to [-clip, clip]; 0: no clamp
  std::optional<QueryScaling> query_scaling;
  float value_scale = 1;
  bool rope_interleaved = false;
  int layer = 0;

  // `weights` is the decoder layer's self_attn.
  static GqaAttention load(const Weights& weights, const ModelConfig& config, int layer,
                           const AttentionSpec& spec = {});
  // stream [wanted, hidden] += attention of x [T, hidden]; cos_sin [T, rotary_dim] f32, or
  // undefined: nothing rotates. Where no row is wanted, keys and values are stored.
  void forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
               const Tensor& cos_sin, const ops::NormedRows& x, const OutputRows& wanted,
               ops::Residual& stream) const;

  // Columns of qkv's output that hold queries and their gates.
  std::int64_t query_rows() const { return (output_gate ? 2 : 1) * num_heads * head_dim; }
  // From the output rows of q, and k | v of all rows, to the attention output: [output rows, heads
  // * value_dim] in the type that o reads, in ctx.arena. Overwrites q, k and v. Without output rows
  // it only stores keys and values.
  Tensor mix(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend, const Tensor& cos_sin,
             const OutputRows& wanted, const SplitProduct& fused) const;
};

// The ALiBi slopes of `heads` heads (arXiv 2108.12409; transformers build_alibi_tensor).
std::vector<float> alibi_slopes(std::int64_t heads);

}  // namespace sluice
