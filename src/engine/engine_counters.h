// The engine's counters: written by its thread after each step, read by any.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>

#include "engine/engine.h"
#include "runtime/expert_balancer.h"
#include "scheduler/scheduler.h"

namespace sluice {

class EngineCounters {
 public:
  // Engine thread.
  void update(const SchedulerStats& stats);
  // `layers`: whose choices are served; may be empty.
  // First before the steps of requests: choices of earlier ones do not count.
  void update(const ExpertReport& report, std::span<const ExpertLayer> layers);
  // `computed`: prompt tokens of the step's prefill chunks. `ran_graph`: as a recorded graph.
  void step_done(double seconds, int generated, int computed, bool ran_graph);
  void numerics_error() { numerics_errors_.fetch_add(1, std::memory_order_relaxed); }
  void set_busy(bool busy);

  // Any thread.
  EngineStats read(std::int64_t max_total_tokens, int waiting) const;
  int queued() const { return queued_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;

  std::atomic<int> queued_{0};
  std::atomic<std::uint64_t> numerics_errors_{0};

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  SchedulerStats scheduler_;
  std::uint64_t steps_ = 0;
  StepTokens step_tokens_;
  std::uint64_t generated_ = 0;
  double hit_rate_ = 0;
  double last_step_s_ = 0;
  double step_s_ = 0;
  bool ran_graph_ = false;
  ExpertReport experts_;
  bool has_experts_ = false;
  // [layers][groups]; of steps since the first update
  std::vector<std::vector<std::int64_t>> expert_choices_, choices_at_start_;
  std::vector<int> expert_layers_;
  std::deque<std::pair<std::int64_t, std::int64_t>> retractions_;  // (steps, all retractions then)
  bool busy_ = false;
  Clock::time_point last_progress_ = Clock::now();
  Clock::time_point busy_since_ = last_progress_;
  std::deque<std::pair<Clock::time_point, int>> recent_;  // tokens of the steps of the last seconds
};

}  // namespace sluice
