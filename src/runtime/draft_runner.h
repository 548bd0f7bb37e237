// Runs a model's draft layer behind each step (multi-token prediction).
//
//   DraftRunner drafts(limits, *model, *attention, ctx);
//   ... the step's forward, with StageIO::final_hidden, and its sampling ...
//   drafts.run(batch, final_hidden, result);        // fills result.drafts
//
// A slot of the layer's cached rows holds the state of a position and the token after it. Behind a
// step come the slots of its rows whose next token is known. The last one gives the first draft.
// Each further draft takes one slot more, with the layer's own state. The slots of drafts are
// computed again once their tokens are known.
//
// The slots lie in the pages of the step's items. Where an item has no page for a slot, its drafts
// end. One thread. On a CPU.
#pragma once

#include <cstdint>

#include "attention/backend.h"
#include "batch/batch.h"
#include "batch/step_result.h"
#include "models/model.h"
#include "runtime/batch_buffers.h"
#include "tensor/buffer.h"
#include "tensor/context.h"

namespace sluice {

struct DraftLimits {
  BatchLimits batch;
  int max_drafts = 1;  // of a sequence
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;
};

class DraftRunner {
 public:
  // Model, back end and context outlive the runner.
  DraftRunner(const DraftLimits& limits, Model& model, AttentionBackend& attention, Context& ctx);
  static std::int64_t bytes(const DraftLimits& limits);

  // `states` [tokens of the batch, hidden]: the states after the last norm. `result`: of the batch.
  void run(const Batch& batch, const Tensor& states, BatchResult& result);

 private:
  // A sequence that gets drafts.
  struct Row {
    std::int32_t item = 0;      // of the step
    std::int32_t position = 0;  // of its last slot
    std::int32_t state = 0;     // row of states_
    std::int32_t token = -1;    // the last draft
  };

  // One run of the layer over `pass_`, whose states are the rows `from` of `states`. Then rows_ has
  // a draft for each logit row, in order.
  void draft(Tensor states, const std::vector<std::int32_t>& from);
  void add_item(const Batch& batch, std::int32_t item, std::int32_t first, std::int32_t count);

  const DraftLimits limits_;
  Model& model_;
  AttentionBackend& attention_;
  Context& ctx_;
  BatchBuffers buffers_;
  Buffer memory_;
  Tensor states_[2];  // [tokens, hidden] f32: of this run and of the one before
  Tensor logits_;     // [sequences, vocab] f32
  Batch pass_;
  std::vector<Row> rows_;
};

}  // namespace sluice
