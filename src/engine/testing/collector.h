// For tests of the engine: what one request brings.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/build.h"
#include "engine/engine.h"

namespace sluice {

// Gathers the events of one request.
class Collector {
 public:
  explicit Collector(int choices = 1)
      : tokens(choices), finish(choices, FinishReason::kNone), open_(choices) {}

  EventSink sink() {
    return [this](Event&& event) {
      std::lock_guard lock(mutex_);
      auto& out = tokens[event.choice];
      out.insert(out.end(), event.tokens.begin(), event.tokens.end());
      if (event.choice == 0) {
        for (auto& row : event.token_logprobs) logprobs.push_back(row);
        for (auto& row : event.prompt_logprobs) prompt_logprobs.push_back(row);
        cached = event.cached_tokens;
      }
      if (event.finish != FinishReason::kNone) {
        finish[event.choice] = event.finish;
        fault = event.error;
        --open_;
      }
      ++num_events_;
      changed_.notify_all();
    };
  }
  void wait() {
    wait_for([&] { return open_ == 0; });
  }
  void wait_tokens(std::size_t count) {
    wait_for([&] { return tokens[0].size() >= count; });
  }

  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<FinishReason> finish;
  std::vector<RowLogprobs> logprobs, prompt_logprobs;
  int cached = -1;
  Fault fault;

 private:
  // A busy machine is slow, and a sanitizer slower. So only silence is a failure; a request that
  // waits for others is silent, too.
  static constexpr std::chrono::seconds kLongestSilence{kTimedBuild ? 120 : 1200};

  template <class Done>
  void wait_for(Done done) {
    std::unique_lock lock(mutex_);
    while (!done()) {
      const int seen = num_events_;
      ASSERT_TRUE(changed_.wait_for(lock, kLongestSilence, [&] { return num_events_ != seen; }));
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int open_;
  int num_events_ = 0;
};

inline Request greedy(std::vector<std::int32_t> prompt, int tokens) {
  Request request;
  request.prompt_ids = std::move(prompt);
  request.params.temperature = 0;
  request.max_new_tokens = tokens;
  request.ignore_eos = true;
  return request;
}

}  // namespace sluice
