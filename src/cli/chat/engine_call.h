// Runs requests on an Engine and waits for what they bring.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/engine.h"

namespace sluice {

// All that one request (of one choice) brought.
struct Completion {
  std::vector<std::int32_t> tokens;
  std::vector<RowLogprobs> token_logprobs;
  std::vector<RowLogprobs> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  std::int32_t matched_token = -1;
  bool matched_stop_string = false;
  int cached_tokens = 0;
  int prompt_tokens = 0;
  DraftCounts drafts;
  Fault error;                                                  // where finish is kError
  std::vector<std::chrono::steady_clock::time_point> arrivals;  // of each event that held tokens
  std::vector<std::size_t> arrived;                             // so many
};

// A request on its way. Any thread may wait.
class PendingCompletion {
 public:
  // Submits; `on_tokens` is called on the engine thread with each event's new tokens. Throws
  // Error{kBadInput} when the engine refuses the request.
  PendingCompletion(Engine& engine, Request request,
                    std::function<void(const std::vector<std::int32_t>&)> on_tokens = {});

  // Waits until tokens have come, or the end.
  void wait_for_tokens();
  // Waits for the end; a fault of the request is in `error`. Once only.
  Completion wait();

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    Completion completion;  // guarded by mutex
  };
  std::shared_ptr<Shared> shared_;  // the sink may outlive this
};

}  // namespace sluice
