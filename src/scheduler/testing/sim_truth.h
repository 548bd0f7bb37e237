// The expected tokens of the simulation's requests.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/scheduler.h"
#include "scheduler/testing/sim_model.h"

namespace sluice::sim {

struct Counts {
  std::int64_t steps = 0, episodes = 0, requests = 0, finished = 0, refused = 0, failed = 0;
  std::int64_t retractions = 0, evictions = 0, tail_copies = 0, forks = 0, mixed = 0, hits = 0;
  std::int64_t aborted[4] = {};  // by Episode::Stage
  // rows with drafts, by how many of these were right; and those of requests aborted meanwhile
  std::int64_t all_accepted = 0, some_accepted = 0, none_accepted = 0, trees = 0,
               aborted_drafts = 0, rounds_ahead = 0;
};

// The expected result of a choice.
struct Truth {
  std::vector<std::int32_t> tokens;
  FinishReason finish = FinishReason::kLength;
  std::int32_t matched_token = -1;
};

struct Live {
  std::vector<Truth> truths;           // [choice]
  std::vector<std::size_t> seen;       // [choice] number of tokens received
  std::vector<bool> over;              // [choice]
  std::vector<float> prompt_logprobs;  // all expected values
  std::size_t prompt_seen = 0;
  int num_prompt = 0;
  int cache_limit = 0;
  int steps_in_flight = 0;
  bool drafts_in_flight = false;
  int computed = -1;  // tokens of the prompt that steps have covered; -1: no step named it
  bool aborted = false;
};

}  // namespace sluice::sim
