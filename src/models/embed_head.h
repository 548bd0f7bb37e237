// The common ends of decoder-only models: the embedding, the last norm and the head.
#pragma once

#include "attention/forward_batch.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "models/layer_range.h"
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

// The input of the last layer of a run. If only logits are read from it, and of fewer rows than
// there are tokens, its batch has queries for these rows only, and so has the residual stream after
// it.
struct LastLayer {
  ForwardBatch batch;
  Tensor hidden;  // [query rows, hidden] f32: StageIO::hidden itself if those are all rows

  // Called between the layer's input norm and its first operation. x keeps all rows; `stream` keeps
  // the query rows. `type`: the type of x that loses nothing for its readers.
  ops::NormedRows enter(Context& ctx, const ops::NormedRows& x, DType type,
                        ops::Residual& stream) const;
};

// A stage of a pipeline has the parts before layer 0 if its first layer is that, and those behind
// the last layer if it has that one; the others are undefined.
struct EmbeddingAndHead {
  ops::Weight embedding;  // [vocab, hidden]
  Tensor positions;       // [positions, hidden], or undefined
  Norm embedding_norm;    // undefined: none
  Norm norm;
  // [vocab, hidden]; tied: its weight is the embedding, stored once. Of several ranks each has a
  // share of the rows, where they divide; a GPU shares no rows that are the embedding, too.
  Linear head;
  bool tied = false;
  bool shares_head = false;
  bool shares_embedding = false;
  std::int64_t first_row = 0;  // of this rank's share
  int num_layers = 0;          // of the whole model
  std::int64_t hidden_size = 0;
  LayerRange layers;  // of this rank
  float embedding_multiplier = 1;
  float logit_scale = 1;
  float logit_softcap = 0;

  // `root` is the parent of names.body and names.head. The head is tied if the configuration says
  // so, or if the checkpoint has no weight of the head; then the first and the last stage of a
  // pipeline both have the matrix. `layers`: of this rank.
  static EmbeddingAndHead load(const Weights& root, const ModelConfig& config,
                               const EndNames& names = {}, const NormSpec& norm = {},
                               const LayerRange& layers = {});

  // A table [rows, columns] that is no head.
  static ops::Weight load_embedding(const Weights& from, std::string_view name, std::int64_t rows,
                                    std::int64_t columns);

  // Checks `io` against the batch; at layer 0 fills io.hidden with the embeddings.
  void begin(Context& ctx, const ForwardBatch& fb, const StageIO& io) const;
  // hidden [tokens, hidden] f32 := the embeddings of the batch's tokens: the input of the first
  // layer.
  void embed(Context& ctx, const ForwardBatch& fb, const Tensor& hidden) const;
  // out [tokens, hidden] f32 := the rows of the embedding, without what else embed() does.
  void look_up(Context& ctx, const Tensor& ids, const Tensor& out) const;
  // logits [rows, vocab] f32 := the head of x [rows, hidden].
  void score(Context& ctx, const ops::NormedRows& x, const Tensor& logits) const;
  // Copies the residual stream after `layer` if the caller wants it.
  void keep_aux(Context& ctx, const StageIO& io, int layer, ops::Residual& stream) const;
  // The last layer of `io`. In memory of ctx.arena that lives as long as the caller's scope.
  LastLayer last_layer(Context& ctx, const ForwardBatch& fb, const StageIO& io) const;
  // Runs after the last layer. Fills io.final_hidden if it is defined, and io.logits of the batch's
  // logit rows.
  void end(Context& ctx, const StageIO& io, const LastLayer& last) const;

 private:
  void load_begin(const Weights& body, const ModelConfig& config, const EndNames& names,
                  const NormSpec& norm);
  void load_end(const Weights& root, const Weights& body, const ModelConfig& config,
                const EndNames& names, const NormSpec& norm);
  Linear load_table(const Weights& from, std::string_view name, const ModelConfig& config) const;
  static bool wants_aux(const StageIO& io, int layer);
};

// Planes "k" and "v" of layers [0, num_layers), in one group for each window, chunk and row width
// that occurs: "full", "window", "chunk", and further ones with a number. `num_ranks` share the
// heads; each has one at least.
std::vector<PageGroupSpec> gqa_page_groups(const ModelConfig& config, int num_ranks, DType dtype);

}  // namespace sluice
