// Mamba-2: state-space duality (Dao and Gu, arXiv 2405.21060, sections 2 and 7).
//
// Source: transformers Mamba2Mixer.
#pragma once

#include "layers/norm.h"
#include "layers/recurrent.h"

namespace sluice {

struct Mamba2 {
  Linear in;  // rows gate | x | B of all groups | C of all groups | step of each head
  Linear out;
  ShortConvolution conv;       // over x | B | C
  Tensor rate, bias;           // parameters of a head's step
  Tensor skip;                 // [heads] f32: D
  std::vector<RmsNorm> norms;  // over the values of each group, after the gate
  RecurrentConfig dims;
  int layer = 0;

  // `weights` is the layer's mixer.
  static Mamba2 load(const Weights& weights, const ModelConfig& config, int layer);
  std::int64_t matrix_elements() const {
    return ops::recurrent_state_elements(dims.num_value_heads, dims.key_head_dim,
                                         dims.value_head_dim);
  }
  // stream [query rows, hidden] += what x [T, hidden] f32 gives.
  void forward(Context& ctx, const ForwardBatch& fb, const AttentionBackend& backend,
               const ops::NormedRows& x, ops::Residual& stream) const;
};

}  // namespace sluice
