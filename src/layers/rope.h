// Rotary position embedding: the frequencies of each scaling type, and the table of a step.
//
// Sources: the formulas of transformers `modeling_rope_utils` (`_compute_default_rope_parameters`, linear,
// dynamic NTK, yarn, llama3); YaRN: arXiv 2309.00071.
//
// Dynamic NTK scaling makes the base depend on the length of the sequence. Here the length is that of the
// row's own sequence with this step's tokens: up to max_position_embeddings nothing is scaled and results are
// the same however a prompt is cut into steps; beyond it all rows of a step use the base of the length
// reached, as one pass of transformers does, and keys already cached keep the angles they were stored with.
// So past that length, and with this rope type only, logits depend on how a prompt was cut into chunks; they
// never depend on other sequences.
#pragma once

#include <vector>

#include "attention/forward_batch.h"
#include "hub/model_config.h"
#include "layers/weights.h"
#include "tensor/context.h"

namespace sluice {

// inv_freq [rotary_dim / 2] of the configuration; for dynamic scaling, of sequences up to max_position.
std::vector<float> rope_inv_freq(const RopeConfig& config);
// The same for dynamic scaling and a sequence of `length` tokens.
std::vector<float> dynamic_inv_freq(const RopeConfig& config, std::int64_t max_position, std::int64_t length);
// The same for longrope, with its short or its long factors.
std::vector<float> longrope_inv_freq(const RopeConfig& config, bool is_long);
// What cos and sin are multiplied with.
float rope_attention_factor(const RopeConfig& config);
// m^2 of the MLA softmax scale (1 without yarn): DeepSeek-V2 `yarn_get_mscale`, squared.
double yarn_softmax_factor(const RopeConfig& config);

class Rotary {
 public:
  Rotary() = default;
  Rotary(const RopeConfig& config, std::int64_t max_position);

  // Puts the frequencies where the model's device reads them; before cos_sin.
  void place(const Weights& weights) { frequencies_ = weights.constant(inv_freq_); }

  std::int64_t dim() const { return config_.rotary_dim; }
  bool interleaved() const { return config_.interleaved; }
  // Fills cos_sin [tokens, dim] f32 for the rows of the batch.
  void cos_sin(Context& ctx, const ForwardBatch& fb, const Tensor& cos_sin) const;

 private:
  RopeConfig config_;
  std::int64_t max_position_ = 0;
  std::vector<float> inv_freq_;
  Tensor frequencies_;  // inv_freq_ on the device
  float attention_factor_ = 1;
};

}  // namespace sluice
