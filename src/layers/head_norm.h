// Norms of query and key heads.
#pragma once

#include "layers/norm.h"

namespace sluice {

enum class HeadNormKind {
  kRms,    // over each head, one weight for all: Qwen3, Gemma 3
  kUnit,   // over each head, without a weight, only in layers that rotate: Llama 4
  kRow,    // an RMSNorm over all heads of a token together: OLMo 2
  kLayer,  // a LayerNorm over each head with a weight of its own, name.weight [heads, d]: Cohere
  kLayerList,  // as kLayer, stored as name.norms.<head>.weight [d]: StableLM
};

struct HeadNormSpec {
  HeadNormKind kind = HeadNormKind::kRms;
  bool plus_one = false;    // as NormSpec; for kRms
  bool after_rope = false;  // false: before the rotation
  std::string_view q = "q_norm", k = "k_norm";
};

// This rank's share of `heads`. Several ranks have the same one where ranks outnumber heads.
// Error{kBadInput} where they do not divide.
AxisRange share_heads(const Weights& weights, std::int64_t heads, std::string_view what);

struct HeadNorm {
  HeadNormKind kind = HeadNormKind::kRms;
  Tensor weight;  // f32: [d]; kRow: [heads * d]; kLayer: [heads, d]
  float eps = 0;
  std::int64_t first_column = 0;  // kRow: of this rank's heads in the row

  // `heads` counts the model's heads; this rank has a share of them. For kRow the ranks gather the
  // row of all heads, of which none may be on two ranks.
  static HeadNorm load(const Weights& weights, std::string_view name, const HeadNormSpec& spec,
                       std::int64_t heads, std::int64_t head_dim, double eps);
  bool defined() const { return weight.defined(); }

  // x [T, heads, d] f32, in place; the heads of a token are contiguous.
  void forward(Context& ctx, const Tensor& x) const;
};

}  // namespace sluice
