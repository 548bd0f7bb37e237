// Sources: the EAGLE repository, SpecForge and speculators; arXiv 2503.01840.
#include "models/eagle3.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "models/layered_draft.h"
#include "ops/elementwise.h"

namespace sluice {
namespace {

class Eagle3 final : public LayeredDraft {
 public:
  Eagle3(WeightLoader& loader, const Eagle3Config& config, const ModelConfig& target_config,
         const EmbeddingAndHead& target, const ModelOptions& options)
      : LayeredDraft(loader, config.layers, target_config, options),
        config_(config),
        target_(target) {
    const Weights root = loader.root();
    const std::int64_t hidden = hidden_size();
    const auto num_states = static_cast<std::int64_t>(config.target_layers.size());
    const std::int64_t state = target_config.hidden_size;
    const auto norm = [&](const Weights& from, std::string_view name, std::int64_t columns) {
      return Norm::load(from, name, columns, config.layers.rms_norm_eps, {});
    };
    if (num_states > 0) {
      projection_ = Linear::load(root, {{"fc", hidden}}, num_states * state, Shard::kReplicated,
                                 root.has("fc.bias", false));
      if (config.norm_before_fc) all_states_norm_ = norm(root, "input_norm", num_states * state);
      if (config.fc_norm)
        for (int i = 0; i < static_cast<int>(num_states); ++i)
          state_norms_.push_back(norm(root.sub("fc_norm"), std::to_string(i), state));
    } else {
      require(hidden == state,
              "the head reads the last state of its target, of {} elements, and has {} itself",
              state, hidden);
    }
    for (int i = 0; i < config.layers.num_layers; ++i) {
      const bool has_own_name = i == 0 && root.has("midlayer.hidden_norm.weight", true);
      const Weights layer = has_own_name ? root.sub("midlayer") : root.sub("layers", i);
      if (i == 0) hidden_norm_ = norm(layer, "hidden_norm", hidden);
      layers_.push_back(load_layer(layer, i, i == 0 ? 2 * hidden : 0));
    }
    (config.norm_output ? states_norm_ : head_norm_) = norm(root, "norm", hidden);
    load_ends(root, target_config);
    load_target_tokens(root, target_config.vocab_size);
    finish(loader,
           {.target_width = num_states > 0 ? num_states * state : state,
            .target_layers = config.target_layers,
            .hidden_size = hidden,
            .vocab_size = num_tokens_},
           options);
  }

  std::span<const std::int32_t> target_tokens() const override { return target_tokens_; }
  // Of the numbers that the loader's finish() reads.
  void finish_target_tokens() {
    for (std::size_t i = 0; i < target_tokens_.size(); ++i) {
      const std::int64_t token = static_cast<std::int64_t>(i) + offsets_[i];
      require(token >= 0 && token < config_.layers.vocab_size,
              "d2t[{}] is {}, which is no token of the target's {}", i, offsets_[i],
              config_.layers.vocab_size);
      target_tokens_[i] = static_cast<std::int32_t>(token);
    }
    offsets_.clear();
  }

 private:
  ops::NormedRows begin(Context& ctx, const ForwardBatch& fb, const DraftIO& io,
                        Rows& rows) const override {
    const Tensor state = rows.stream.hidden, half = rows.stream.branch;
    if (io.target.defined())
      project(ctx, io.target, state);
    else
      ops::convert(ctx, io.states, state);
    if (own_embedding_.data.defined())
      ops::embedding(ctx, fb.input_ids, own_embedding_, half);
    else
      target_.look_up(ctx, fb.input_ids, half);
    layers_[0].input_norm.forward(ctx, half, half);
    ops::convert(ctx, half, rows.both.slice(1, 0, hidden_size()));
    hidden_norm_.forward(ctx, state, half);
    ops::convert(ctx, half, rows.both.slice(1, hidden_size(), hidden_size()));
    if (config_.norm_before_residual) ops::convert(ctx, half, state);
    return rows.both;
  }

  void score(Context& ctx, const Tensor& states, const Tensor& logits) const override {
    if (head_norm_.defined()) head_norm_.forward(ctx, states, states);
    (own_.head.defined() ? own_ : target_).score(ctx, states, logits);
  }

  // The states of the target as one of the head's.
  void project(Context& ctx, const Tensor& target, const Tensor& out) const {
    if (!projection_.defined()) return ops::convert(ctx, target, out);
    Arena::Scope scope(*ctx.arena);
    Tensor normed = target;
    if (all_states_norm_.defined() || !state_norms_.empty())
      normed = ctx.arena->take(DType::kF32, {target.dim(0), target.dim(1)});
    if (all_states_norm_.defined()) {
      all_states_norm_.forward(ctx, target, normed);
    } else if (!state_norms_.empty()) {
      const auto count = static_cast<std::int64_t>(state_norms_.size());
      const std::int64_t width = target.dim(1) / count;
      const Tensor one = ctx.arena->take(DType::kF32, {target.dim(0), width});
      for (std::int64_t i = 0; i < count; ++i) {
        ops::convert(ctx, target.slice(1, i * width, width), one);
        state_norms_[static_cast<std::size_t>(i)].forward(ctx, one, one);
        ops::convert(ctx, one, normed.slice(1, i * width, width));
      }
    }
    projection_.forward(ctx, normed, out);
  }

  void load_ends(const Weights& root, const ModelConfig& target_config) {
    const std::int64_t hidden = hidden_size();
    const auto shares = [&](std::string_view what) {
      require(hidden == target_config.hidden_size,
              "the draft's checkpoint has no {}, and that of the target has rows of {} elements "
              "instead of {}",
              what, target_config.hidden_size, hidden);
    };
    own_embedding_ = load_embedding(root, target_);
    if (!own_embedding_.data.defined()) shares("embed_tokens.weight");
    num_tokens_ = target_config.vocab_size;
    if (root.has("lm_head.weight", config_.draft_vocab_size > 0)) {
      if (config_.draft_vocab_size > 0) num_tokens_ = config_.draft_vocab_size;
      own_.shares_head = root.tp_size() > 1 && num_tokens_ % root.tp_size() == 0;
      own_.head =
          Linear::load(root, {{"lm_head", num_tokens_}}, hidden,
                       own_.shares_head ? Shard::kColumn : Shard::kReplicated, false, false);
    } else {
      // The target's head has all of its tokens.
      require(!root.has("d2t", false),
              "the draft's checkpoint has d2t, a head of some of the target's tokens, and no "
              "lm_head.weight");
      shares("lm_head.weight");
    }
  }

  // d2t[i]: how far the target's token lies behind token i of the head.
  void load_target_tokens(const Weights& root, int vocab_size) {
    const auto rows = static_cast<std::size_t>(num_tokens_);
    const bool has_map = root.has("d2t", false);
    require(has_map || std::cmp_equal(rows, vocab_size) || !root.has("lm_head.weight", false),
            "the head has {} tokens and its target {}, and the checkpoint lacks d2t, which says "
            "which they are",
            rows, vocab_size);
    if (!has_map) return;
    target_tokens_.resize(rows);
    offsets_.resize(rows);
    root.read_then("d2t", DType::kI64, {static_cast<std::int64_t>(rows)}, {},
                   [this](const Tensor& read) {
                     std::copy_n(read.ptr<std::int64_t>(), offsets_.size(), offsets_.begin());
                   });
  }

  const Eagle3Config config_;
  const EmbeddingAndHead& target_;
  Linear projection_;              // fc; undefined: the target's state is the head's
  Norm all_states_norm_;           // norm_before_fc
  std::vector<Norm> state_norms_;  // fc_norm
  Norm hidden_norm_;
  Norm head_norm_;  // of the states that the head reads, where they leave the draft without it
  ops::Weight own_embedding_;    // undefined: the target's
  EmbeddingAndHead own_;         // the head alone; undefined: the target's
  std::int64_t num_tokens_ = 0;  // of the head
  std::vector<std::int64_t> offsets_;
  std::vector<std::int32_t> target_tokens_;
};

}  // namespace

std::unique_ptr<SeparateDraft> load_eagle3(Context& ctx, const Eagle3Config& config,
                                           const ModelConfig& target_config,
                                           const EmbeddingAndHead& target,
                                           const WeightSource& source,
                                           const ModelOptions& options) {
  require_known_dimensions(config.layers);
  WeightLoader loader(source, options.numerics, config.layers.dtype, ctx);
  auto head = std::make_unique<Eagle3>(loader, config, target_config, target, options);
  const std::vector<std::string> unused =
      loader.finish([](std::string_view name) { return name == "t2d"; });
  if (!unused.empty())
    log_warning("{} tensors of the draft are not used, {} among them", unused.size(), unused[0]);
  head->finish_target_tokens();
  return head;
}

}  // namespace sluice
