// The vectors of requests that have Request::pooling, made of the states that their steps bring.
//
//   pooled.add(request);             // when it is submitted
//   pooled.take(step, result);       // a committed step
//   pooled.finish(events);           // the last events get their vectors
//
// States are taken in the order of positions, each once, also of a request that was retracted and
// computes some again. Sums are of 64 bits, so no vector depends on how its prompt was cut. One
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "batch/batch.h"
#include "batch/event.h"
#include "batch/pooling.h"
#include "batch/step_result.h"
#include "scheduler/request.h"

namespace sluice {

// One vector, made of the states of successive positions.
class StatePool {
 public:
  // `first`: the position of the first state that counts.
  StatePool(Pooling pooling, int first) : pooling_(pooling), next_(first) {}
  // Of a text of so many tokens, whose first `from` ones do not count.
  static StatePool of(Pooling pooling, int from, int num_tokens) {
    return {pooling, pooling == Pooling::kLast ? num_tokens - 1 : from};
  }

  int next() const { return next_; }  // position of the state that comes next
  void take(std::span<const float> state);
  // Once all states are taken.
  std::vector<float> vector();

 private:
  Pooling pooling_ = Pooling::kNone;
  int next_ = 0;
  double weight_ = 0;  // the sum of the states' weights
  std::vector<double> sum_;
  std::vector<float> states_;  // the vector itself, where nothing is summed
};

class PooledStates {
 public:
  // A request without pooling is nothing here.
  void add(const QueuedRequest& request);
  void remove(std::uint64_t request) { pools_.erase(request); }

  void take(const Step& step, const StepResult& result);
  // Of events that end a request by kLength; one whose states are not finite becomes an error.
  void finish(std::span<Event> events);

 private:
  std::unordered_map<std::uint64_t, StatePool> pools_;  // by request
};

// Sets Event::pooled of an event that ends a request, or makes it an error.
void set_pooled(Event& event, std::vector<float> vector);

}  // namespace sluice
