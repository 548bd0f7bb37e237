// Whether a model fits: the arithmetic of `sluice plan`.
#pragma once

#include <string>
#include <vector>

#include "cli/models/model_size.h"
#include "runtime/memory_plan.h"

namespace sluice {

struct FitQuestion {
  std::int64_t weight_bytes = 0;
  std::int64_t working_bytes = 0;   // activations and buffers, about
  std::vector<PageGroupSpec> kept;  // of tokens and sequences, as the model declares it
  std::int64_t memory_bytes = 0;
  std::int64_t context_length = 0;  // of one sequence, at most
  Limits limits = {.max_running_requests = 128};
  KvPolicy kv = {};
};

struct FitLine {
  std::int64_t length = 0;      // tokens of a request
  std::int64_t by_default = 0;  // requests at once in the KV cache that the engine takes by itself
  std::int64_t at_most = 0;     // in all that is left
};

struct Fit {
  bool fits = false;                // weights, working memory and one short request
  std::int64_t left_bytes = 0;      // for KV; negative: so much is missing
  std::int64_t max_tokens = 0;      // in the KV cache, whole pages
  std::int64_t default_tokens = 0;  // in the KV cache that the engine takes by itself
  std::int64_t default_kv_bytes = 0;
  std::int64_t default_states = 0;   // beside it
  std::int64_t missing_bytes = 0;    // where it does not fit
  std::int64_t longest = 0;          // one sequence
  std::vector<FitLine> concurrency;  // at 2k, 8k, 32k as far as the context goes
};

Fit fit(const FitQuestion& question);

// Activations of a worst step and the fixed buffers, about: the engine measures them when it
// starts.
std::int64_t working_bytes(const ModelConfig& config, int chunk_tokens, int max_running_requests,
                           int context_length);

}  // namespace sluice
