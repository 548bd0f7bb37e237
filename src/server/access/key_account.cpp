#include "server/access/key_account.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

constexpr double kSecondsPerMinute = 60;

Fault over_limit(std::string message) {
  return Fault{429, "rate_limit_exceeded", "", std::move(message)};
}

}  // namespace

void KeyAccount::set_limits(const KeyLimits& limits, Clock::time_point now) {
  std::lock_guard lock(mutex_);
  const bool is_new = limits_.max_tokens_per_minute == 0;
  if (!is_new) refill(now);
  limits_ = limits;
  const auto most = static_cast<double>(limits.max_tokens_per_minute);
  tokens_left_ = is_new ? most : std::min(tokens_left_, most);
  refilled_at_ = now;
}

// The bucket at `now`; mutex_ is held.
void KeyAccount::refill(Clock::time_point now) {
  const auto most = static_cast<double>(limits_.max_tokens_per_minute);
  const double passed = std::chrono::duration<double>(now - refilled_at_).count();
  tokens_left_ = std::min(most, tokens_left_ + passed * most / kSecondsPerMinute);
  refilled_at_ = now;
}

std::optional<KeyAccount::Refusal> KeyAccount::enter(std::shared_ptr<void>& place,
                                                     Clock::time_point now) {
  place.reset();  // a place that goes takes the lock
  std::lock_guard lock(mutex_);
  const int max_requests = limits_.max_concurrent_requests;
  if (max_requests > 0 && num_running_ >= max_requests)
    return Refusal{
        over_limit(fmt::format("The key `{}` may run {} request{} at a time, and {} run. Send this "
                               "one again when one of them has ended.",
                               name_, max_requests, max_requests == 1 ? "" : "s", num_running_)),
        1};
  if (limits_.max_tokens_per_minute > 0) {
    refill(now);
    if (tokens_left_ < 1) {
      const double rate = static_cast<double>(limits_.max_tokens_per_minute) / kSecondsPerMinute;
      const int wait_s = std::max(1, static_cast<int>(std::ceil((1 - tokens_left_) / rate)));
      return Refusal{over_limit(fmt::format("The key `{}` may use {} tokens a minute and has used "
                                            "them. Send this request again in {} s.",
                                            name_, limits_.max_tokens_per_minute, wait_s)),
                     wait_s};
    }
  }
  ++num_running_;
  // The place outlives a reload that forgets the key.
  place = std::shared_ptr<void>(nullptr, [self = shared_from_this()](void*) {
    std::lock_guard leave(self->mutex_);
    --self->num_running_;
  });
  return std::nullopt;
}

void KeyAccount::charge(std::int64_t tokens, Clock::time_point now) {
  std::lock_guard lock(mutex_);
  if (limits_.max_tokens_per_minute == 0) return;
  refill(now);
  tokens_left_ -= static_cast<double>(tokens);
}

}  // namespace sluice
