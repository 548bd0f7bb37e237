// What a runner does for its draft: limits, memory, and the states that the draft reads.
#include <algorithm>

#include "runtime/model_runner.h"

namespace sluice {

DraftLimits ModelRunner::draft_limits() const {
  // Recording takes memory for each size. A run of more rows keeps the device busy for longer than
  // it takes the host to launch it.
  constexpr std::int64_t kMaxRowRuns = 64;
  const bool is_recorded =
      ctx_.device.kind != DeviceKind::kCpu && options_.graphs.enabled && can_be_recorded();
  return {
      .batch = limits_,
      .max_sequences = options_.limits.max_running_requests,
      .max_drafts = options_.max_drafts,
      .topk = options_.draft_topk,
      .steps = options_.draft_steps,
      .groups = {groups_.begin(), groups_.begin() + num_page_groups(groups_)},
      .row_runs = is_recorded || options_.pads_draft_rows
                      ? std::min({kMaxRowRuns, options_.limits.max_draft_rows, limits_.max_tokens})
                      : 0,
      .name = options_.draft ? options_.draft->name : "the model's own draft layer"};
}

bool ModelRunner::has_rounds() const {
  DraftModel* const draft = model_->draft_model();
  return draft != nullptr && draft->draft_shape().target_width > 0 &&
         draft_limits().row_runs_of(draft->draft_shape()) > 0 &&
         options_.limits.steps_in_flight > 1 && !limits_.has_states && !dp_.defined() &&
         ctx_.communicator->size() == 1;
}

std::int64_t ModelRunner::max_round_rows() const {
  if (!limits_.has_rounds) return 0;
  std::int64_t rows = std::min(drafts_->max_round_rows(), limits_.max_logit_rows);
  if (ctx_.device.kind != DeviceKind::kCpu)
    rows = std::min(rows, graphs_ && !graphs_->sizes(true).empty() ? graphs_->sizes(true).back()
                                                                   : std::int64_t{0});
  return rows;
}

// Names of back ends are chosen for the target.
AttentionOptions ModelRunner::draft_attention_options() const {
  AttentionOptions out = options_.attention;
  out.name = "auto";
  out.prefill_name = out.decode_name = {};
  return out;
}

void ModelRunner::measure_draft(Context& ctx, ForwardBatch fb, const KVPool& pool,
                                AttentionBackend& of_model) {
  fb.dp = nullptr;  // groups draft for themselves
  std::unique_ptr<AttentionBackend> own;
  if (const SeparateDraft* draft = model_->separate_draft()) {
    own = make_attention_backend(draft_attention_options(), draft->attention_shape(), pool);
    own->plan(ctx, fb);
  }
  const DraftShape& shape = model_->draft_model()->draft_shape();
  const auto rows = [&](std::int64_t count, std::int64_t columns) {
    return columns == 0 ? Tensor{}
                        : Tensor::dense(reinterpret_cast<void*>(64), DType::kF32, {count, columns},
                                        ctx.device);
  };
  model_->draft_model()->draft(ctx, fb, own ? *own : of_model,
                               {.target = rows(fb.num_tokens, shape.target_width),
                                .states = rows(fb.num_tokens, shape.hidden_size),
                                .logits = rows(fb.logit_rows.dim(0), shape.vocab_size)});
  if (shape.block_size > 0)
    model_->draft_model()->draft(ctx, fb, own ? *own : of_model,
                                 {.target = {},
                                  .states = rows(fb.num_tokens, shape.hidden_size),
                                  .logits = rows(fb.logit_rows.dim(0), shape.vocab_size),
                                  .last_seen = fb.positions});
}

std::vector<int> ModelRunner::padded_rows(bool has_drafts) const {
  std::vector<int> out;
  if (graphs_ != nullptr)
    for (const std::int64_t size : graphs_->sizes(has_drafts))
      out.push_back(static_cast<int>(size));
  return out;
}

// The forward leaves what the draft reads in `states` [tokens, target_width].
void ModelRunner::keep_states(const Tensor& states, StageIO& io) const {
  const std::vector<int>& layers = model_->draft_model()->draft_shape().target_layers;
  if (layers.empty()) {
    io.final_hidden = states;
    return;
  }
  const std::int64_t width = config_.hidden_size;
  for (const int layer : layers) {
    const auto at = static_cast<std::int64_t>(io.aux_layers.size()) * width;
    io.aux_layers.push_back(layer - 1);
    io.aux_hidden.push_back(states.slice(1, at, width));
  }
}

}  // namespace sluice
