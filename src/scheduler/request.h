// What the engine asks of the scheduler. Token ids and numbers only: no text, no clock.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "batch/sampling_params.h"
#include "batch/stop_matcher.h"

namespace sluice {

struct Request {
  std::uint64_t id = 0;                 // made by the engine; unique while the request lives; below 2^56
  std::vector<std::int32_t> prompt;     // at least one token; ids are below the vocabulary's size
  SamplingParams params;                // of choice 0; choice i draws with choice_seed(params.seed, i)
  int num_choices = 1;                  // n: the prompt is computed once, then forked; 1..128
  int max_new_tokens = 16;              // 0: the prompt is only computed (for its log-probabilities)
  std::vector<std::int32_t> eos_ids;    // of the model
  bool ignore_eos = false;              // eos_ids do not stop; params.stop_token_ids still do
  int priority = 0;                     // with policy `priority`: the lower number first
  std::uint64_t cache_namespace = 0;    // prefixes are shared only within it
  // Log-probabilities of the prompt: -1 none; s >= 0: of the tokens at positions s + 1 .. size - 1, each from the row
  // before it. The prefix cache is used for at most s tokens then.
  int logprob_start = -1;
  bool deterministic = false;           // Batch::deterministic for its steps
  bool want_logits_hash = false;        // every wanted row asks for log-probabilities, which carry the hash
  std::vector<std::unique_ptr<StopMatcher>> stop_matchers;  // empty, or one a choice; an entry may be null
  double arrival_s = 0;                 // by the engine's clock; kept for the engine, unused here
  double deadline_s = std::numeric_limits<double>::infinity();  // Scheduler::expire compares it
};

// The seed of a choice: choice 0 keeps the request's, so that n does not change it.
std::uint64_t choice_seed(std::uint64_t seed, int choice);

// `BatchItem::sequence`.
constexpr std::uint64_t sequence_id(std::uint64_t request, int choice) {
  return request << 8 | static_cast<std::uint64_t>(choice);
}

}  // namespace sluice
