// A request, from the server to the scheduler.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batch/pooling.h"
#include "batch/sampling_params.h"
#include "batch/token_constraint.h"

namespace sluice {

// A generation request as token ids and numbers. The caller checks ranges. Engine::submit() checks
// what depends on the model: token ids, context length, memory.
struct Request {
  std::vector<std::int32_t> prompt_ids;  // at least 1
  SamplingParams params;                 // seed and stop_token_ids included
  int num_choices = 1;                   // prefilled once, then forked
  int max_new_tokens = -1;               // -1: up to the context length
  bool ignore_eos = false;               // the model's own end tokens do not stop it
  std::vector<std::string> stop;         // stop strings; the caller cuts the text
  int logprob_start = -1;  // -1: no prompt log-probabilities; s: of prompt tokens s + 1, s + 2, ...
  bool want_logits_hash = false;  // fills RowLogprobs::logits_hash
  int priority = 0;  // under the policy `priority` the lower number goes first (as in vLLM)
  // hash of key and salt: only equal namespaces share cached tokens
  std::uint64_t cache_namespace = 0;
  // The results do not depend on other requests: the steps are computed as --deterministic computes
  // them. If that changes any bit, cached tokens are shared only with other such requests.
  bool deterministic = false;
  double timeout_s = 0;  // 0: none; queue time counts
  // Of the grammar that the output obeys; empty: none. One constraint is made for each choice. The
  // stop tokens of `params` that are no text must be allowed by it where the grammar may end.
  ConstraintMaker make_constraint = {};
  // Not kNone: the states of the prompt are wanted, and no token (docs/embeddings.md). One choice;
  // max_new_tokens is 0. Event::pooled has the result.
  Pooling pooling = Pooling::kNone;
  int pooled_from = 0;  // tokens before it do not count: those of an instruction
  // Of encoders: which part of a pair each token belongs to, [prompt] of 0 and 1; empty: all are 0.
  std::vector<std::uint8_t> token_types = {};
};

}  // namespace sluice
