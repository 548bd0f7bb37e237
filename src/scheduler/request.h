// What the engine asks of the scheduler. Token ids and numbers only: no text, no clock.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "batch/request.h"
#include "batch/stop_matcher.h"

namespace sluice {

// A request with what the engine adds. The scheduler reads the prompt, the parameters and the rest
// of Request as they are, but for `stop` and `timeout_s`, which became stop_matchers and
// deadline_s.
struct QueuedRequest : Request {
  std::uint64_t id = 0;  // made by the engine; unique while the request lives; below 2^56
  std::vector<std::int32_t> eos_ids;                        // of the model
  std::vector<std::unique_ptr<StopMatcher>> stop_matchers;  // empty, or one a choice; may be null
  double arrival_s = 0;  // by the engine's clock; kept for the engine, unused here
  double deadline_s = std::numeric_limits<double>::infinity();  // Scheduler::expire compares it
};

// The seed of a choice: choice 0 keeps the request's, so that n does not change it.
std::uint64_t choice_seed(std::uint64_t seed, int choice);

// `BatchItem::sequence`.
constexpr std::uint64_t sequence_id(std::uint64_t request, int choice) {
  return request << 8 | static_cast<std::uint64_t>(choice);
}

}  // namespace sluice
