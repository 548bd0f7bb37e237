// Rotary position embedding: the frequencies of each scaling type, and the table of a step.
//
// Sources: the formulas of transformers `modeling_rope_utils` (`_compute_default_rope_parameters`,
// linear, dynamic NTK, yarn, llama3); YaRN: arXiv 2309.00071.
//
// Two types depend on the length of the sequence: dynamic NTK scaling changes the base beyond
// max_position_embeddings, longrope takes other factors beyond original_max_position_embeddings.
// One rule serves both: the length is the longest that is served (--context-length), for every
// token of every sequence, so that a token's rotation is the same however its prompt is cut and
// cached keys stay right (rope_for_context; vLLM's rule for longrope). With --rope-by-length it is
// that of the row's own sequence with this step's tokens, as in one pass of transformers: then the
// rows of a step use the rotation of the length reached, keys already cached keep the angles they
// were stored with, and logits beyond the threshold depend on how a prompt was cut into chunks;
// they never depend on other sequences.
#pragma once

#include <vector>

#include "attention/forward_batch.h"
#include "config/model_config.h"
#include "layers/weights.h"
#include "tensor/context.h"

namespace sluice {

// The same rotation without a dependence on the length, for sequences of up to `context` tokens.
RopeConfig rope_for_context(const RopeConfig& config, std::int64_t max_position,
                            std::int64_t context);
// Whether rotations of sequences of up to `context` tokens depend on their length.
bool depends_on_length(const RopeConfig& config, std::int64_t max_position, std::int64_t context);

// inv_freq [rotary_dim / 2] of the configuration; where it depends on the length, of the shortest
// sequences.
std::vector<float> rope_inv_freq(const RopeConfig& config);
// The same for dynamic scaling and a sequence of `length` tokens.
std::vector<float> dynamic_inv_freq(const RopeConfig& config, std::int64_t max_position,
                                    std::int64_t length);
// The same for longrope, with its short or its long factors.
std::vector<float> longrope_inv_freq(const RopeConfig& config, bool is_long);
// What cos and sin are multiplied with; for longrope with its short or its long numbers.
float rope_attention_factor(const RopeConfig& config, bool is_long = false);
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
