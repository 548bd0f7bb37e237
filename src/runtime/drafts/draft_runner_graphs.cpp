// Runs of a draft that are recorded: those behind a step of decode rows, one for each depth. Each
// row is an item (runtime/steps/row_batch.h), and a place on the device holds what a sequence was
// given last.
#include <algorithm>

#include "ops/elementwise.h"
#include "ops/graph_io.h"
#include "ops/tokens.h"
#include "runtime/drafts/draft_runner.h"

namespace sluice {

BatchBuffers& DraftRunner::row_buffers(int depth) {
  return depth == 0 ? *first_rows_ : *buffers_[static_cast<std::size_t>(depth)];
}

void DraftRunner::record(const GraphOptions& options, const Tensor& states,
                         std::span<const std::int32_t> spare_pages, std::int64_t context_length,
                         const DeviceRounds* rounds) {
  if (!first_rows_) return;
  rounds_ = rounds;
  all_states_ = states;
  spare_pages_.assign(spare_pages.begin(), spare_pages.begin() + std::ssize(limits_.groups));
  context_length_ = context_length;
  recorded_deterministic_ = ctx_.deterministic;
  if (ctx_.device.kind == DeviceKind::kCpu || !options.enabled) return;
  for (int depth = 0; depth < limits_.passes(); ++depth) {
    const DecodeGraphs::MaxRows most =
        depth == 0 ? DecodeGraphs::MaxRows{.plain = 0,
                                           .with_drafts = limits_.first_run_rows(),
                                           .edits = false}
                   : DecodeGraphs::MaxRows{.plain = std::min(limits_.row_runs, limits_.rows()),
                                           .edits = false};
    graphs_.push_back(std::make_unique<DecodeGraphs>(
        GraphOptions{
            .enabled = true, .lazy = options.lazy, .sizes = {}, .max_batch = options.max_batch},
        most, stream_,
        [this, depth](std::int64_t size, bool has_drafts) {
          Batch padding;
          padding.mode = has_drafts ? ForwardMode::kTargetVerify : ForwardMode::kDecode;
          attention_.plan(ctx_, row_buffers(depth).fill_padded(padding, {}, size, spare_pages_,
                                                               context_length_));
        },
        [this, depth](GraphKind, bool recorded) { run_rows(depth, recorded); }));
    graphs_.back()->record_all();
  }
}

std::size_t DraftRunner::num_graphs() const {
  std::size_t count = 0;
  for (const auto& graphs : graphs_)
    count += graphs->sizes(false).size() + graphs->sizes(true).size();
  return count;
}

// The pass behind a step as decode rows, of which the last of each sequence is chosen.
const Batch& DraftRunner::as_rows() {
  std::vector<LogitRow>& rows = pass_.logit_rows;
  rows.clear();
  for (std::size_t i = 0; i < pass_.items.size(); ++i)
    for (std::int32_t k = 0; k < pass_.items[i].count; ++k)
      rows.push_back({.item = static_cast<std::int32_t>(i),
                      .row = static_cast<std::int32_t>(rows.size()),
                      .position = pass_.items[i].first + k,
                      .sample = false});
  for (const Row& one : rows_) {
    LogitRow& last = rows[static_cast<std::size_t>(one.state)];
    last.sample = true;
    pass_.items[static_cast<std::size_t>(last.item)].slot = one.chosen;
  }
  // Any row may be the last right one.
  if (pass_.is_round)
    for (LogitRow& row : rows) row.sample = true;
  return row_batch_.of(pass_);
}

bool DraftRunner::replay(int depth) {
  const std::int64_t count = pass_.num_tokens();
  const bool is_first = depth == 0;
  // Graphs hold the kernels of ordinary steps.
  if (!first_rows_ || count > (is_first ? limits_.first_run_rows() : limits_.row_runs) ||
      ctx_.deterministic != recorded_deterministic_ ||
      pass_.mode != (is_first ? ForwardMode::kTargetVerify : ForwardMode::kDecode))
    return false;
  const auto at = static_cast<std::size_t>(depth);
  if (!graphs_.empty() && count > graphs_[at]->sizes(is_first).back()) return false;
  const Batch& rows = is_first ? as_rows() : pass_;
  if (!is_first)
    for (LogitRow& row : pass_.logit_rows) row.sample = true;
  const RowInfo info{.token_of_slot = [](std::int32_t slot) { return -1 - slot; },
                     .draft_of_slot = [](std::int32_t, std::int32_t row) { return -1 - row; },
                     .sample_row_of =
                         [](const LogitRow& row, std::int32_t) {
                           return row.sample ? ops::SampleRow{.temperature = 0} : ops::SampleRow{};
                         },
                     .sources = from_,
                     .moved_slots = pass_.is_round ? round_slots_ : std::span<std::int32_t>()};
  BatchBuffers& buffers = row_buffers(depth);
  const GraphKind kind{.has_edits = false, .has_drafts = is_first};
  const std::int64_t size = !graphs_.empty() ? graphs_[at]->size_for(rows)
                            : is_first       ? padded_draft_rows(count, limits_.first_run_rows())
                                             : count;
  if (!graphs_.empty()) graphs_[at]->ensure(size, kind);
  attention_.plan(
      ctx_, buffers.fill_padded(rows, info, size, spare_pages_, context_length_, !graphs_.empty()));
  if (graphs_.empty()) {
    run_rows(depth, false);
  } else {
    graphs_[at]->launch(size, kind);
    buffers.replayed();
    is_on_host_[at] = 1;
  }
  choices_[at].clear();
  for (std::size_t i = 0; i < rows_.size(); ++i)
    choices_[at].push_back(
        {.item = rows_[i].item, .row = is_first ? rows_[i].state : static_cast<std::int32_t>(i)});
  return true;
}

void DraftRunner::run_rows(int depth, bool recorded) {
  BatchBuffers& buffers = row_buffers(depth);
  const ForwardBatch& fb = buffers.view();
  const std::int64_t count = fb.num_tokens;
  const bool is_first = depth == 0;
  // In a round the first run's tokens are those of the step's rows.
  const Tensor known = is_first && rounds_ ? rounds_->next_tokens() : known_tokens();
  if (recorded)
    ops::load_step_inputs(ctx_, buffers.step_inputs(counters_.rows(depth, 1), known));
  else
    ops::take_slot_tokens(ctx_, known, fb.input_ids);
  if (rounds_) place_rows(depth);
  DraftIO io{.target = {},
             .states = (is_first ? first_states_ : next_states_[depth % 2]).rows(0, count),
             .logits = logits_.rows(0, count)};
  if (shape_.target_width > 0 || !is_first) {
    const Tensor from = is_first     ? all_states_
                        : depth == 1 ? first_states_
                                     : next_states_[(depth - 1) % 2];
    if (is_first) io.target = target_.rows(0, count);
    if (shape_.hidden_size > 0)
      ops::gather_rows(ctx_, from, buffers.sources(), is_first ? io.target : io.states);
  }
  model_.draft(ctx_, fb, attention_, io);
  const Tensor tokens = tokens_.at(depth).rows(0, count);
  const SamplingTensors& sampling = buffers.sampling();
  ops::sample_tokens(ctx_, io.logits, sampling.sample_rows, tokens);
  if (recorded) {
    ops::store_step_tokens(ctx_, tokens, sampling.logit_slots, chosen_, counters_.rows(depth, 1),
                           {host_box(depth, 0), host_box(depth, 1)});
  } else {
    ops::put_slot_tokens(ctx_, tokens, sampling.logit_slots, chosen_);
  }
  if (target_tokens_.defined()) ops::gather_rows(ctx_, target_tokens_, chosen_, known_);
  if (rounds_)
    ops::put_draft_tokens(ctx_, tokens, buffers.places().slots, sampling.logit_slots,
                          target_tokens_, rounds_->drafts(depth));
}

void DraftRunner::place_rows(int depth) {
  ops::RowPlaces places = row_buffers(depth).places();
  if (depth == 0) places.logit_slots = row_buffers(depth).sampling().logit_slots;
  if (depth == 1) places.sources = row_buffers(depth).sources();
  const ops::RoundState& state = rounds_->state();
  ops::place_rows(ctx_, places, depth == 0 ? state.wrong_first : state.wrong_next, state.last_rows);
}

Tensor DraftRunner::host_box(int depth, std::int64_t side) const {
  return host_tokens_.tensor(DType::kI32, {tokens_.dim(1)},
                             side * tokens_.bytes() + 4 * depth * tokens_.dim(1));
}

const std::int32_t* DraftRunner::last_box(int depth) {
  return host_box(depth, (row_buffers(depth).num_replayed() + 1) % 2).ptr<std::int32_t>();
}

}  // namespace sluice
