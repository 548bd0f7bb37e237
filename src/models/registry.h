// The table of architectures: from a configuration and weights to a model.
//
//   WeightSource source = WeightSource::checkpoint(directory);
//   std::unique_ptr<Model> model = load_model(ctx, config, source, {});
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/registry.h"
#include "checkpoint/weight_source.h"
#include "config/model_config.h"
#include "layers/weights/numerics.h"
#include "layers/weights/weights.h"
#include "models/layer_range.h"
#include "models/model.h"
#include "tensor/context.h"

namespace sluice {

struct ModelOptions {
  Numerics numerics;
  // needed for MlaPrefill::kAuto: stores W_UK a second time, in another order
  bool mla_expandable = false;
  std::int64_t context_length = 0;  // maximum sequence length; 0: max_position_embeddings
  bool rope_by_length = false;      // rotations follow each sequence's length: see layers/rope.h
  bool draft_layer = false;         // load the layer that predicts the token after the next
  int ep_size = 1;                  // groups of ranks, each with whole experts
  ExpertMaps expert_maps = {};      // where these are; empty: dealt in equal parts
  // Who shares the feed-forward layers; nothing: the ranks of ctx.communicator.
  std::optional<RankShare> feed_forward_ranks = {};
  // Experts are in memory of all ranks, so that others can take them over; null: they are not.
  SharedExperts* shared_experts = nullptr;
  bool index_hadamard = false;  // rotate index keys and queries (models of one cache must agree)
  LayerRange layers = {};       // that are loaded: the first has the embedding, the last the head
};

// Reads the weights with ctx.pool and shards them by ctx.communicator. One warning names the
// tensors that the model neither uses nor knows. Error{kBadInput}: the architecture is not in the
// table (the message names the table's), a tensor is missing (all of them are named) or has another
// shape or type.
std::unique_ptr<Model> load_model(Context& ctx, const ModelConfig& config,
                                  const WeightSource& source, const ModelOptions& options);

// The forms in which ctx's device, a CPU, would compute the quantised matrices of the checkpoint.
// Takes no memory for them. Error{kBadInput}: as of load_model(), but for values of weights.
std::vector<MatrixForm> planned_forms(Context& ctx, const ModelConfig& config,
                                      const WeightSource& source, const ModelOptions& options);

// Why the model's own draft layer cannot be loaded; empty: it can.
std::string draft_layer_refusal(const ModelConfig& config);

// Error{kBadInput} names a dimension of the configuration that exceeds the limits of the kernels.
void require_known_dimensions(const ModelConfig& config);

// The properties of the model that its attention back end depends on.
AttentionShape attention_shape(const ModelConfig& config, const ModelOptions& options);

// The architectures of the table, in its order.
std::vector<std::string_view> model_architectures();

// The file of src/models with the class of an architecture of the table.
std::string_view model_file(std::string_view architecture);

}  // namespace sluice
