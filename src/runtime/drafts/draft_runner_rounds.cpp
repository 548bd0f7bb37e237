// Rounds (Batch::is_round): the runs of a draft behind a step of which only the device knows which
// drafts were right. All rows of the step are slots of the first run; the device chooses behind the
// last right one of each sequence, and places the rows of the runs behind it.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/tokens.h"
#include "runtime/drafts/draft_runner.h"
#include "tensor/copy.h"

namespace sluice {

std::int64_t DraftRunner::max_round_rows() const {
  if (rounds_ == nullptr || !first_rows_) return 0;
  std::int64_t rows = std::min(limits_.first_run_rows(), limits_.row_runs);
  for (std::size_t depth = 0; depth < graphs_.size(); ++depth) {
    const std::vector<std::int64_t>& sizes = graphs_[depth]->sizes(depth == 0);
    const std::int64_t largest = sizes.empty() ? 0 : sizes.back();
    // Behind the first run each sequence has one row.
    if (depth == 0 || largest < limits_.max_sequences) rows = std::min(rows, largest);
  }
  return rows;
}

// Each row of the step holds a state, and chose the token behind it.
void DraftRunner::build_round(const Batch& batch) {
  pass_.groups.resize(batch.groups.size());
  begin_pass();
  rows_.clear();
  round_slots_.clear();
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(batch.items.size()); ++i) {
    const BatchItem& item = batch.items[static_cast<std::size_t>(i)];
    add_item(batch, i, item.first, item.count);
    pass_.items.back().slot = i;
    round_slots_.insert(round_slots_.end(), static_cast<std::size_t>(item.count), item.slot);
    for (std::int32_t k = 0; k < item.count; ++k)
      pass_.token_ids.push_back(kDraftFromSlot - pass_.num_tokens());
    rows_.push_back({.item = i,
                     .position = item.first + item.count - 1,
                     .state = pass_.num_tokens() - 1,
                     .chosen = i});
  }
  from_.resize(round_slots_.size());
  std::iota(from_.begin(), from_.end(), 0);
  pass_.mode = ForwardMode::kTargetVerify;
  pass_.is_round = true;
}

DraftRunner::Sent DraftRunner::run_round(const Batch& batch) {
  const int most = std::min(batch.max_drafts, limits_.max_drafts);
  check(rounds_ != nullptr && most > 0 && batch.mode == ForwardMode::kTargetVerify,
        "a step of mode {} with {} drafts behind it is no round", static_cast<int>(batch.mode),
        most);
  make_up(batch);
  build_round(batch);
  Sent sent;
  for (int depth = 0; depth < most; ++depth) {
    if (depth > 0) {
      check(build_next(batch) && rows_.size() == batch.items.size(),
            "draft {} of a round lacks pages", depth);
      pass_.is_round = true;
      round_slots_.clear();
      for (const Row& row : rows_)
        round_slots_.push_back(batch.items[static_cast<std::size_t>(row.item)].slot);
    }
    check(replay(depth), "a round of {} rows does not fit a run of the draft", pass_.num_tokens());
    send(depth, sent);
  }
  backlog_.keep_only(batch.items);
  if (ctx_.device.kind != DeviceKind::kCpu) {
    sent.turn = round_turn_;
    round_done_[round_turn_].record(stream_);
    round_turn_ = 1 - round_turn_;
  }
  return sent;
}

// What the last run of a depth chose. On a GPU it is there once the round is done, and stays until
// the run after the next one.
void DraftRunner::send(int depth, Sent& sent) {
  if (ctx_.device.kind != DeviceKind::kCpu) {
    sent.tokens.push_back(last_box(depth));
    return;
  }
  const auto* const tokens = tokens_.at(depth).ptr<std::int32_t>();
  const std::vector<std::int32_t>& copy =
      sent.copies.emplace_back(tokens, tokens + pass_.num_tokens());
  sent.tokens.push_back(copy.data());
}

void DraftRunner::collect_round(const Batch& batch, const Sent& sent, BatchResult& result) {
  if (ctx_.device.kind != DeviceKind::kCpu) round_done_[sent.turn].wait();
  const std::span<const std::int32_t> target_tokens = model_.target_tokens();
  result.draft_offsets.assign(1, 0);
  result.drafts.clear();
  std::size_t row = 0;
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    const std::size_t count = result.tokens_of(i).size();
    for (std::size_t depth = 0; depth < sent.tokens.size() && count > 0; ++depth) {
      const std::int32_t token = sent.tokens[depth][depth == 0 ? row + count - 1 : i];
      if (token < 0) {  // what is not finite ends the drafts
        warn_not_finite();
        break;
      }
      result.drafts.push_back(
          target_tokens.empty() ? token : target_tokens[static_cast<std::size_t>(token)]);
    }
    row += static_cast<std::size_t>(batch.items[i].count);
    result.draft_offsets.push_back(static_cast<std::int32_t>(result.drafts.size()));
  }
}

}  // namespace sluice
