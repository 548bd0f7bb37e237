#include <algorithm>
#include <cmath>

#include "scheduler/dp_scheduler.h"

namespace sluice {
namespace {

constexpr int kLpmCandidates = 128;  // every step pays a match for each of them
constexpr int kLpmPatience = 64;
// at most this many future tokens are reserved, also for requests that may run longer
constexpr int kMaxExpectedTokens = 4096;

// The most of `known` tokens that may come from the cache. `logprob_next`: see Sequence.
int max_reused(const Request& request, int known, int logprob_next) {
  if (pools_every_token(request.pooling)) return 0;
  const int limit = known - 1;  // at least one token is computed: its logits are needed
  return logprob_next >= 0 ? std::min(limit, logprob_next) : limit;
}

}  // namespace

void DpScheduler::enqueue(RequestState& request) {
  auto s = std::make_unique<Sequence>(request, 0, pools_, num_page_groups_);
  request.sequences.resize(request.request.num_choices);
  request.unfinished = request.request.num_choices;
  request.num_live = 1;
  load_ += request.load * request.unfinished;
  ++shared_counters_.queued_requests;
  shared_counters_.queued_tokens += request.num_prompt();
  queue(*s);
  request.sequences[0] = std::move(s);
}

void DpScheduler::queue(Sequence& s) {
  s.queue_key.priority =
      options_.policy == SchedulePolicy::kPriority ? s.request.request.priority : 0;
  waiting_.emplace(s.queue_key, &s);
  rounds_until_look_ = 0;
}

// The next sequence to admit.
Sequence* DpScheduler::pick() {
  Sequence* first = waiting_.begin()->second;
  if (options_.policy != SchedulePolicy::kLpm || options_.disable_radix_cache) return first;
  if (waiting_.size() > kLpmCandidates || first->passed_over >= kLpmPatience) return first;
  Sequence* best = nullptr;
  std::int64_t best_length = -1;
  for (auto& [key, s] : waiting_) {
    const std::int64_t length = cache_.match_length(s->request.request.cache_namespace, s->tokens);
    if (length > best_length) {
      best = s;
      best_length = length;
    }
  }
  return best;
}

void DpScheduler::admit(std::vector<Event>& events) {
  while (!waiting_.empty() && budget_ > 0) {
    Sequence& s = *pick();
    if (!try_admit(s)) {
      // It runs alone and no page is about to return: it will never fit.
      rounds_until_look_ = kRoundsWithoutLook;
      if (!running_.empty() || !draining_.empty() || !retired_.empty()) return;
      fail(s, events);
      continue;
    }
    if (waiting_.begin()->second != &s) ++waiting_.begin()->second->passed_over;
    waiting_.erase(s.queue_key);
    take_slot(s);
    if (plan_prefill(s, events) != Room::kReady) return;
  }
}

bool DpScheduler::try_admit(Sequence& s) {
  RequestState& request = s.request;
  const int forks = s.choice == 0 ? request.request.num_choices - request.next_choice : 0;
  const int slots = std::min(1 + forks, options_.max_running_requests);
  if (static_cast<int>(free_slots_.size()) - reserved_slots_ < slots) return false;
  s.prefill_end = s.num_known();
  const bool alone = running_.empty() && draining_.empty();
  if (take_prefix(s, false)) {
    if (alone || affordable(s)) return true;
    s.reset_run();
    return false;
  }
  return alone && take_prefix(s, true);
}

PrefixLookup DpScheduler::look_up_prefix(const Request& request) const {
  const int limit =
      max_reused(request, static_cast<int>(request.prompt_ids.size()), request.logprob_start);
  return cache_.look_up(request.cache_namespace, request.prompt_ids, limit);
}

// Shares the cached prefix and takes the further pages of the first step.
bool DpScheduler::take_prefix(Sequence& s, bool cold) {
  const QueuedRequest& request = s.request.request;
  const int limit = max_reused(request, s.num_known(), s.logprob_next);
  if (!cold && !options_.disable_radix_cache)
    s.lock = cache_.match(request.cache_namespace, std::span(s.tokens).first(limit));
  for (int g = 0; g < num_page_groups_; ++g)
    if (s.lock.tokens > 0)
      for (std::int32_t page : s.lock.pages[g]) s.pages[g].append_shared(page);
  s.planned = s.collected = static_cast<int>(s.lock.tokens);
  if (!take_state(s) || !take_tail(s)) {
    s.reset_run();
    return false;
  }
  s.snapshot_at = s.planned;
  s.branch_at = static_cast<int>(s.lock.shared_tokens);
  return true;
}

bool DpScheduler::take_state(Sequence& s) {
  if (state_group_ < 0) return true;
  PageRef source;
  if (s.lock.snapshot != kNoPage) source = PageRef::shared(pools_[state_group_], s.lock.snapshot);
  if (!ensure(state_group_, 1)) return false;
  s.state = PageRef::taken(pools_[state_group_]);
  if (source) s.copies.push_back({state_group_, std::move(source), s.state.page(), 1});
  return true;
}

// Takes a new page for the tokens after the last shared page. Without memory for it those tokens
// are computed again. A state cannot be recomputed from the middle.
bool DpScheduler::take_tail(Sequence& s) {
  if (s.lock.tail_tokens == 0) return true;
  const std::size_t copies_before = s.copies.size();
  for (int g = 0; g < num_page_groups_; ++g)
    s.copies.push_back({g, PageRef::shared(pools_[g], s.lock.tail_pages[g]), kNoPage,
                        static_cast<std::int32_t>(s.lock.tail_tokens)});
  for (int g = 0; g < num_page_groups_; ++g) {
    if (ensure(g, 1)) continue;
    s.copies.erase(s.copies.begin() + static_cast<std::ptrdiff_t>(copies_before), s.copies.end());
    return state_group_ < 0;
  }
  for (int g = 0; g < num_page_groups_; ++g) {
    s.pages[g].append_new();
    s.copies[copies_before + g].to = s.pages[g].pages().back();
  }
  s.planned += static_cast<int>(s.lock.tail_tokens);
  return true;
}

// Maximum number of pages that the sequence is expected to hold at once in a group.
std::int64_t DpScheduler::expected_pages(const Sequence& s, int group) const {
  const int left = std::min(s.request.request.max_new_tokens - s.num_output(), kMaxExpectedTokens);
  const int generated = static_cast<int>(std::ceil(ratio_ * left));
  const PageGroup& info = options_.groups[group];
  std::int64_t pages = pages_alone(info, std::max(s.prefill_end, s.num_known()) + generated);
  if (s.choice == 0 && s.request.awaits_fork())
    pages += (s.request.request.num_choices - s.request.next_choice) *
             pages_alone(info, generated + kPageSize);
  return pages;
}

bool DpScheduler::affordable(const Sequence& s) const {
  for (int g = 0; g < num_page_groups_; ++g) {
    std::int64_t left = pools_[g].num_available();
    for (const Sequence* other : running_)
      left -= std::max<std::int64_t>(0, expected_pages(*other, g) - other->pages[g].num_live());
    if (expected_pages(s, g) - s.pages[g].num_live() > left) return false;
  }
  return true;
}

void DpScheduler::take_slot(Sequence& s) {
  RequestState& request = s.request;
  s.slot = free_slots_.back();
  free_slots_.pop_back();
  s.needs_init = true;
  s.exit = Exit::kNone;
  running_.insert(std::ranges::lower_bound(running_, s.queue_key, {},
                                           [](const Sequence* r) { return r->queue_key; }),
                  &s);
  if (s.choice == 0 && request.awaits_fork()) {
    request.reserved_slots = std::min(request.request.num_choices - request.next_choice,
                                      options_.max_running_requests - 1);
    reserved_slots_ += request.reserved_slots;
  }
  // Once a sequence: what one that was retracted finds again is its own.
  if (s.reused_tokens < 0) {
    s.reused_tokens = s.planned;
    SchedulerStats& stats = shared_counters_.stats;
    stats.last_hit_tokens += s.planned;
    if (!options_.disable_radix_cache) {
      stats.cache_hit_tokens += s.planned;
      stats.cache_query_tokens += s.num_prompt;
    }
  }
  if (request.admitted) return;
  request.cached_tokens = s.planned;
  count_admitted(request);
}

void DpScheduler::count_admitted(RequestState& request) {
  if (std::exchange(request.admitted, true)) return;
  --shared_counters_.queued_requests;
  shared_counters_.queued_tokens -= request.num_prompt();
}

void DpScheduler::drop_reserved(RequestState& request) {
  reserved_slots_ -= std::exchange(request.reserved_slots, 0);
}

// Called when the prompt but its last token is planned: the other choices begin here.
void DpScheduler::fork(Sequence& parent) {
  RequestState& request = parent.request;
  drop_reserved(request);
  bool room = true;
  while (request.awaits_fork()) {
    const int choice = request.next_choice++;
    request.sequences[choice] =
        std::make_unique<Sequence>(request, choice, pools_, num_page_groups_);
    ++request.num_live;
    Sequence& child = *request.sequences[choice];
    child.queue_key.priority = parent.queue_key.priority;
    room =
        room && static_cast<int>(free_slots_.size()) > reserved_slots_ && fork_one(parent, child);
    if (room) {
      take_slot(child);
      child.last_step = step_;
      prefills_.push_back({&child, 1});
      --budget_;
      ++shared_counters_.stats.forks;
    } else {
      child.reset_run();
      queue(child);
    }
  }
}

bool DpScheduler::fork_one(Sequence& parent, Sequence& child) {
  const int at = parent.planned;
  const std::int32_t tail = at % kPageSize;
  child.prefill_end = child.num_known();
  // If this step fills a page of the parent by a copy, the child copies from the same source.
  auto source = [&](int group, std::int32_t page) {
    for (const PendingCopy& copy : parent.copies)
      if (copy.group == group && copy.to == page)
        return PageRef::shared(pools_[group], copy.from.page());
    return PageRef::shared(pools_[group], page);
  };
  for (int g = 0; g < num_page_groups_; ++g) {
    for (int i = 0; i < at / kPageSize; ++i) child.pages[g].append_shared(parent.pages[g][i]);
    if (!ensure(g, 1)) return false;
    child.pages[g].append_new();
    if (tail > 0)
      child.copies.push_back(
          {g, source(g, parent.pages[g][at / kPageSize]), child.pages[g].pages().back(), tail});
  }
  if (state_group_ >= 0) {
    if (!ensure(state_group_, 1)) return false;
    child.state = PageRef::taken(pools_[state_group_]);
    // A state without tokens has nothing to copy.
    if (at > 0)
      child.copies.push_back(
          {state_group_, source(state_group_, parent.state.page()), child.state.page(), 1});
  }
  child.planned = child.snapshot_at = at;
  return true;
}

}  // namespace sluice
