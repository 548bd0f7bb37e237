#include <algorithm>
#include <limits>

#include "scheduler/dp_scheduler.h"

namespace sluice {
namespace {

constexpr int kRatioSteps = 600;  // steps in which the reserved share falls to its minimum
// tokens per sequence, added when the share is estimated anew
constexpr int kRetractionHeadroom = 20;

}  // namespace

std::int64_t DpScheduler::pages_alone(const PageGroup& group, std::int64_t tokens) {
  const std::int64_t all = (tokens + kPageSize - 1) / kPageSize;
  if (group.retention == Retention::kState) return 1;
  if (group.retention == Retention::kFull) return all;
  return std::min(all, (group.span + kPageSize - 2) / kPageSize +
                           1);  // maximum number of pages that `span` consecutive tokens touch
}

void DpScheduler::plan(std::uint64_t step, bool is_ahead, Batch& batch,
                       std::vector<StepInFlightItem>& flight, std::vector<Event>& events) {
  step_ = step;
  is_ahead_ = is_ahead;
  retracted_ = is_round_ = false;
  prefills_.clear();
  decodes_.clear();
  const bool cut = options_.chunked_prefill_tokens > 0;
  budget_ = cut ? options_.chunked_prefill_tokens : options_.max_prefill_tokens;
  const int max_decodes = max_decode_rows();
  int num_decodes = 0;
  for (const Sequence* s : running_) num_decodes += may_decode(*s);
  budget_ -= std::min(num_decodes, max_decodes);

  // Oldest first: a sequence that is retracted for an older one has not been planned yet.
  for (std::size_t i = 0; i < running_.size();) {
    Sequence& s = *running_[i];
    Room room = Room::kWait;
    if (s.last_step == step_) {  // forked just now
    } else if (s.in_prefill()) {
      room = plan_prefill(s, events);
    } else if (may_decode(s) && static_cast<int>(decodes_.size()) < max_decodes) {
      room = make_room(s, s.planned + 1, events);
      if (room == Room::kReady) decodes_.push_back({&s, 1});
    }
    if (room != Room::kGone) ++i;
  }
  if (!retracted_ && !is_ahead_of_round()) admit(events);
  if (options_.max_drafts > 0) plan_drafts();
  if (!decodes_.empty())
    ratio_ = std::max(min_ratio_, ratio_ - (initial_ratio_ - min_ratio_) / kRatioSteps);
  build_batch(batch, flight);
}

// Whether the sequence is past its prompt, wants a token more, and has the one before it.
bool DpScheduler::may_decode(const Sequence& s) const {
  return !s.in_prefill() && s.wants_token() && !(options_.pipelined && s.samples_in_flight > 0);
}

// Without a pipeline all sequences decode in every step. Else the steps in flight share them.
int DpScheduler::max_decode_rows() const {
  if (!options_.pipelined) return std::numeric_limits<int>::max();
  const auto num_decoding = static_cast<int>(std::ranges::count_if(
      running_, [](const Sequence* s) { return !s->in_prefill() && s->wants_token(); }));
  const int steps = options_.max_steps_in_flight;
  const int share = std::max(1, (num_decoding + steps - 1) / steps);
  return options_.max_micro_batch > 0 ? options_.max_micro_batch : share;
}

// The maximum end of the next chunk.
int DpScheduler::next_stop(const Sequence& s) const {
  int stop = s.prefill_end;
  if (s.choice == 0 && s.request.awaits_fork() && s.planned < s.num_prompt - 1)
    stop = s.num_prompt - 1;
  // States are saved at two lengths. The first is the last page boundary before the prompt's last
  // token, where the same prompt can begin. The second is the length at which the prompt diverges
  // from earlier ones, so that the next prompt with that beginning need not compute it. (store()
  // saves a third when the sequence ends.)
  if (state_group_ >= 0 && !options_.disable_radix_cache)
    for (const int place : {prompt_boundary(s), s.branch_at})
      if (s.planned < place) stop = std::min(stop, place);
  return stop;
}

DpScheduler::Room DpScheduler::plan_prefill(Sequence& s, std::vector<Event>& events) {
  const bool forks = s.choice == 0 && s.request.awaits_fork() && s.planned == s.num_prompt - 1;
  int count = next_stop(s) - s.planned;
  if (forks) {
    const int rows = s.request.request.num_choices - s.request.next_choice + 1;
    if (budget_ < rows && !prefills_.empty())
      return Room::kWait;  // these sequences have slots, so alone they always fit
  } else if (options_.chunked_prefill_tokens > 0) {
    count = std::min(count, budget_);
  } else if (count > budget_ && !prefills_.empty()) {
    return Room::kWait;
  }
  if (count <= 0) return Room::kWait;
  free_behind_window(s);
  int end = std::min(s.planned + count, memory_end(s));
  if (end <= s.planned || !grow(s, end)) {
    const int before = s.planned;
    const Room room = make_room(s, s.planned + 1, events);
    if (room != Room::kReady) return room;
    if (s.planned != before) return plan_prefill(s, events);  // restarts once from the beginning
    end = std::min(s.planned + count, memory_end(s));
    if (!grow(s, end)) end = s.planned + 1;
  }
  prefills_.push_back({&s, end - s.planned});
  budget_ -= end - s.planned;
  s.last_step = step_;
  if (forks) fork(s);
  return Room::kReady;
}

// The maximum end for which pages exist or can be evicted.
int DpScheduler::memory_end(const Sequence& s) const {
  std::int64_t pages = std::numeric_limits<std::int32_t>::max() / kPageSize;
  for (int g = 0; g < num_page_groups_; ++g)
    pages = std::min(pages, s.pages[g].size() + pools_[g].num_available());
  return static_cast<int>(pages * kPageSize);
}

// Gets pages for the tokens before `end`, if necessary by retracting newer sequences. kGone: s has
// ended.
DpScheduler::Room DpScheduler::make_room(Sequence& s, int end, std::vector<Event>& events) {
  free_behind_window(s);
  while (!grow(s, end)) {
    // Pages about to return will suffice, or the next attempt continues.
    if (!draining_.empty() || num_retired_[lacking_group_] > 0) return Room::kWait;
    if (Sequence* newest = running_.back(); newest != &s) {
      if (newest->last_step == step_) return Room::kWait;
      retract(*newest);
      continue;
    }
    // An older sequence is running. It will end, or take these pages.
    if (running_.size() > 1 || s.steps_in_flight > 0) return Room::kWait;
    if (s.copies.empty()) {
      fail(s, events);
      return Room::kGone;
    }
    // The pages to copy from are missing: compute those tokens instead.
    s.reset_run();
    if (!take_prefix(s, true)) {
      fail(s, events);
      return Room::kGone;
    }
    end = 1;
  }
  return Room::kReady;
}

bool DpScheduler::ensure(int group, std::int64_t num_pages) {
  const std::int64_t missing = num_pages - pools_[group].num_free();
  if (missing > 0 && pools_[group].num_evictable() > 0) cache_.evict(group, missing);
  return pools_[group].num_free() >= num_pages;
}

bool DpScheduler::grow(Sequence& s, int end) {
  const std::int64_t needed = (end + kPageSize - 1) / kPageSize;
  for (int g = 0; g < num_page_groups_; ++g) {
    PageList& list = s.pages[g];
    if (list.size() >= needed) continue;
    ensure(g, needed - list.size());
    while (list.size() < needed) {
      if (list.append_new()) continue;
      lacking_group_ = g;
      return false;
    }
  }
  return true;
}

// Releases the pages that no later token reads.
void DpScheduler::free_behind_window(Sequence& s) {
  for (int g = 0; g < num_page_groups_; ++g) {
    const PageGroup& info = options_.groups[g];
    if (info.retention == Retention::kFull) continue;
    const std::int64_t keep =
        std::min(info.keep_from(s.planned_for_sure()) / kPageSize, s.pages[g].size());
    // Holes are in front, so the search from the back ends at the first hole.
    for (std::int64_t i = keep; i > 0 && s.pages[g][i - 1] != kNoPage; --i)
      retire(s, g, s.pages[g].remove(i - 1));
  }
}

void DpScheduler::retire(Sequence& s, int group, PageRef page) {
  if (s.steps_in_flight == 0) return;  // no step names the page: the reference ends here
  retired_.push_back({s.last_step, group, std::move(page)});
  ++num_retired_[group];
}

void DpScheduler::retract(Sequence& victim) {
  retracted_ = true;
  ++shared_counters_.stats.retractions;
  ++victim.retractions;
  std::int64_t generated = 0;
  std::int64_t at_most = 1;
  for (const Sequence* s : running_) {
    generated += s->num_output() + kRetractionHeadroom;
    at_most += s->request.request.max_new_tokens;
  }
  const double seen = static_cast<double>(generated) / static_cast<double>(at_most);
  ratio_ = std::min(1.0, std::max(ratio_, seen * options_.schedule_conservativeness));
  leave(victim, Exit::kRetracted);
}

}  // namespace sluice
