// A model together with the draft that belongs to it.
//
//   DraftSource draft = ...;                       // what the options name
//   std::unique_ptr<Model> model = add_draft(ctx, load_model(...), config, draft, options);
//   model->draft_model()->draft(...);
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/weight_source.h"
#include "config/dflash_config.h"
#include "config/eagle3_config.h"
#include "models/registry.h"

namespace sluice {

// One of the four.
struct DraftConfig {
  std::optional<Eagle3Config> eagle3;
  std::optional<ModelConfig> eagle;  // the layers of an EAGLE-1 or EAGLE-2 head
  std::optional<DflashConfig> dflash;
  std::optional<ModelConfig> model;  // an ordinary model with the target's vocabulary
};

struct DraftSource {
  DraftConfig config;
  WeightSource weights;
  // Each rank has the draft's layers, where ranks cannot share them. They share the target's ends
  // all the same.
  bool is_whole = false;
  std::string name = "the draft";  // of errors: where it comes from
};

// `options`: the target's. Error{kBadInput}: the draft's checkpoint lacks a tensor, or its model
// cannot draft; the message says so.
std::unique_ptr<Model> add_draft(Context& ctx, std::unique_ptr<Model> target,
                                 const ModelConfig& target_config, const DraftSource& draft,
                                 const ModelOptions& options);

// `config` with the draft layer of its own checkpoint, which ModelOptions::draft_layer asks for:
// where that is an ordinary layer (models/state_draft.h), it becomes a draft beside the model.
std::unique_ptr<Model> add_own_draft(Context& ctx, std::unique_ptr<Model> target,
                                     const ModelConfig& config, const WeightSource& source,
                                     const ModelOptions& options);

}  // namespace sluice
