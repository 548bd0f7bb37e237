// The interface between the scheduler, which knows no text, and the stop strings of a request
// (text/parsers/stop_matcher.h).
#pragma once

#include <cstdint>

namespace sluice {

class StopMatcher {
 public:
  virtual ~StopMatcher() = default;
  // Takes the next generated token; true when the token completes a stop string. Engine thread.
  virtual bool push(std::int32_t token) = 0;
};

}  // namespace sluice
