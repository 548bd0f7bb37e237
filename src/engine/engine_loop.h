// The engine's one thread: takes commands in, plans, runs and commits steps, sends events out.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "base/channel.h"
#include "engine/engine.h"
#include "engine/engine_counters.h"
#include "engine/executor.h"
#include "engine/grammar_rows.h"
#include "engine/loop_trace.h"
#include "engine/rank_process.h"
#include "engine/serving_plan.h"
#include "runtime/expert_balancer.h"
#include "scheduler/pooled_states.h"
#include "scheduler/scheduler.h"

namespace sluice {

// What Engine::create has found out and built (startup.cpp).
struct EngineParts {
  Options options;
  ModelConfig config;
  GenerationConfig generation;
  std::string directory;
  ServingPlan plan;
  StartupLedger ledger;
  StopMatcherFactory stop_matchers;
  std::shared_ptr<Trace> trace;                      // null without --trace
  std::unique_ptr<RankCommunicators> communicators;  // over the executor's region; null: one rank
};

class EngineLoop final : public Engine {
 public:
  // The runner refers to parts->config, so the parts stay where they are.
  EngineLoop(std::unique_ptr<EngineParts> parts, std::unique_ptr<Executor> executor);
  ~EngineLoop() override;

  Result<std::uint64_t> submit(Request request, EventSink sink) override;
  bool abort(std::uint64_t request) override;
  void abort_all() override;
  std::optional<PrefixLookup> look_up_prefix(Request request) override;
  bool flush_cache() override;
  void drain() override { draining_.store(true); }
  bool idle() const override;
  EngineStats stats() const override;
  RunReport run_report(bool reset) override;
  const ModelConfig& model_config() const override { return parts_->config; }
  const GenerationConfig& generation_config() const override { return parts_->generation; }
  const std::string& model_directory() const override { return parts_->directory; }
  int context_length() const override { return static_cast<int>(parts_->plan.context_length()); }
  const StartupLedger& ledger() const override { return parts_->ledger; }
  const MemoryPlan& memory_plan() const override { return executor_->first().memory_plan(); }
  std::string dtype_name() const override {
    return std::string(sluice::dtype_name(parts_->plan.numerics().compute));
  }
  std::string failure() const override;
  Trace* trace() const override { return parts_->trace.get(); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Submit {
    QueuedRequest request;
    EventSink sink;
  };
  struct Abort {
    std::uint64_t request;  // 0: every request
  };
  struct Flush {
    std::promise<bool> done;
  };
  struct Report {
    bool reset;
    std::promise<RunReport> done;
  };
  struct LookUp {
    Request request;
    std::promise<PrefixLookup> done;
  };
  struct Lost {};  // a rank
  using Command = std::variant<Submit, Abort, Flush, Report, LookUp, Lost>;

  // A request that is not over.
  struct LiveRequest {
    EventSink sink;
    std::vector<bool> open;  // by choice: its last event is still to come
    Clock::time_point submitted;
    double queue_s = -1;                       // -1: not planned yet
    std::vector<RowLogprobs> prompt_logprobs;  // until choice 0 has an event to carry them
  };
  struct StepInFlight {
    std::unique_ptr<Step> step;
    Clock::time_point launched;
    bool failed = false;  // the forward threw: its requests end with an error
    bool ran_graph = false;
  };

  void run();
  void loop();
  void take_commands(bool wait);
  void execute(Submit& command);
  void execute(Abort& command);
  void execute(Flush& command);
  void execute(Report& command);
  void execute(LookUp& command);
  void execute(Lost& command);
  bool computes_apart(const Request& request) const;
  void launch(std::unique_ptr<Step> step);
  void commit_oldest();
  std::vector<SampleInputs> masks_of(const Step& step);
  SchedulerOptions scheduler_options();
  void end_refused();
  void outlive_ranks();
  void lose_group(int group);
  void count_experts();
  void deliver();
  void end_live(const Fault& fault);
  // Of all data-parallel groups that are not lost.
  std::int64_t max_total_tokens() const { return memory_plan().max_total_tokens * live_groups(); }
  int live_groups() const { return parts_->plan.scheduler.dp_size - lost_groups_.load(); }
  double now_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  // Constant after construction.
  const std::unique_ptr<EngineParts> parts_;
  const std::unique_ptr<Executor> executor_;
  const Clock::time_point start_ = Clock::now();
  const int depth_ = 1;  // steps in flight

  // Any thread.
  Channel<Command> inbox_;
  std::atomic<std::uint64_t> next_id_{1};
  std::atomic<int> waiting_{0};  // requests in the inbox
  std::atomic<int> lost_groups_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> stopping_{false};
  EngineCounters counters_;
  mutable std::mutex live_mutex_;
  std::unordered_set<std::uint64_t> live_ids_;  // guarded by live_mutex_
  std::string failure_;                         // guarded by live_mutex_

  // Engine thread.
  Scheduler scheduler_;
  std::deque<StepInFlight> flights_;
  std::vector<std::unique_ptr<Step>> spare_steps_;
  std::vector<Event> events_;
  std::unordered_map<std::uint64_t, LiveRequest> live_;
  GrammarRows grammars_;
  PooledStates pooled_;
  RunReport report_;
  ExpertBalancer balancer_;
  std::unique_ptr<LoopTrace> trace_;  // null without --trace
  MethodCounts reported_methods_{};   // at the last reset

  std::thread thread_;  // last: starts when all above is there
};

}  // namespace sluice
