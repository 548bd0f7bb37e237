#include "scheduler/dp_scheduler.h"

#include <algorithm>

namespace sluice {
namespace {

// As SGLang's: the share begins at 0.7 and falls to 0.14 of that.
constexpr double kInitialRatio = 0.7;
constexpr double kMinRatio = 0.14;

std::vector<PageAllocator> make_pools(const SchedulerOptions& options) {
  std::vector<PageAllocator> pools;
  for (const PageGroup& group : options.groups) pools.emplace_back(group.num_pages);
  return pools;
}

}  // namespace

DpScheduler::DpScheduler(const SchedulerOptions& options, SchedulerCounters& shared_counters)
    : options_(options),
      shared_counters_(shared_counters),
      pools_(make_pools(options)),
      cache_(options.groups, pools_, kPageSize),
      num_retired_(options.groups.size(), 0),
      draft_controller_(options.draft_costs) {
  const bool has_state =
      !options.groups.empty() && options.groups.back().retention == Retention::kState;
  num_page_groups_ = static_cast<int>(options.groups.size()) - has_state;
  if (has_state) state_group_ = num_page_groups_;
  for (int slot = options.max_running_requests - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  initial_ratio_ = ratio_ = std::min(1.0, kInitialRatio * options.schedule_conservativeness);
  min_ratio_ = std::min(1.0, initial_ratio_ * kMinRatio);
}

void DpScheduler::add_stats(SchedulerStats& stats, bool has_pages) const {
  stats.running += static_cast<int>(running_.size() + draining_.size());
  stats.queued += static_cast<int>(waiting_.size());
  stats.evicted_pages += cache_.stats().evicted_pages;
  if (!has_pages) return;
  stats.new_token_ratio = std::max(stats.new_token_ratio, ratio_);
  for (std::size_t g = 0; g < pools_.size(); ++g) {
    PageGroupStats& group = stats.groups[g];
    group.total_pages += pools_[g].num_pages();
    group.used_pages += pools_[g].num_held();
    group.cached_pages += pools_[g].num_evictable();
    group.free_pages += pools_[g].num_free();
  }
}

void DpScheduler::check_invariants() const {
  cache_.check_invariants();
  std::vector<std::vector<std::int32_t>> named;
  for (const PageAllocator& pool : pools_)
    named.emplace_back(static_cast<std::size_t>(pool.num_pages()), 0);
  std::vector<int> slot_users(static_cast<std::size_t>(options_.max_running_requests), 0);
  auto name = [&](std::size_t group, std::int32_t page) {
    if (page != kNoPage) ++named[group][page];
  };
  auto visit = [&](const Sequence& s) {
    ++slot_users.at(static_cast<std::size_t>(s.slot));
    for (int g = 0; g < num_page_groups_; ++g)
      for (std::int32_t page : s.pages[g].pages()) name(g, page);
    for (std::size_t i = 0; i < s.branches.pages.size(); ++i)
      name(i / static_cast<std::size_t>(s.branches.num_pages) %
               static_cast<std::size_t>(num_page_groups_),
           s.branches.pages[i].page());
    // Results of steps beyond the end of a sequence are not recorded.
    check((s.over || s.num_known() + s.samples_in_flight >= s.planned) && s.collected <= s.planned,
          "a sequence of {} tokens, {} planned, {} collected", s.num_known(), s.planned,
          s.collected);
    if (state_group_ >= 0) {
      name(state_group_, s.state.page());
      for (const PageRef& state : s.draft_states) name(state_group_, state.page());
      for (const PendingState& kept : s.snapshots) name(state_group_, kept.state.page());
    }
    for (const PendingCopy& copy : s.copies) name(copy.group, copy.from.page());
  };
  for (const Sequence* s : running_) visit(*s);
  for (const Sequence* s : draining_) visit(*s);
  check(std::ranges::is_sorted(running_, {}, [](const Sequence* s) { return s->queue_key; }),
        "running is out of order");
  for (const Retired& retired : retired_) name(retired.group, retired.page.page());
  for (int slot : free_slots_) ++slot_users.at(slot);
  check(std::ranges::all_of(slot_users, [](int n) { return n == 1; }),
        "a slot has no user, or two");
  check(reserved_slots_ >= 0, "{} slots are reserved", reserved_slots_);
  for (const auto& [key, s] : waiting_)
    check(s->slot < 0 && s->copies.empty() && !s->state && !s->lock.locked() &&
              std::ranges::all_of(
                  s->pages, [](const PageList& list) { return list.size() == 0; }),
          "a waiting sequence holds something");

  for (std::size_t g = 0; g < pools_.size(); ++g) {
    const PageAllocator& pool = pools_[g];
    std::int64_t free = 0, cached = 0, held = 0;
    for (std::int32_t page = 0; page < pool.num_pages(); ++page) {
      const std::int32_t expected = named[g][page] + pool.cached(page);
      check(pool.references(page) == expected, "group {}, page {}: {} references, {} are known",
            options_.groups[g].name, page, pool.references(page), expected);
      ++(expected == 0 ? free : named[g][page] > 0 ? held : cached);
    }
    check(free == pool.num_free() && cached == pool.num_evictable() && held == pool.num_held() &&
              free + cached + held == pool.num_pages(),
          "group {}: {} free + {} cached + {} held of {} pages", options_.groups[g].name, free,
          cached, held, pool.num_pages());
  }
}

}  // namespace sluice
