// News of a request, from the scheduler through the engine to the server.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "batch/finish_reason.h"
#include "batch/step_result.h"

namespace sluice {

// Something that happened to one choice of a request. The last event of a choice has finish !=
// kNone; after the last event of the last choice nothing more comes.
struct Event {
  std::uint64_t request = 0;
  int choice = 0;
  std::vector<std::int32_t> tokens;          // new since the event before, end token included
  std::vector<RowLogprobs> token_logprobs;   // beside `tokens` when they were asked for
  std::vector<RowLogprobs> prompt_logprobs;  // with the first event of choice 0
  FinishReason finish = FinishReason::kNone;
  std::int32_t matched_token = -1;   // the stop token, where finish is kStop
  bool matched_stop_string = false;  // finish is kStop because of Request::stop
  int cached_tokens = 0;             // of the prompt, taken from the prefix cache
  int prompt_tokens = 0;
  int output_tokens = 0;  // so far
  Fault error;  // where finish is kError or kAbort: numerics_error, kv_exhausted, timeout, aborted
  double queue_s = 0;  // from submit to the first planned step; with the first event
};

}  // namespace sluice
