// What one key uses: requests at a time, and tokens a minute.
//
// A budget of tokens is a bucket: it holds at most a minute's tokens and fills evenly. A request is
// let in while the bucket holds any, is then answered to its end, and may leave a debt that time
// pays off. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"

namespace sluice {

struct KeyLimits {
  int max_concurrent_requests = 0;         // 0: no limit
  std::int64_t max_tokens_per_minute = 0;  // prompt and output; 0: no limit
};

class KeyAccount : public std::enable_shared_from_this<KeyAccount> {
 public:
  using Clock = std::chrono::steady_clock;
  // Why a request has to wait (429), and for how long.
  struct Refusal {
    Fault fault;
    int retry_after_s = 1;
  };

  explicit KeyAccount(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  // Requests that run stay; a lower budget holds from now on.
  void set_limits(const KeyLimits& limits, Clock::time_point now = Clock::now());
  // Lets a request in, or says why not. `place` is its place until the last copy is gone.
  std::optional<Refusal> enter(std::shared_ptr<void>& place, Clock::time_point now = Clock::now());
  void charge(std::int64_t tokens, Clock::time_point now = Clock::now());

 private:
  void refill(Clock::time_point now);

  const std::string name_;
  std::mutex mutex_;
  KeyLimits limits_;               // all guarded by mutex_
  int num_running_ = 0;            //
  double tokens_left_ = 0;         // below 0: a debt
  Clock::time_point refilled_at_;  //
};

}  // namespace sluice
