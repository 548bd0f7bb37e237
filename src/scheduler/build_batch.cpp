#include <algorithm>
#include <utility>

#include "batch/draft_paths.h"
#include "scheduler/dp_scheduler.h"

namespace sluice {

void DpScheduler::build_batch(Batch& batch, std::vector<StepInFlightItem>& flight) {
  batch.items.clear();
  batch.token_ids.clear();
  batch.groups.resize(num_page_groups_);
  for (PageRows& rows : batch.groups) {
    rows.offsets.assign(1, 0);
    rows.pages.clear();
  }
  batch.state_slots.clear();
  batch.copies.clear();
  batch.slot_inits.clear();
  batch.logit_rows.clear();
  batch.pooled_rows.clear();
  batch.branches.clear();
  batch.deterministic = false;
  batch.max_drafts = next_drafts_;
  batch.is_round = is_round_;
  rounds_in_flight_ += is_round_;
  rounds_until_look_ = std::max(0, rounds_until_look_ - is_round_);
  flight.clear();

  for (const Item& item : prefills_) build_item(item, false, batch, flight);
  SchedulerStats& stats = shared_counters_.stats;
  stats.last_prefill_tokens += batch.num_tokens();
  stats.prefill_tokens += batch.num_tokens();
  stats.last_prefill_sequences += static_cast<int>(prefills_.size());
  for (const Item& item : decodes_) build_item(item, true, batch, flight);
  // Behind the states of the items.
  for (const Item& item : decodes_)
    for (const PageRef& state : item.sequence->draft_states)
      batch.state_slots.push_back(state.page());
  stats.last_decode_tokens += static_cast<std::int64_t>(decodes_.size());
  stats.decode_tokens += static_cast<std::int64_t>(decodes_.size());

  const bool mixed = !prefills_.empty() && !decodes_.empty();
  stats.last_mixed = stats.last_mixed || mixed;
  const bool has_drafts = batch.token_ids.size() > batch.items.size();
  batch.mode = mixed                ? ForwardMode::kMixed
               : !prefills_.empty() ? ForwardMode::kExtend
               : decodes_.empty()   ? ForwardMode::kIdle
               : has_drafts         ? ForwardMode::kTargetVerify
                                    : ForwardMode::kDecode;
}

void DpScheduler::build_item(const Item& item, bool decode, Batch& batch,
                             std::vector<StepInFlightItem>& flight) {
  Sequence& s = *item.sequence;
  const int first = s.planned;
  const bool is_ahead = is_ahead_of_round() && s.steps_in_flight > 0;
  const bool is_tree = decode && item.count > 1 && !s.draft_parents.empty();
  const DraftPaths paths = is_tree ? paths_of(s.branches.parents) : DraftPaths{};
  const int end = first + (is_tree ? 1 + paths.depth() : item.count);
  const auto index = static_cast<std::int32_t>(batch.items.size());
  const std::int32_t row = batch.num_tokens();
  batch.items.push_back(
      {sequence_id(s.request.request.id, s.choice), s.slot, first, item.count, decode});
  batch.items.back().is_ahead = is_ahead;
  batch.deterministic = batch.deterministic || s.request.request.deterministic;
  const int known_end = std::min(end, s.num_known());
  if (first < known_end)
    batch.token_ids.insert(batch.token_ids.end(), s.tokens.begin() + first,
                           s.tokens.begin() + known_end);
  else
    batch.token_ids.push_back(kTokenFromSlot);
  bool is_best_of_tree = false;
  if (decode) {
    batch.token_ids.insert(batch.token_ids.end(), s.drafts.begin(),
                           s.drafts.begin() + (item.count - 1));
    is_best_of_tree = std::exchange(s.is_tree, false);
    s.drafts.clear();
    s.draft_parents.clear();
  } else if (options_.max_drafts > 0 && end < s.num_known()) {
    batch.items.back().next_token = s.tokens[end];
  }
  // Branches may reach further: they had their pages before paths were left out.
  const auto num_pages = static_cast<std::size_t>(std::max<std::int64_t>(
      (draft_end(end) + kPageSize - 1) / kPageSize, s.branches.first_page + s.branches.num_pages));
  for (int g = 0; g < num_page_groups_; ++g) {
    const std::span<const std::int32_t> all = s.pages[g].pages();
    const auto pages = all.first(std::min(all.size(), num_pages));
    batch.groups[g].pages.insert(batch.groups[g].pages.end(), pages.begin(), pages.end());
    batch.groups[g].offsets.push_back(static_cast<std::int32_t>(batch.groups[g].pages.size()));
  }
  if (state_group_ >= 0) batch.state_slots.push_back(s.state.page());
  build_copies(s, batch);
  build_branches(s, index, batch);
  StepInFlightItem& out = flight.emplace_back();
  out.sequence = &s;
  out.end = end;
  out.decode = decode;
  out.is_round = is_round_;
  out.is_ahead = is_ahead;
  out.draft_kind = s.draft_kind;
  out.is_tree = is_best_of_tree;
  out.next_is_tree = next_drafts_ != 0 && !s.branches.pages.empty();
  out.snapshot = !decode && plan_snapshot(s, batch);
  if (s.needs_init) {
    s.needs_init = false;
    SlotInit& init = batch.slot_inits.emplace_back();
    init.slot = s.slot;
    init.params = s.params;
    init.num_output = s.num_output();
    if (s.params.needs_history()) {
      init.prompt.assign(s.tokens.begin(), s.tokens.begin() + s.num_prompt);
      init.output.assign(s.tokens.begin() + s.num_prompt, s.tokens.end());
    }
  }

  if (s.logprob_next >= 0) {
    const int last = s.num_prompt - 1;  // later rows predict tokens that are not in the prompt
    const int stop = std::min(end, last);
    for (int p = std::max(first, s.logprob_next); p < stop; ++p, ++out.num_prompt_rows)
      batch.logit_rows.push_back({.item = index,
                                  .row = row + p - first,
                                  .position = p + 1,
                                  .sample = false,
                                  .target = s.tokens[p + 1],
                                  .num_top_logprobs = std::max(0, s.params.num_top_logprobs),
                                  .want_hash = s.request.request.want_logits_hash});
    s.logprob_next = stop >= last ? -1 : std::max(s.logprob_next, stop);
  }
  add_pooled_rows(s, index, row, item.count, batch);
  out.num_drafts = decode ? item.count - 1 : 0;
  out.max_tokens = decode ? end - first : end == s.prefill_end && s.wants_token() ? 1 : 0;
  if (out.max_tokens > 0) {
    int top = s.params.num_top_logprobs;
    if (s.request.request.want_logits_hash) top = std::max(0, top);
    for (int i = decode ? 0 : item.count - 1; i < item.count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      batch.logit_rows.push_back({.item = index,
                                  .row = row + i,
                                  .position = first + (is_tree ? paths.depths[at] : i) + 1,
                                  .sample = true,
                                  .num_top_logprobs = top,
                                  .want_hash = s.request.request.want_logits_hash,
                                  .has_mask = s.request.request.make_constraint != nullptr,
                                  .behind = is_tree && i > 0 ? i - s.branches.parents[at] : 1});
    }
    s.samples_in_flight += out.max_tokens;
  }
  s.planned = end;
  s.last_step = step_;
  ++s.steps_in_flight;
}

// The rows of a chunk [s.planned, s.planned + count) whose states make the sequence's vector.
void DpScheduler::add_pooled_rows(const Sequence& s, std::int32_t index, std::int32_t row,
                                  std::int32_t count, Batch& batch) {
  const QueuedRequest& request = s.request.request;
  if (request.pooling == Pooling::kNone) return;
  const int first = s.planned;
  int begin = std::max(first, request.pooled_from), end = first + count;
  if (request.pooling == Pooling::kLast) begin = std::max(begin, s.num_prompt - 1);
  if (request.pooling == Pooling::kFirst) end = std::min(end, request.pooled_from + 1);
  if (begin < end)
    batch.pooled_rows.push_back({.item = index, .row = row + begin - first, .count = end - begin});
}

void DpScheduler::build_copies(Sequence& s, Batch& batch) {
  for (PendingCopy& copy : s.copies) {
    batch.copies.push_back({copy.group, copy.from.page(), copy.to, copy.tokens});
    if (copy.group != state_group_) ++shared_counters_.stats.tail_copies;
    ++num_retired_[copy.group];
    retired_.push_back({step_, copy.group, std::move(copy.from)});  // this step reads it
  }
  s.copies.clear();
}

// Keeps the state before this chunk where another prompt can begin with it (next_stop).
bool DpScheduler::plan_snapshot(Sequence& s, Batch& batch) {
  if (state_group_ < 0 || options_.disable_radix_cache || s.planned <= s.snapshot_at) return false;
  if (s.planned != prompt_boundary(s) && s.planned != s.branch_at) return false;
  if (!ensure(state_group_, 1)) return false;
  PendingState& kept =
      s.snapshots.emplace_back(PendingState{s.planned, PageRef::taken(pools_[state_group_])});
  s.snapshot_at = s.planned;
  batch.copies.push_back({state_group_, s.state.page(), kept.state.page(), 1});
  return true;
}

}  // namespace sluice
