// Rotary position embedding: the frequencies of each scaling type, and the table of a step.
//
// Sources: the formulas of transformers `modeling_rope_utils` (`_compute_default_rope_parameters`,
// linear, dynamic NTK, yarn, llama3); YaRN: arXiv 2309.00071.
//
// Two types depend on the sequence length. Dynamic NTK scaling changes the base beyond
// max_position_embeddings. longrope uses other factors beyond original_max_position_embeddings. One
// rule serves both (rope_for_context; vLLM's rule for longrope): the length is the maximum context,
// for every token of every sequence. So a token's rotation does not depend on how its prompt is
// cut, and cached keys stay right.
//
// With --rope-by-length the length is that of the row's own sequence, this step's tokens included,
// as in one pass of transformers. Then the rows of a step use the rotation of the length reached,
// and cached keys keep their angles. Logits beyond the threshold depend on how a prompt was cut
// into chunks. They never depend on other sequences (docs/decisions/013-length-dependent-rope.md).
#pragma once

#include <vector>

#include "attention/forward_batch.h"
#include "config/model_config.h"
#include "layers/weights/weights.h"
#include "tensor/context.h"

namespace sluice {

// A rotation that does not depend on the length, equal to `config` for sequences of `context`
// tokens.
RopeConfig rope_for_context(const RopeConfig& config, std::int64_t max_position,
                            std::int64_t context);
// Whether rotations of sequences of up to `context` tokens depend on their length.
bool depends_on_length(const RopeConfig& config, std::int64_t max_position, std::int64_t context);

// inv_freq [rotary_dim / 2] of the configuration; if it depends on the length, of the shortest
// sequences.
std::vector<float> rope_inv_freq(const RopeConfig& config);
// inv_freq under dynamic scaling for a sequence of `length` tokens.
std::vector<float> dynamic_inv_freq(const RopeConfig& config, std::int64_t max_position,
                                    std::int64_t length);
// inv_freq under longrope, with its short or its long factors.
std::vector<float> longrope_inv_freq(const RopeConfig& config, bool is_long);
// The factor of cos and sin; for longrope with its short or its long numbers.
float rope_attention_factor(const RopeConfig& config, bool is_long = false);
// m^2 of the MLA softmax scale: DeepSeek-V2 `yarn_get_mscale`, squared. 1 for plain RoPE and where
// mscale_all_dim is 0.
double yarn_softmax_factor(const RopeConfig& config);

class Rotary {
 public:
  Rotary() = default;
  Rotary(const RopeConfig& config, std::int64_t max_position);

  // Copies the frequencies to the model's device; call before cos_sin.
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
