// The thread of an encoder's engine.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "engine/encoders/encoder_engine.h"
#include "models/encoders/encoder.h"
#include "runtime/rank.h"

namespace sluice {

// What create_encoder_engine has found out and built.
struct EncoderParts {
  EncoderConfig encoder_config;
  ModelConfig config;  // the part of it that servers show
  GenerationConfig generation;
  std::string directory;
  StartupLedger ledger;
  MemoryPlan memory;
  Numerics numerics;
  int context_length = 0;
  int max_queued_texts = 0;
  std::int64_t max_queued_tokens = 0;
  std::int64_t max_step_tokens = 0;
  std::unique_ptr<Rank> rank;
  std::unique_ptr<Encoder> encoder;
  std::unique_ptr<Arena> arena;
  Buffer states;  // [max_step_tokens, hidden] f32
};

class EncoderLoop final : public Engine {
 public:
  explicit EncoderLoop(EncoderParts parts);
  ~EncoderLoop() override;

  Result<std::uint64_t> submit(Request request, EventSink sink) override;
  bool abort(std::uint64_t request) override;
  void abort_all() override;
  bool flush_cache() override { return idle(); }  // there is none
  void drain() override;
  bool idle() const override;
  EngineStats stats() const override;
  RunReport run_report(bool) override { return {}; }
  const ModelConfig& model_config() const override { return parts_.config; }
  const GenerationConfig& generation_config() const override { return parts_.generation; }
  const std::string& model_directory() const override { return parts_.directory; }
  int context_length() const override { return parts_.context_length; }
  const StartupLedger& ledger() const override { return parts_.ledger; }
  const MemoryPlan& memory_plan() const override { return parts_.memory; }
  std::string dtype_name() const override {
    return std::string(sluice::dtype_name(parts_.numerics.compute));
  }
  std::string failure() const override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Text {
    std::uint64_t id = 0;
    Request request;
    EventSink sink;
    Clock::time_point arrival;
    double queue_s = 0;
  };

  std::optional<Fault> check_request(const Request& request) const;
  void run();
  // The texts of the next step, taken from the queue; waits for some. Empty: the end.
  std::vector<Text> next_texts();
  void run_step(std::vector<Text>& texts);
  void end(Text& text, FinishReason finish, const Fault& fault, std::vector<float> pooled);
  void fail_all(const std::string& why);

  EncoderParts parts_;  // constant after construction, but for what a step fills

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Text> queue_;
  std::unordered_set<std::uint64_t> running_;  // of the step that is computed
  std::unordered_set<std::uint64_t> aborted_;  // of those
  std::int64_t queued_tokens_ = 0;
  bool is_stopping_ = false, is_draining_ = false;
  std::string failure_;
  EngineStats stats_;
  Clock::time_point step_begin_{};
  std::uint64_t next_id_ = 1;

  std::thread thread_;  // last: starts when all above is there
};

}  // namespace sluice
