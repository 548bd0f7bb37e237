// How the tokens of one request are chosen. Ranges are checked where requests enter
// (server/api/request_fields.h); the values here are taken as valid.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace sluice {

struct SamplingParams {
  float temperature = 1.0f;        // 0: greedy, the most likely token
  int top_k = -1;                  // -1: off
  float top_p = 1.0f;              // (0, 1]
  float min_p = 0.0f;              // [0, 1]
  float frequency_penalty = 0.0f;  // subtracted once per occurrence among generated tokens
  float presence_penalty = 0.0f;   // subtracted once if generated before
  // divides positive, multiplies negative logits of prompt and generated tokens
  float repetition_penalty = 1.0f;
  std::vector<std::pair<std::int32_t, float>> logit_bias;  // token, value added
  std::uint64_t seed = 0;  // always set: chosen at random at admission when the request names none
  int min_new_tokens = 0;  // until then the tokens of `stop_token_ids` cannot be sampled
  // includes the model's end tokens, unless the request ignores them
  std::vector<std::int32_t> stop_token_ids;
  // -1: no log-probabilities; 0..20: those of the sampled token and of the best N tokens
  int num_top_logprobs = -1;

  bool greedy() const { return temperature == 0.0f || top_k == 1; }
  bool needs_history() const {
    return frequency_penalty != 0.0f || presence_penalty != 0.0f || repetition_penalty != 1.0f;
  }
};

}  // namespace sluice
