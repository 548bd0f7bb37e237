#include "scheduler/scheduler.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "scheduler/dp_scheduler.h"

namespace sluice {
namespace {

constexpr int kMaxChoices = 128;

SchedulerOptions checked(SchedulerOptions options) {
  require(options.max_running_requests >= 1, "max_running_requests is {}; it must be at least 1",
          options.max_running_requests);
  require(options.chunked_prefill_tokens >= 1 || options.chunked_prefill_tokens == -1,
          "chunked_prefill_tokens is {}; it must be at least 1, or -1 to leave prompts whole",
          options.chunked_prefill_tokens);
  require(options.schedule_conservativeness > 0,
          "schedule_conservativeness is {}; it must be above 0", options.schedule_conservativeness);
  require(options.dp_size >= 1 && options.max_steps_in_flight >= 1 && options.max_context >= 1,
          "dp_size {}, max_steps_in_flight {} and max_context {} must be at least 1",
          options.dp_size, options.max_steps_in_flight, options.max_context);
  require(
      options.max_drafts >= 0 &&
          (options.max_drafts == 0 || !options.pipelined || options.max_steps_in_flight == 1),
      "max_drafts is {} with {} steps in flight; drafts in a pipeline need 1, and are 0 or more",
      options.max_drafts, options.max_steps_in_flight);
  require(options.draft_branches >= 1 && options.draft_branches < 64,
          "draft_branches is {}; it must be 1 to 63", options.draft_branches);
  require(options.draft_branches == 1 || options.groups.empty() ||
              options.groups.back().retention != Retention::kState,
          "draft_branches is {}, and a group of states keeps those of chains; it must be 1",
          options.draft_branches);
  require(options.max_draft_rows == 0 || options.max_draft_rows >= options.max_running_requests,
          "max_draft_rows is {} for {} running requests; each has a row at least",
          options.max_draft_rows, options.max_running_requests);
  require(!options.groups.empty(), "the model keeps neither pages nor states");
  for (const PageGroup& group : options.groups) {
    require(group.num_pages >= 1, "group {} has {} pages; it needs at least 1", group.name,
            group.num_pages);
    const bool spans =
        group.retention == Retention::kWindow || group.retention == Retention::kChunk;
    require(!spans || group.span >= 1, "group {} has a span of {} tokens; it must be at least 1",
            group.name, group.span);
  }
  return options;
}

}  // namespace

struct Scheduler::Table {
  std::unordered_map<std::uint64_t, std::unique_ptr<RequestState>> requests;
  std::set<std::pair<double, std::uint64_t>> deadlines;
  SchedulerCounters shared_counters;
  std::uint64_t next_arrival = 0;
};

struct Scheduler::StepInFlight {
  std::uint64_t step = 0;
  std::vector<std::vector<StepInFlightItem>> dp;
};

Scheduler::Scheduler(SchedulerOptions options)
    : options_(checked(std::move(options))), table_(std::make_unique<Table>()) {
  table_->shared_counters.stats.accepted_by_place.resize(
      static_cast<std::size_t>(options_.max_drafts));
  table_->shared_counters.stats.steps_by_drafts.resize(
      static_cast<std::size_t>(options_.max_drafts) + 1);
  is_lost_.resize(static_cast<std::size_t>(options_.dp_size));
  for (int dp = 0; dp < options_.dp_size; ++dp)
    groups_.push_back(std::make_unique<DpScheduler>(options_, table_->shared_counters));
}

Scheduler::~Scheduler() {
  table_->requests.clear();  // sequences refer to pages and nodes of the groups
}

Result<Ok> Scheduler::admissible(const QueuedRequest& request) const {
  const std::int64_t prompt = static_cast<std::int64_t>(request.prompt_ids.size());
  if (prompt == 0)
    return Fault{400, "invalid_value", "prompt", "the prompt has no tokens; it needs at least 1"};
  if (request.num_choices < 1 || request.num_choices > kMaxChoices || request.max_new_tokens < 0)
    return Fault{400, "invalid_value", "n",
                 fmt::format("n is {}, max_new_tokens is {}; allowed are 1 to {}, and 0 or more",
                             request.num_choices, request.max_new_tokens, kMaxChoices)};
  const std::int64_t longest = options_.max_context - (request.max_new_tokens > 0);
  if (prompt > longest)
    return Fault{
        400, "context_length_exceeded", "prompt",
        fmt::format("the prompt has {} tokens; the context of {} tokens leaves room for {}", prompt,
                    options_.max_context, longest)};
  const std::int64_t total =
      std::min<std::int64_t>(prompt + request.max_new_tokens, options_.max_context);
  // the key of the last generated token is never read
  const std::int64_t stored = std::max(prompt, total - 1);
  for (const PageGroup& group : options_.groups) {
    const std::int64_t pages = DpScheduler::pages_alone(group, stored);
    if (pages > group.num_pages)
      return Fault{
          400, "context_length_exceeded", "max_tokens",
          fmt::format("{} prompt tokens and {} new ones need {} pages of {} tokens in group {}; "
                      "there are {}. "
                      "Ask for fewer tokens, or give the KV cache more memory",
                      prompt, total - prompt, pages, kPageSize, group.name, group.num_pages)};
  }
  const SchedulerCounters& shared_counters = table_->shared_counters;
  if (shared_counters.queued_requests >= options_.max_queued_requests)
    return Fault{429, "queue_full", "",
                 fmt::format("{} requests wait; the queue takes {}",
                             shared_counters.queued_requests, options_.max_queued_requests)};
  if (shared_counters.queued_requests > 0 &&
      shared_counters.queued_tokens + prompt > options_.max_queued_tokens)
    return Fault{
        429, "queue_full", "",
        fmt::format("requests of {} prompt tokens wait, this one has {}; the queue takes {}",
                    shared_counters.queued_tokens, prompt, options_.max_queued_tokens)};
  return Ok{};
}

Result<Ok> Scheduler::add(QueuedRequest request) {
  check(!table_->requests.contains(request.id), "request {} is here already", request.id);
  Result<Ok> verdict = admissible(request);
  if (!verdict.ok()) return verdict;
  check(request.stop_matchers.empty() ||
            static_cast<int>(request.stop_matchers.size()) == request.num_choices,
        "{} stop matchers for {} choices", request.stop_matchers.size(), request.num_choices);
  if (!request.ignore_eos)
    for (std::int32_t id : request.eos_ids)
      if (std::ranges::count(request.params.stop_token_ids, id) == 0)
        request.params.stop_token_ids.push_back(id);
  const int prompt = static_cast<int>(request.prompt_ids.size());
  request.max_new_tokens = std::min(request.max_new_tokens, options_.max_context - prompt);

  auto state = std::make_unique<RequestState>();
  state->arrival = table_->next_arrival++;
  // A prefix that a group has in its cache is no work there, and work in another group.
  const auto cached = [&](const auto& group) {
    const bool looks = groups_.size() > 1 && !options_.disable_radix_cache;
    return looks ? group->look_up_prefix(request).usable_tokens : 0;
  };
  // Lost groups come last.
  auto least = std::ranges::min_element(groups_, {}, [&](const auto& group) {
    return std::pair(static_cast<bool>(is_lost_[static_cast<std::size_t>(&group - &groups_[0])]),
                     group->load() - cached(group));
  });
  state->load = prompt + request.max_new_tokens - cached(*least);
  state->dp = static_cast<int>(least - groups_.begin());
  state->request = std::move(request);
  const QueuedRequest& kept = state->request;
  if (kept.deadline_s < std::numeric_limits<double>::infinity())
    table_->deadlines.emplace(kept.deadline_s, kept.id);
  (*least)->enqueue(*state);
  table_->requests.emplace(kept.id, std::move(state));
  return Ok{};
}

bool Scheduler::abort(std::uint64_t request_id, std::vector<Event>& events) {
  auto it = table_->requests.find(request_id);
  if (it == table_->requests.end() || it->second->unfinished == 0) return false;
  groups_[it->second->dp]->abort(*it->second, {499, "aborted", "", "the request was aborted"},
                                 events);
  forget_finished();
  return true;
}

void Scheduler::lose_group(int group, const Fault& fault, std::vector<Event>& events) {
  is_lost_.at(static_cast<std::size_t>(group)) = true;
  check(std::ranges::count(is_lost_, false) > 0, "all {} groups are lost", is_lost_.size());
  for (const auto& [id, request] : table_->requests) {
    if (request->dp != group || request->unfinished == 0) continue;
    const std::size_t first_event = events.size();
    groups_[static_cast<std::size_t>(group)]->abort(*request, fault, events);
    for (std::size_t i = first_event; i < events.size(); ++i)
      events[i].finish = FinishReason::kError;
  }
  forget_finished();
}

void Scheduler::expire(double now_s, std::vector<Event>& events) {
  auto& deadlines = table_->deadlines;
  while (!deadlines.empty() && deadlines.begin()->first < now_s) {
    RequestState& request = *table_->requests.at(deadlines.begin()->second);
    deadlines.erase(deadlines.begin());
    if (request.unfinished > 0)
      groups_[request.dp]->abort(
          request, {504, "timeout", "", "the request did not finish by its deadline"}, events);
  }
  forget_finished();
}

void Scheduler::forget_finished() {
  for (std::uint64_t id : table_->shared_counters.gone) {
    auto it = table_->requests.find(id);
    if (it == table_->requests.end()) continue;
    table_->deadlines.erase({it->second->request.deadline_s, id});
    table_->requests.erase(it);
  }
  table_->shared_counters.gone.clear();
}

bool Scheduler::has_work() const {
  return !table_->requests.empty() || !flights_.empty();
}

bool Scheduler::next(Step& step, std::vector<Event>& events) {
  if (steps_in_flight() >= options_.max_steps_in_flight || table_->requests.empty()) return false;
  const bool is_ahead = steps_in_flight() > 0;
  if (is_ahead && std::ranges::any_of(groups_, [](auto& group) { return group->awaits_tokens(); }))
    return false;
  std::unique_ptr<StepInFlight> flight;
  if (spare_flights_.empty()) {
    flight = std::make_unique<StepInFlight>();
    flight->dp.resize(groups_.size());
  } else {
    flight = std::move(spare_flights_.back());
    spare_flights_.pop_back();
  }
  SchedulerStats& stats = table_->shared_counters.stats;
  stats.last_prefill_tokens = stats.last_decode_tokens = stats.last_hit_tokens = 0;
  stats.last_prefill_sequences = 0;
  stats.last_mixed = false;
  step.dp.resize(groups_.size());
  step.global_tokens.resize(groups_.size());
  bool any = false;
  for (std::size_t dp = 0; dp < groups_.size(); ++dp) {
    groups_[dp]->plan(next_step_, is_ahead, step.dp[dp], flight->dp[dp], events);
    step.global_tokens[dp] = step.dp[dp].num_tokens();
    any = any || !flight->dp[dp].empty();
  }
  forget_finished();
  if (!any) {
    spare_flights_.push_back(std::move(flight));
    return false;
  }
  ++stats.steps;
  stats.mixed_steps += stats.last_mixed;
  step.id = flight->step = next_step_++;
  step.hash = options_.hash_steps ? hash_step(step) : 0;
  flights_.push_back(std::move(flight));
  return true;
}

void Scheduler::commit(const Step& step, const StepResult& result, std::vector<Event>& events) {
  check(!flights_.empty() && flights_.front()->step == step.id && result.step_id == step.id,
        "step {} is committed with result {}, but {} is the oldest in flight", step.id,
        result.step_id, flights_.empty() ? 0 : flights_.front()->step);
  check(result.dp.size() == groups_.size(), "a result of {} data-parallel groups, there are {}",
        result.dp.size(), groups_.size());
  std::unique_ptr<StepInFlight> flight = std::move(flights_.front());
  flights_.erase(flights_.begin());
  for (std::size_t dp = 0; dp < groups_.size(); ++dp)
    groups_[dp]->commit(step.id, flight->dp[dp], result.dp[dp], events);
  spare_flights_.push_back(std::move(flight));
  forget_finished();
}

PrefixLookup Scheduler::look_up_prefix(const Request& request) const {
  PrefixLookup best;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    if (is_lost_[group]) continue;
    PrefixLookup found = groups_[group]->look_up_prefix(request);
    if (std::pair(found.usable_tokens, found.common_tokens) >=
        std::pair(best.usable_tokens, best.common_tokens))
      best = std::move(found);
  }
  return best;
}

void Scheduler::flush_cache() {
  for (auto& group : groups_) group->flush_cache();
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = table_->shared_counters.stats;
  for (const PageGroup& group : options_.groups)
    stats.groups.push_back({.name = group.name, .retention = group.retention});
  for (std::size_t group = 0; group < groups_.size(); ++group)
    groups_[group]->add_stats(stats, !is_lost_[group]);
  stats.queued_tokens = table_->shared_counters.queued_tokens;
  stats.steps_in_flight = steps_in_flight();
  return stats;
}

void Scheduler::check_invariants() const {
  for (const auto& group : groups_) group->check_invariants();
}

}  // namespace sluice
