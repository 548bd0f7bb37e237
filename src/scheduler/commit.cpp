#include <algorithm>
#include <numeric>
#include <utility>

#include "batch/draft_paths.h"
#include "scheduler/dp_scheduler.h"

namespace sluice {

void DpScheduler::commit(std::uint64_t step, std::span<const StepInFlightItem> flight,
                         const BatchResult& result, std::vector<Event>& events) {
  check(flight.empty() || (result.token_offsets.size() == flight.size() + 1 &&
                           result.prompt_offsets.size() == flight.size() + 1 &&
                           result.failed.size() == flight.size()),
        "step {}: {} items, but a result of {}, {} and {}", step, flight.size(),
        result.token_offsets.size(), result.prompt_offsets.size(), result.failed.size());
  if (!flight.empty()) rounds_in_flight_ -= flight.front().is_round;
  for (std::size_t i = 0; i < flight.size(); ++i) {
    StepInFlightItem item = flight[i];
    Sequence& s = *item.sequence;
    --s.steps_in_flight;
    s.samples_in_flight -= item.max_tokens;
    if (item.is_ahead) item.end -= s.wrong_drafts;
    s.wrong_drafts = 0;
    s.collected = item.end;
    const Exit exit = s.over ? Exit::kNone : take_result(s, item, i, result, events);
    s.draft_states.clear();
    s.branches = {};
    PendingState kept;
    if (item.snapshot) {
      kept = std::move(s.snapshots.front());
      s.snapshots.pop_front();
    }
    if (exit == Exit::kNone && !s.over && !options_.disable_radix_cache) {
      if (kept.state) publish(s, kept.at, std::move(kept.state));
      if (item.max_tokens > 0 && !std::exchange(s.published, true) && state_group_ < 0)
        publish(s, std::min(s.collected, s.num_known()), {});
    }
    if (s.exit == Exit::kNone && exit != Exit::kNone) {
      leave(s, exit);
    } else {
      if (exit != Exit::kNone) s.exit = exit;
      if (s.exit != Exit::kNone) drain(s);
    }
  }
  while (!retired_.empty() && retired_.front().step <= step) {
    --num_retired_[retired_.front().group];
    retired_.pop_front();
  }
}

// Applies an item's result to a sequence that is not over. Returns the reason to leave, if any.
Exit DpScheduler::take_result(Sequence& s, const StepInFlightItem& item, std::size_t index,
                              const BatchResult& result, std::vector<Event>& events) {
  const std::int32_t prompt_begin = result.prompt_offsets[index];
  const std::int32_t prompt_end = result.prompt_offsets[index + 1];
  const bool failed = result.failed[index] != 0;
  const bool computed_only = s.request.request.max_new_tokens == 0 && item.end == s.prefill_end;
  if (item.max_tokens == 0 && !failed && !computed_only && prompt_begin == prompt_end)
    return Exit::kNone;

  Event& event = events.emplace_back();
  event.request = s.request.request.id;
  event.choice = s.choice;
  FinishReason finished = FinishReason::kNone;
  if (failed) {
    finished = FinishReason::kError;
    event.error = {500, "numerics_error", "",
                   "the logits of this request are not finite; --check-weights names a weight "
                   "that is not"};
  } else {
    check(prompt_end - prompt_begin == item.num_prompt_rows, "{} prompt rows were wanted, {} came",
          item.num_prompt_rows, prompt_end - prompt_begin);
    event.prompt_logprobs.assign(result.prompt_logprobs.begin() + prompt_begin,
                                 result.prompt_logprobs.begin() + prompt_end);
    if (item.max_tokens > 0) {
      finished = take_tokens(s, item, index, result, event);
    } else if (computed_only) {
      finished = FinishReason::kLength;
      count_prompt(s);
    }
  }
  event.prompt_tokens = s.num_prompt;
  event.cached_tokens = s.request.cached_tokens;
  event.reused_tokens = std::max(0, s.reused_tokens);
  event.output_tokens = s.num_output();
  event.drafts = s.draft_counts;
  if (finished == FinishReason::kNone) return Exit::kNone;
  s.over = true;
  end_balance(s);
  finish(s.request, &s, event, finished);
  return failed ? Exit::kFailed : Exit::kFinished;
}

// Takes the tokens in their order, up to the one that ends the sequence. Where fewer came than the
// item has rows for, its last rows are computed again: their drafts were wrong.
FinishReason DpScheduler::take_tokens(Sequence& s, const StepInFlightItem& item, std::size_t index,
                                      const BatchResult& result, Event& event) {
  const std::span<const std::int32_t> tokens = result.tokens_of(index);
  keep_right_branch(s, tokens);
  const int missing = item.max_tokens - static_cast<int>(tokens.size());
  check(missing >= 0, "an item of at most {} tokens brought {}", item.max_tokens, tokens.size());
  if (missing > 0) {
    check(s.steps_in_flight == 0 || item.is_round,
          "rows of a sequence are taken back while {} steps of it are in flight",
          s.steps_in_flight);
    s.planned -= missing;
    s.collected = item.end - missing;
    s.wrong_drafts = missing;
  }
  const bool has_logprobs = s.params.num_top_logprobs >= 0 || s.request.request.want_logits_hash;
  const int output_before = s.num_output();
  FinishReason finished = FinishReason::kNone;
  for (std::size_t i = 0; i < tokens.size() && finished == FinishReason::kNone; ++i) {
    if (has_logprobs)
      event.token_logprobs.push_back(
          result.token_logprobs.at(static_cast<std::size_t>(result.token_offsets[index]) + i));
    finished = append(s, tokens[i], event);
  }
  keep_right_state(s, item, s.num_output() - output_before);
  if (options_.max_drafts > 0) {
    s.draft_counts.is_on = true;
    // The round that is in flight has them already.
    const auto drafts =
        s.steps_in_flight > 0 ? std::span<const std::int32_t>() : result.drafts_of(index);
    s.drafts.assign(drafts.begin(), drafts.end());
    const auto parents = result.draft_parents_of(index);
    s.draft_parents.assign(parents.begin(), parents.end());
    s.is_tree = item.next_is_tree && !parents.empty();
    if (!s.is_tree && is_chain(parents)) s.draft_parents.clear();
    // All tokens but the last confirm a draft.
    const auto taken = static_cast<std::size_t>(s.num_output() - output_before);
    if (item.decode)
      count_drafts(s, item, std::min(taken, std::max<std::size_t>(tokens.size(), 1) - 1));
    if (item.is_tree) count_tree(s, item.num_drafts, tokens);
  }
  return finished;
}

// The state behind the last row whose token was taken; the sequence goes on behind that row.
void DpScheduler::keep_right_state(Sequence& s, const StepInFlightItem& item, int taken) {
  if (s.draft_states.empty() || taken == 0) return;
  if (taken > 1) s.state = std::move(s.draft_states.at(static_cast<std::size_t>(taken) - 2));
  s.planned = s.collected = item.end - item.max_tokens + taken;
}

void DpScheduler::count_drafts(Sequence& s, const StepInFlightItem& item, std::size_t accepted) {
  const int drafted = item.num_drafts;
  ++s.draft_counts.verifications;
  s.draft_counts.drafted += drafted;
  s.draft_counts.accepted += static_cast<int>(accepted);
  const auto right = static_cast<int>(accepted);
  if (s.draft_balance_s) *s.draft_balance_s += token_s_ * static_cast<double>(accepted);
  if (s.branches.parents.empty()) count_chain(s, item.draft_kind, drafted, right);
  SchedulerStats& stats = shared_counters_.stats;
  ++stats.verifications;
  stats.drafted_rows += drafted > 0;
  stats.drafted_tokens += drafted;
  stats.accepted_tokens += static_cast<std::int64_t>(accepted);
  for (std::size_t i = 0; i < accepted; ++i) ++stats.accepted_by_place.at(i);
}

void DpScheduler::end_balance(const Sequence& s) {
  if (s.draft_balance_s) draft_controller_.balance(*s.draft_balance_s);
}

void DpScheduler::count_chain(Sequence& s, DraftKind kind, int drafted, int right) {
  s.draft_acceptance(kind).add(drafted, right, DraftController::kMemoryOfOne);
  draft_controller_.add(drafted, right, kind);
}

// Nodes of a tree count by their ranks, and those of its best chain as a chain's.
void DpScheduler::count_tree(Sequence& s, int drafted, std::span<const std::int32_t> tokens) {
  const BranchPages& from = s.branches;
  std::vector<std::int32_t> right;
  if (from.parents.empty()) {
    right.resize(std::max<std::size_t>(tokens.size(), 1));
    std::iota(right.begin(), right.end(), 0);
  } else {
    right = right_rows(from.parents, from.tokens, tokens);
    int length = 0, accepted = 0;
    std::int32_t last = 0;
    for (std::size_t row = 1; row < from.parents.size(); ++row) {
      if (from.parents[row] != last) continue;
      last = static_cast<std::int32_t>(row);
      const auto place = static_cast<std::size_t>(++length);
      if (accepted + 1 == length && place < right.size() && right[place] == last) ++accepted;
    }
    count_chain(s, DraftKind::kMethod, length, accepted);
  }
  s.rank_acceptance.add(drafted, right, DraftController::kMemoryOfRank);
  draft_controller_.add_tree(drafted, right);
}

void DpScheduler::count_prompt(const Sequence& s) {
  shared_counters_.stats.prompt_tokens += s.num_prompt;
  shared_counters_.stats.prompt_reused_tokens += std::max(0, s.reused_tokens);
}

// The stop rules.
FinishReason DpScheduler::append(Sequence& s, std::int32_t token, Event& event) {
  s.tokens.push_back(token);
  event.tokens.push_back(token);
  const int output = s.num_output();
  if (output == 1) count_prompt(s);
  const bool string = s.matcher != nullptr && s.matcher->push(token);
  if (output > s.params.min_new_tokens && std::ranges::count(s.params.stop_token_ids, token) > 0) {
    event.matched_token = token;
    return FinishReason::kStop;
  }
  if (string && output >= s.params.min_new_tokens) {
    event.matched_stop_string = true;
    return FinishReason::kStop;
  }
  return output >= s.request.request.max_new_tokens ? FinishReason::kLength : FinishReason::kNone;
}

// `s`: null where the choice never began.
void DpScheduler::finish(RequestState& request, const Sequence* s, Event& event,
                         FinishReason reason) {
  event.finish = reason;
  --request.unfinished;
  load_ -= request.load;
  const bool is_whole = reason != FinishReason::kAbort && reason != FinishReason::kError;
  if (is_whole && s != nullptr && s->drafter != nullptr) s->drafter->finish(s->tokens);
  SchedulerStats& stats = shared_counters_.stats;
  stats.retractions_of_ended.add(s == nullptr ? 0 : s->retractions);
  ++(reason == FinishReason::kAbort   ? stats.aborted
     : reason == FinishReason::kError ? stats.failed
                                      : stats.finished);
}

std::vector<std::span<const std::int32_t>> DpScheduler::page_spans(const Sequence& s) const {
  std::vector<std::span<const std::int32_t>> spans;
  for (const PageList& list : s.pages) spans.push_back(list.pages());
  return spans;
}

// Publishes the whole pages of a running sequence to the cache, and switches to the cache's pages
// where they exist.
void DpScheduler::publish(Sequence& s, int end, PageRef snapshot) {
  const int aligned = end / kPageSize * kPageSize;
  if (aligned == 0 || (aligned <= s.lock.tokens && !snapshot)) return;
  PrefixLock lock =
      cache_.insert(s.request.request.cache_namespace, std::span(s.tokens).first(aligned),
                    page_spans(s), std::move(snapshot), true, s.request.request.id);
  for (int g = 0; g < num_page_groups_; ++g) {
    for (int i = 0; i < aligned / kPageSize; ++i) {
      const std::int32_t mine = s.pages[g][i];
      const std::int32_t shared = lock.pages[g][i];
      if (mine != kNoPage && shared != kNoPage && mine != shared)
        retire(s, g, s.pages[g].replace(i, shared));
    }
  }
  s.lock = std::move(lock);
}

// Leaves the computed tokens of a sequence to the cache.
void DpScheduler::store(Sequence& s) {
  const int valid = std::min(s.collected, s.num_known());
  if (options_.disable_radix_cache || s.exit == Exit::kFailed || valid == 0) return;
  PageRef snapshot;
  if (state_group_ >= 0) {
    // A step beyond the end has advanced the state, and without a state no prompt can begin there.
    if (s.planned != valid || !s.copies.empty()) return;
    snapshot = std::move(s.state);
  }
  cache_.insert(s.request.request.cache_namespace, std::span(s.tokens).first(valid), page_spans(s),
                std::move(snapshot), false, s.request.request.id);
}

void DpScheduler::leave(Sequence& s, Exit exit) {
  running_.erase(std::ranges::lower_bound(running_, s.queue_key, {},
                                          [](const Sequence* r) { return r->queue_key; }));
  if (s.choice == 0) drop_reserved(s.request);
  s.exit = exit;
  draining_.push_back(&s);
  drain(s);
}

// The only way out: when no step in flight names the sequence, its pages, lock, state and slot are
// released.
void DpScheduler::drain(Sequence& s) {
  if (s.steps_in_flight > 0) return;
  rounds_until_look_ = 0;
  std::erase(draining_, &s);
  store(s);
  s.reset_run();
  free_slots_.push_back(std::exchange(s.slot, -1));
  if (std::exchange(s.exit, Exit::kNone) == Exit::kRetracted)
    queue(s);
  else
    erase(s);
}

void DpScheduler::erase(Sequence& s) {
  RequestState& request = s.request;
  request.sequences[s.choice].reset();
  --request.num_live;
  if (request.gone()) shared_counters_.gone.push_back(request.request.id);
}

void DpScheduler::unqueue(Sequence& s) {
  waiting_.erase(s.queue_key);
  count_admitted(s.request);
}

void DpScheduler::fail(Sequence& s, std::vector<Event>& events) {
  Event& event = events.emplace_back();
  event.request = s.request.request.id;
  event.choice = s.choice;
  event.prompt_tokens = s.num_prompt;
  event.cached_tokens = s.request.cached_tokens;
  event.reused_tokens = std::max(0, s.reused_tokens);
  event.output_tokens = s.num_output();
  event.drafts = s.draft_counts;
  event.error = {
      503, "kv_exhausted", "",
      fmt::format("the KV cache cannot hold the {} tokens of this request", s.num_known() + 1)};
  s.over = true;
  finish(s.request, &s, event, FinishReason::kError);
  if (s.slot >= 0) {
    leave(s, Exit::kFinished);
  } else {
    unqueue(s);
    erase(s);
  }
}

void DpScheduler::abort(RequestState& request, const Fault& fault, std::vector<Event>& events) {
  for (int choice = 0; choice < request.request.num_choices; ++choice) {
    Sequence* s = request.sequences[choice].get();
    const bool unborn = choice >= request.next_choice;
    if (s == nullptr ? !unborn : s->over) continue;
    Event& event = events.emplace_back();
    event.request = request.request.id;
    event.choice = choice;
    event.prompt_tokens = request.num_prompt();
    event.cached_tokens = request.cached_tokens;
    event.reused_tokens = s == nullptr ? 0 : std::max(0, s->reused_tokens);
    event.output_tokens = s == nullptr ? 0 : s->num_output();
    if (s != nullptr) event.drafts = s->draft_counts;
    event.error = fault;
    finish(request, s, event, FinishReason::kAbort);
    if (s == nullptr) continue;
    s->over = true;
    end_balance(*s);
    if (s->slot < 0) {
      unqueue(*s);
      erase(*s);
    } else if (s->exit == Exit::kNone) {
      leave(*s, Exit::kFinished);
    } else {
      s->exit = Exit::kFinished;
    }
  }
  request.next_choice = request.request.num_choices;
  if (request.gone()) shared_counters_.gone.push_back(request.request.id);
}

}  // namespace sluice
