// Encoders: BERT, RoBERTa, XLM-R, ModernBERT, Nomic-BERT, EuroBERT, and Gemma 3 without its causal
// mask (encoder_config.h names the sources).
//
//   std::unique_ptr<Encoder> encoder = load_encoder(ctx, config, source, numerics);
//   encoder->forward(ctx, batch, states);
//   if (config.head != EncoderHead::kNone) encoder->score(ctx, batch.starts, states, scores);
//
// Texts are packed one behind the other, without padding. A text's states have the same bits alone
// and in any batch. On a CPU. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "checkpoint/weight_source.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/weights/numerics.h"
#include "models/encoders/bidirectional_attention.h"
#include "models/encoders/encoder_config.h"
#include "tensor/context.h"

namespace sluice {

struct EncoderBatch {
  Tensor ids, positions, types;          // [T] int32; positions are rows of the table
  std::span<const std::int32_t> starts;  // [texts + 1] the first row of each text, and T
};

class Encoder {
 public:
  Encoder(WeightLoader& loader, const EncoderConfig& config);

  // states [T, hidden] f32 := the states after the last norm. Temporary memory comes from
  // ctx.arena.
  void forward(Context& ctx, const EncoderBatch& batch, const Tensor& states) const;
  // scores [texts, labels] f32 := the head's, without an activation.
  void score(Context& ctx, std::span<const std::int32_t> starts, const Tensor& states,
             const Tensor& scores) const;
  // Rows that position `i` of a text has in EncoderBatch::positions.
  const EncoderConfig& config() const { return config_; }
  std::int64_t weight_bytes() const { return store_.bytes(); }
  void keep(WeightStore store) { store_ = std::move(store); }

 private:
  struct Layer {
    Norm attention_norm, mlp_norm;  // before the halves or behind them (has_norms_first)
    Norm attention_last, mlp_last;  // of what a half adds, or undefined: Gemma
    Norm query_norm, key_norm;      // of heads, or undefined: Gemma
    Linear qkv, attention_out, up, down;
    bool is_local = false;
  };
  Layer load_bert(const Weights& weights) const;
  Layer load_nomic(const Weights& weights) const;
  Layer load_modern(const Weights& weights, int index) const;
  Layer load_llama(const Weights& weights) const;
  Norm load_norm(const Weights& weights, std::string_view name) const;
  void load_embeddings(const Weights& body);
  void load_layers(const Weights& body);
  void load_head(const Weights& root, const Weights& body);
  void run_layer(Context& ctx, const EncoderBatch& batch, const Layer& layer,
                 const Tensor& x) const;
  void attend(Context& ctx, const EncoderBatch& batch, const Layer& layer, const Tensor& x,
              const Tensor& out) const;
  void feed_forward(Context& ctx, const Layer& layer, const Tensor& x, const Tensor& out) const;

  EncoderConfig config_;
  Tensor words_, positions_, types_;  // [rows, hidden]
  Norm embedding_norm_, final_norm_;
  std::vector<Layer> layers_;
  RotationTable rotation_, local_rotation_;
  Linear head_dense_;
  Norm head_norm_;
  Tensor classifier_, classifier_bias_;  // [labels, hidden], [labels] f32
  WeightStore store_;
};

// Error{kBadInput}: a tensor is missing, or has another shape.
std::unique_ptr<Encoder> load_encoder(Context& ctx, const EncoderConfig& config,
                                      const WeightSource& source, const Numerics& numerics);

}  // namespace sluice
