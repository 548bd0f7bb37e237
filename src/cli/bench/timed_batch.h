// One batch of requests through the engine, timed, with looks at the machine's memory between its
// steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cli/bench/roofline.h"
#include "engine/engine.h"

namespace sluice {

// Of at least one value; of an even number the upper of the two in the middle.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

struct BatchShape {
  int batch = 1;
  int input = 1024;
  int output = 16;
  std::vector<std::int32_t> prompt = {};  // of every request; empty: random tokens
};

// Decode steps of the whole batch between two looks at the read bandwidth.
struct DecodeSegment {
  double step_s = 0;                       // median
  double read_before = 0, read_after = 0;  // bytes a second

  double read() const { return (read_before + read_after) / 2; }
  bool steady() const {
    return std::abs(read_after - read_before) <= 0.1 * std::max(read_after, read_before);
  }
};

struct BatchTimes {
  double prefill_s = 0;  // from the first submit until every request has its first token
  // median time between two steps that bring tokens to a request after that; 0: there were none
  double decode_s = 0;
  double mean_decode_s = 0;    // the mean of the same times
  double tokens_per_step = 1;  // of a request, in these steps; more than 1 with speculation
  double total_s = 0;
  std::vector<DecodeSegment> segments;  // none without a Roofline
};

// Runs shape.batch requests until each has shape.output more than `ahead` tokens,
// the number that the first request may have before the last one has any: so the whole batch
// decodes together for shape.output tokens. With `roofline` the engine stands still between two
// steps, once when the batch begins to decode and then about four times a second, while
// Roofline::read_now() measures; no time counts that. Throws Error{kBadInput} when the engine
// refuses a request, Error when one fails.
BatchTimes time_batch(Engine& engine, const BatchShape& shape, int ahead, std::uint64_t seed,
                      Roofline* roofline = nullptr);

}  // namespace sluice
