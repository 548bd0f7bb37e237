// Linear attention by a gated delta rule, in two kinds:
// - Gated DeltaNet of Qwen3-Next and Qwen3.5: one decay per head, queries and keys shared by groups
// of value heads, an output gate by silu.
// - Kimi Delta Attention: a decay for each channel of a key, low-rank decay and gate, an output
// gate by sigmoid.
//
// Sources: transformers Qwen3NextGatedDeltaNet, Qwen3_5GatedDeltaNet, KimiLinearDeltaAttention;
// arXiv 2412.06464, arXiv 2510.26692.
#pragma once

#include "layers/norm.h"
#include "layers/recurrent.h"

namespace sluice {

struct DeltaNet {
  Linear in;        // rows q | k | v, then by kind: z | b | a, or b | f_a | g_a
  Linear decay_up;  // KDA: from f_a to the keys of all heads
  Linear gate_up;   // KDA: from g_a to the values of all heads
  Linear out;
  ShortConvolution conv;    // over q | k | v
  Tensor q_scale, k_scale;  // [dk] f32: convert a norm by the mean of squares into one by the sum;
                            // q_scale includes dk^-1/2
  Tensor rate, bias;        // parameters of the decay: -exp(A_log) and dt_bias
  RmsNorm norm;             // over the values of a head
  RecurrentConfig dims;
  int layer = 0;

  // `weights` is the decoder layer's linear_attn (Qwen) or self_attn (Kimi).
  static DeltaNet load(const Weights& weights, const ModelConfig& config, int layer);
  std::int64_t matrix_elements() const {
    return ops::recurrent_state_elements(dims.num_value_heads, dims.key_head_dim,
                                         dims.value_head_dim);
  }
  // stream [query rows, hidden] += what x [T, hidden] f32 gives.
  void forward(Context& ctx, const ForwardBatch& fb, const AttentionBackend& backend,
               const ops::NormedRows& x, ops::Residual& stream) const;

 private:
  std::int64_t key_width() const { return std::int64_t{dims.num_key_heads} * dims.key_head_dim; }
  std::int64_t value_width() const {
    return std::int64_t{dims.num_value_heads} * dims.value_head_dim;
  }
  void load_gated(const Weights& weights, const ModelConfig& config);
  void load_kimi(const Weights& weights, const ModelConfig& config);
};

}  // namespace sluice
