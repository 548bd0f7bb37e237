// The engine's request to the scheduler. Token ids and numbers only: no text, no clock.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "batch/request.h"
#include "batch/stop_matcher.h"

namespace sluice {

// A request with the engine's additions. The scheduler reads the prompt, the parameters and the
// other fields of Request directly. It uses stop_matchers and deadline_s instead of `stop` and
// `timeout_s`.
struct QueuedRequest : Request {
  std::uint64_t id = 0;  // set by the engine; unique while the request lives; below 2^56
  std::vector<std::int32_t> eos_ids;                        // end tokens of the model
  std::vector<std::unique_ptr<StopMatcher>> stop_matchers;  // empty, or one per choice; may be null
  double arrival_s = 0;  // by the engine's clock; only the engine uses it
  double deadline_s = std::numeric_limits<double>::infinity();  // Scheduler::expire compares it
};

// The seed of a choice. Choice 0 keeps the request's seed, so that n does not change it.
std::uint64_t choice_seed(std::uint64_t seed, int choice);

// The value of `BatchItem::sequence`.
constexpr std::uint64_t sequence_id(std::uint64_t request, int choice) {
  return request << 8 | static_cast<std::uint64_t>(choice);
}

}  // namespace sluice
