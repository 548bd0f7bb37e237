// What drafts with decoder layers of their own share: the layers behind those of the target, their
// cached rows, and the way from tokens and states to states and logits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/model_config.h"
#include "layers/gqa.h"
#include "layers/mla.h"
#include "layers/moe.h"
#include "layers/rope.h"
#include "models/decoder_spec.h"
#include "models/embed_head.h"
#include "models/registry.h"
#include "ops/fused.h"

namespace sluice {

class LayeredDraft : public SeparateDraft {
 public:
  const DraftShape& draft_shape() const final { return shape_; }
  const AttentionShape& attention_shape() const final { return attention_shape_; }
  std::int64_t weight_bytes() const final { return store_.bytes(); }
  std::vector<PageGroupSpec> kv_groups() const final;
  void draft(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
             const DraftIO& io) override;

 protected:
  struct Layer {
    Norm input_norm, post_attention_norm;
    std::variant<GqaAttention, MlaAttention> attention;
    FeedForward feed_forward;

    // As attention's own forward(): stream += attention of x.
    void attend(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                const Tensor& cos_sin, const ops::NormedRows& x, ops::Residual& stream) const;
  };
  // The rows of a call; all of f32 in the arena.
  struct Rows {
    ops::Residual stream;  // [tokens, hidden]
    Tensor both;           // [tokens, 2 * hidden]: a token's embedding and a state, side by side
  };

  // `layers`: the configuration of the draft's layers. Error{kBug}: they have no latent attention,
  // and their architecture has no row in the table of decoders.
  LayeredDraft(WeightLoader& loader, const ModelConfig& layers, const ModelConfig& target_config,
               const ModelOptions& options);

  const DecoderSpec& spec() const { return spec_; }
  std::int64_t hidden_size() const { return config_.hidden_size; }
  // Layer `index` from `weights`. `input_size`: elements of a row that attention reads; 0:
  // hidden_size. Error{kBadInput}: a tensor lacks or has another shape.
  Layer load_layer(const Weights& weights, int index, std::int64_t input_size = 0,
                   bool has_input_norm = true) const;
  // With the ranks that share the layers. Where each has them whole (DraftSource::is_whole), there
  // are none.
  Context of_layers(const Context& ctx) const { return num_ranks_ > 1 ? ctx : without_ranks(ctx); }
  // The draft's own embedding; undefined: its checkpoint has none and takes the target's.
  // Error{kBadInput}: then the target's embeddings are scaled or have positions.
  ops::Weight load_embedding(const Weights& root, const EmbeddingAndHead& target) const;
  // Stores keys and values of `rows` [tokens, hidden] f32 in every layer, by its own projections.
  void store_keys(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend,
                  const Tensor& rows) const;
  // Ends the constructor of a draft.
  void finish(WeightLoader& loader, DraftShape shape, const ModelOptions& options);

  // Fills `rows` from the tokens of `fb` and the states of `io`; returns what the attention of the
  // first layer reads. rows.stream.branch is free memory.
  virtual ops::NormedRows begin(Context& ctx, const ForwardBatch& fb, const DraftIO& io,
                                Rows& rows) const = 0;
  // Logits of states [rows, hidden], which it may change.
  virtual void score(Context& ctx, const Tensor& states, const Tensor& logits) const = 0;

  std::vector<Layer> layers_;
  Norm states_norm_;  // of the states that leave the draft; undefined: they leave as they are

 private:
  const ModelConfig config_;  // of the draft's layers
  const DecoderSpec spec_;
  Rotary rotary_;
  const int first_layer_;
  const int num_ranks_;  // that share the layers
  const DType kv_dtype_;
  const int target_vocab_size_;
  const bool expandable_;  // latent attention: MlaOptions
  DraftShape shape_;
  AttentionShape attention_shape_;
  WeightStore store_;
};

}  // namespace sluice
