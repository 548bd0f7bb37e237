// The common ends of decoder-only models: the embedding, the last norm and the head.
#pragma once

#include "attention/forward_batch.h"
#include "attention/output_rows.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "models/model.h"

namespace sluice {

// The family's names of these parts. Names are below `body`, except the head's; empty: the family
// has no such part.
struct EndNames {
  std::string_view body = "model";
  std::string_view embedding = "embed_tokens";
  // learned positions: row p + position_offset is added to the embedding at position p
  std::string_view positions = {};
  int position_offset = 0;
  std::string_view embedding_norm = {};
  std::string_view norm = "norm";
  std::string_view head = "lm_head";
};

// The rows of the residual stream that a layer updates after writing K, V and state.
struct LastLayerRows {
  OutputRows wanted;
  Tensor hidden;  // [output rows, hidden] f32: StageIO::hidden itself if all rows need output

  // The first rows of x [tokens, n], as many as there are output rows.
  Tensor of(const Tensor& x) const { return x.rows(0, hidden.dim(0)); }
  // Copies the output rows of the residual stream to `hidden`, before anything is added to it.
  void begin(Context& ctx, const StageIO& io) const;
};

struct EmbeddingAndHead {
  ops::Weight embedding;  // [vocab, hidden]
  Tensor positions;       // [positions, hidden], or undefined
  Norm embedding_norm;    // undefined: none
  Norm norm;
  Linear head;  // [vocab, hidden]; tied: its weight is the embedding, stored once
  int num_layers = 0;
  float embedding_multiplier = 1;
  float logit_scale = 1;
  float logit_softcap = 0;

  // `root` is the parent of names.body and names.head. The head is tied if the configuration says
  // so, or if the checkpoint has no weight of the head.
  static EmbeddingAndHead load(const Weights& root, const ModelConfig& config,
                               const EndNames& names = {}, const NormSpec& norm = {});

  // Checks `io` against the batch; at layer 0 fills io.hidden with the embeddings.
  void begin(Context& ctx, const ForwardBatch& fb, const StageIO& io) const;
  // hidden [tokens, hidden] f32 := the embeddings of the batch's tokens: the input of the first
  // layer.
  void embed(Context& ctx, const ForwardBatch& fb, const Tensor& hidden) const;
  // Whether the caller wants the residual stream after `layer`, and keeping it.
  static bool keeps_aux(const StageIO& io, int layer);
  void keep_aux(Context& ctx, const StageIO& io, int layer) const;
  // All rows: for every layer before the last of `io`.
  static LastLayerRows every_row(const StageIO& io) { return {.wanted = {}, .hidden = io.hidden}; }
  // The output rows of the last layer of `io`: the logit rows, if no other row is read and they are
  // fewer than the tokens. The memory is in ctx.arena and lives as long as the caller's scope.
  LastLayerRows last_rows(Context& ctx, const ForwardBatch& fb, const StageIO& io) const;
  // Runs after the last layer, whose output rows are `last`. Fills io.final_hidden if it is
  // defined, and io.logits of fb.logit_rows.
  void end(Context& ctx, const ForwardBatch& fb, const StageIO& io,
           const LastLayerRows& last) const;
};

// Planes "k" and "v" of layers [0, num_layers), in one group for each window, chunk and row width
// that occurs: "full", "window", "chunk", and further ones with a number. kv_heads: this rank's
// share of config.num_kv_heads.
std::vector<PageGroupSpec> gqa_page_groups(const ModelConfig& config, std::int64_t kv_heads,
                                           DType dtype);

}  // namespace sluice
