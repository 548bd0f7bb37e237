// What all decoder-only models share around their layers: the embedding, the last norm and the head.
#pragma once

#include "attention/forward_batch.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "models/model.h"

namespace sluice {

struct DecoderEnds {
  ops::WeightMatrix embedding;  // [vocab, hidden]
  RmsNorm norm;
  Linear head;  // [vocab, hidden]; tied: its weight is the embedding, once in memory
  int num_layers = 0;

  // `root` is where model.embed_tokens, model.norm and lm_head are. Tied when the configuration says so or
  // the checkpoint has no lm_head.weight.
  static DecoderEnds load(const Weights& root, const ModelConfig& config);

  // Checks `io` against the batch; at layer 0 fills io.hidden with the embeddings.
  void begin(Context& ctx, const ForwardBatch& fb, const StageIO& io) const;
  // Keeps the residual stream after `layer` where the caller wants it.
  void keep_aux(Context& ctx, const StageIO& io, int layer) const;
  // After the last layer: io.final_hidden where wanted, io.logits of fb.logit_rows.
  void end(Context& ctx, const ForwardBatch& fb, const StageIO& io) const;
};

// Planes "k" and "v" of layers [0, num_layers), in group "full" or by window in groups "window".
std::vector<PageGroupSpec> gqa_page_groups(const ModelConfig& config, std::int64_t kv_heads, DType dtype);

}  // namespace sluice
