// News of a request, from the scheduler through the engine to the server.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "batch/finish_reason.h"
#include "batch/step_result.h"

namespace sluice {

// What speculation did for one choice.
struct DraftCounts {
  bool is_on = false;     // else the others are 0
  int verifications = 0;  // steps that decoded the choice
  int drafted = 0;        // tokens that these steps checked
  int accepted = 0;       // drafted tokens that became output
};

// Progress of one choice of a request. The last event of a choice has finish != kNone. After the
// last event of the last choice no event follows.
struct Event {
  std::uint64_t request = 0;
  int choice = 0;
  std::vector<std::int32_t> tokens;          // new since the previous event, end token included
  std::vector<RowLogprobs> token_logprobs;   // one per token of `tokens`, if requested
  std::vector<RowLogprobs> prompt_logprobs;  // with the first event of choice 0
  FinishReason finish = FinishReason::kNone;
  std::int32_t matched_token = -1;   // if finish is kStop: the stop token
  bool matched_stop_string = false;  // finish is kStop because of Request::stop
  int cached_tokens = 0;             // prompt tokens of choice 0 taken from the prefix cache
  int reused_tokens = 0;             // as cached_tokens, but of this choice: shared ones count, too
  int prompt_tokens = 0;
  int output_tokens = 0;  // total so far
  Fault error;  // if finish is kError or kAbort: numerics_error, kv_exhausted, timeout, aborted
  DraftCounts drafts;  // so far
  // With the last event of a request that has Request::pooling: [hidden], or as kAll and kScores
  // say. Not normalised.
  std::vector<float> pooled;
  double queue_s = 0;  // from submit to the first planned step; with the first event
};

}  // namespace sluice
