// What all decoder-only models share around their layers: the embedding, the last norm and the
// head.
#pragma once

#include "attention/forward_batch.h"
#include "attention/output_rows.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "models/model.h"

namespace sluice {

// What a family calls these parts. Names but the head's are below `body`; empty: the family has
// none.
struct EndNames {
  std::string_view body = "model";
  std::string_view embedding = "embed_tokens";
  // learned ones: row p + position_offset is added to the embedding at position p
  std::string_view positions = {};
  int position_offset = 0;
  std::string_view embedding_norm = {};
  std::string_view norm = "norm";
  std::string_view head = "lm_head";
};

// What a layer makes of the stream behind its keys, values and states: all rows of it, or those
// that are wanted.
struct LastLayerRows {
  OutputRows wanted;
  Tensor hidden;  // [wanted, hidden] f32: StageIO::hidden itself where all are

  // Of a tensor with a row for each token, so many rows as there are wanted.
  Tensor of(const Tensor& x) const { return x.rows(0, hidden.dim(0)); }
  // Before anything is added to `hidden`: what the stream has been so far.
  void begin(Context& ctx, const StageIO& io) const;
};

struct EmbeddingAndHead {
  ops::WeightMatrix embedding;  // [vocab, hidden]
  Tensor positions;             // [positions, hidden], or undefined
  Norm embedding_norm;          // undefined: none
  Norm norm;
  Linear head;  // [vocab, hidden]; tied: its weight is the embedding, once in memory
  int num_layers = 0;
  float embedding_multiplier = 1;
  float logit_scale = 1;
  float logit_softcap = 0;

  // `root` is where names.body and names.head are. Tied when the configuration says so or the
  // checkpoint has no weight of the head.
  static EmbeddingAndHead load(const Weights& root, const ModelConfig& config,
                               const EndNames& names = {}, const NormSpec& norm = {});

  // Checks `io` against the batch; at layer 0 fills io.hidden with the embeddings.
  void begin(Context& ctx, const ForwardBatch& fb, const StageIO& io) const;
  // hidden [tokens, hidden] f32 := the embeddings of the batch's tokens, as the first layer reads
  // them.
  void embed(Context& ctx, const ForwardBatch& fb, const Tensor& hidden) const;
  // Keeps the residual stream after `layer` where the caller wants it.
  void keep_aux(Context& ctx, const StageIO& io, int layer) const;
  // All rows, as of every layer before the last of `io`.
  static LastLayerRows every_row(const StageIO& io) { return {.wanted = {}, .hidden = io.hidden}; }
  // Of the last layer of `io`: those whose logits are wanted, where nobody reads others and they
  // are fewer. In memory of ctx.arena that lives as long as the caller's scope.
  LastLayerRows last_rows(Context& ctx, const ForwardBatch& fb, const StageIO& io) const;
  // After the last layer, which made `last`: io.final_hidden where wanted, io.logits of
  // fb.logit_rows.
  void end(Context& ctx, const ForwardBatch& fb, const StageIO& io,
           const LastLayerRows& last) const;
};

// Planes "k" and "v" of layers [0, num_layers), in a group for each window, chunk and width of rows
// that they have: "full", "window", "chunk", and further ones with a number. kv_heads: this rank's
// share of config.num_kv_heads.
std::vector<PageGroupSpec> gqa_page_groups(const ModelConfig& config, std::int64_t kv_heads,
                                           DType dtype);

}  // namespace sluice
