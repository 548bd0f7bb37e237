#include "engine/engine_counters.h"

#include <algorithm>
#include <functional>

namespace sluice {
namespace {

constexpr std::chrono::seconds kThroughputWindow{5};

}  // namespace

void EngineCounters::update(const SchedulerStats& stats) {
  queued_.store(stats.queued, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  scheduler_ = stats;
  if (retractions_.empty() || retractions_.back().first != stats.steps)
    retractions_.emplace_back(stats.steps, stats.retractions);
  while (retractions_.front().first < stats.steps - EngineStats::kRecentSteps)
    retractions_.pop_front();
  const std::int64_t began = stats.last_prefill_tokens + stats.last_hit_tokens;
  if (stats.last_prefill_sequences > 0 && began > 0)
    hit_rate_ = static_cast<double>(stats.last_hit_tokens) / static_cast<double>(began);
}

void EngineCounters::update(const ExpertReport& report, std::span<const ExpertLayer> layers) {
  std::lock_guard lock(mutex_);
  experts_ = report;
  has_experts_ = true;
  std::vector<std::vector<std::int64_t>> choices;
  expert_layers_.clear();
  for (const ExpertLayer& layer : layers) {
    const auto* const first = layer.group_choices.ptr<std::int64_t>();
    choices.emplace_back(first, first + layer.groups);
    expert_layers_.push_back(layer.number);
  }
  // Steps of the start are nobody's.
  if (choices_at_start_.empty()) choices_at_start_ = choices;
  for (std::size_t i = 0; i < choices.size(); ++i)
    std::ranges::transform(choices[i], choices_at_start_[i], choices[i].begin(), std::minus());
  expert_choices_ = std::move(choices);
}

void EngineCounters::step_done(double seconds, int generated, int computed, bool ran_graph) {
  std::lock_guard lock(mutex_);
  ran_graph_ = ran_graph;
  ++steps_;
  step_tokens_.add(generated + computed);
  generated_ += generated;
  last_step_s_ = seconds;
  step_s_ += seconds;
  last_progress_ = Clock::now();
  recent_.emplace_back(last_progress_, generated);
  while (recent_.front().first < last_progress_ - kThroughputWindow) recent_.pop_front();
}

void EngineCounters::set_busy(bool busy) {
  std::lock_guard lock(mutex_);
  // Time without work does not count as time without progress.
  if (busy && !busy_) busy_since_ = last_progress_ = Clock::now();
  busy_ = busy;
}

EngineStats EngineCounters::read(std::int64_t max_total_tokens, int waiting) const {
  EngineStats out;
  std::lock_guard lock(mutex_);
  out.running = scheduler_.running;
  out.queued = scheduler_.queued + waiting;
  out.max_total_tokens = max_total_tokens;
  // The fullest group is what limits. One of windows has fewer pages: its share of them counts.
  // States, one for each request and kept prefix, are no tokens where there are pages as well.
  for (const PageGroupStats& group : scheduler_.groups) {
    const bool states = group.retention == Retention::kState;
    out.kv_groups.push_back(group);
    if (group.total_pages == 0 || (states && scheduler_.groups.size() > 1)) continue;
    const auto tokens = [&](std::int64_t pages) {
      return static_cast<std::int64_t>(static_cast<double>(pages) /
                                       static_cast<double>(group.total_pages) *
                                       static_cast<double>(max_total_tokens));
    };
    out.used_tokens = std::max(out.used_tokens, tokens(group.used_pages));
    out.cached_tokens = std::max(out.cached_tokens, tokens(group.cached_pages));
  }
  out.steps = steps_;
  out.step_tokens = step_tokens_;
  out.mixed_steps = scheduler_.mixed_steps;
  out.prompt_tokens = scheduler_.prompt_tokens;
  out.prompt_reused_tokens = scheduler_.prompt_reused_tokens;
  out.prefix_hit_rate = hit_rate_;
  out.generated_tokens = generated_;
  out.prefix_query_tokens = scheduler_.cache_query_tokens;
  out.prefix_hit_tokens = scheduler_.cache_hit_tokens;
  out.retracted = scheduler_.retractions;
  if (!retractions_.empty())
    out.recently_retracted = scheduler_.retractions - retractions_.front().second;
  out.retractions_of_ended = scheduler_.retractions_of_ended;
  out.new_token_ratio = scheduler_.new_token_ratio;
  out.ran_graph = ran_graph_;
  out.evicted_pages = scheduler_.evicted_pages;
  out.aborted = scheduler_.aborted;
  out.verifications = scheduler_.verifications;
  out.drafted_rows = scheduler_.drafted_rows;
  out.drafted_tokens = scheduler_.drafted_tokens;
  out.accepted_tokens = scheduler_.accepted_tokens;
  out.accepted_by_place = scheduler_.accepted_by_place;
  out.rounds_ahead = scheduler_.rounds_ahead;
  out.steps_by_drafts = scheduler_.steps_by_drafts;
  out.has_expert_load = has_experts_;
  out.expert_balancedness = experts_.balancedness;
  out.expert_rebalances = experts_.rebalances;
  out.expert_changes = experts_.changes;
  out.expert_bytes_moved = experts_.bytes_moved;
  out.expert_move_s = experts_.move_s;
  out.expert_choices = expert_choices_;
  out.expert_layers = expert_layers_;
  out.numerics_errors = numerics_errors_.load(std::memory_order_relaxed);
  const auto now = Clock::now();
  if (busy_)
    out.seconds_since_progress = std::chrono::duration<double>(now - last_progress_).count();
  out.last_step_s = last_step_s_;
  out.step_s = step_s_;
  // A pause before the first of these steps is no part of their time.
  const auto begin = std::max(busy_since_, now - kThroughputWindow);
  std::int64_t tokens = 0;
  for (const auto& [time, count] : recent_)
    if (time >= begin) tokens += count;
  const double span = std::chrono::duration<double>(now - begin).count();
  if (span > 0) out.generation_throughput = static_cast<double>(tokens) / span;
  return out;
}

}  // namespace sluice
