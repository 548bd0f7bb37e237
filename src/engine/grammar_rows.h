// The grammars of the running requests: masks for the rows of a step, and the tokens that came.
//
//   grammars.add(request);                       // when it is submitted
//   inputs = grammars.masks(step, vocab_size);   // all tokens before the step are accepted
//   grammars.accept(events);                     // tokens of a committed step
//
// A row whose grammar leaves no token, or whose budget ran out, gets a mask of all tokens, so that
// the step goes on for the others; its request is listed by take_refused().
//
// Rows of drafts get their masks as if the drafts before them had been accepted, which is taken
// back. A draft that the grammar does not follow is skipped, with the rows behind it.
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "batch/batch.h"
#include "batch/event.h"
#include "batch/sample_inputs.h"
#include "scheduler/request.h"

namespace sluice {

class GrammarRows {
 public:
  struct Refused {
    std::uint64_t request;
    Fault fault;
  };

  // A request without a grammar is nothing here.
  void add(const QueuedRequest& request);
  void remove(std::uint64_t request, int choice) { rows_.erase(sequence_id(request, choice)); }

  static bool wants_masks(const Step& step);
  // [dp], with a mask for each row of logits with has_mask.
  std::vector<SampleInputs> masks(const Step& step, int vocab_size);
  void accept(std::span<const Event> events);
  // Appends at most `max_drafts` drafts of the tokens behind those accepted (TokenConstraint).
  void draft(std::uint64_t sequence, int max_drafts, std::vector<std::int32_t>& drafts);
  // Requests to be ended since the last call.
  std::vector<Refused> take_refused() { return std::exchange(refused_, {}); }

 private:
  struct Row {
    std::unique_ptr<TokenConstraint> constraint;
    std::vector<std::int32_t> stop_tokens;
    int min_tokens = 0;
    int num_tokens = 0;
    bool is_refused = false;
  };
  void fill(std::uint64_t sequence, TokenMask& mask);
  // Masks of the rows of drafts [first, first + masks.size()) of an item. `before`: the mask of the
  // row before them.
  void fill_drafts(const Batch& batch, std::size_t first, const TokenMask& before,
                   std::span<TokenMask> masks);
  // Whether the mask has a token that may come after `num_tokens` others.
  static bool leaves_token(const Row& row, int num_tokens, TokenMask& mask);
  void refuse(std::uint64_t sequence, Row& row, Fault fault);

  std::unordered_map<std::uint64_t, Row> rows_;  // by sequence_id
  std::vector<Refused> refused_;
};

}  // namespace sluice
