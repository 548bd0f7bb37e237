// An engine whose model takes no time: every request gets the tokens of a script, one a step.
//
// It waits until `num_streams` requests are there. Then all of them are served together, as fast as
// the server takes their events or at a given rate.
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "engine/engine.h"

namespace sluice {

class PacedEngine : public Engine {
 public:
  struct Pace {
    int num_streams = 1000;
    double tokens_per_s = 0;  // of all streams together; 0: no limit
  };
  PacedEngine(std::vector<std::int32_t> script, int vocab_size, Pace pace);
  ~PacedEngine() override;

  // Processor time of the thread that makes the tokens, once the streams have ended.
  double thread_seconds() const { return thread_s_; }
  // Called on the engine's thread before the first step.
  std::function<void()> on_start;

  Result<std::uint64_t> submit(Request request, EventSink sink) override;
  bool abort(std::uint64_t) override { return false; }
  void abort_all() override {}
  bool flush_cache() override { return true; }
  void drain() override {}
  bool idle() const override { return true; }
  EngineStats stats() const override { return {}; }
  RunReport run_report(bool) override { return {}; }
  const ModelConfig& model_config() const override { return config_; }
  const GenerationConfig& generation_config() const override { return generation_; }
  const std::string& model_directory() const override { return directory_; }
  int context_length() const override { return 1 << 20; }
  const StartupLedger& ledger() const override { return ledger_; }
  const MemoryPlan& memory_plan() const override { return plan_; }
  std::string dtype_name() const override { return "float32"; }
  std::string failure() const override { return ""; }

 private:
  struct Stream {
    std::uint64_t id = 0;
    int num_left = 0;
    EventSink sink;
  };
  void run();

  const std::vector<std::int32_t> script_;
  const Pace pace_;
  const std::string directory_ = "models/none";
  const StartupLedger ledger_{};
  const MemoryPlan plan_{};
  GenerationConfig generation_;
  ModelConfig config_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Stream> streams_;  // guarded by mutex_
  bool stop_ = false;            // guarded by mutex_
  std::atomic<double> thread_s_{0};
  std::thread thread_;
};

}  // namespace sluice
