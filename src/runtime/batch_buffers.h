// The fixed memory behind a ForwardBatch: one for each step in flight, made once, filled for every step.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/forward_batch.h"
#include "batch/batch.h"
#include "sampling/sampler.h"
#include "tensor/buffer.h"

namespace sluice {

struct BatchLimits {
  std::int64_t max_tokens = 0;       // of a step
  std::int64_t max_seqs = 0;         // sequences of a step
  std::int64_t max_seq_pages = 0;    // pages of one sequence
  std::int64_t max_logit_rows = 0;   // rows of logits computed at once
  int num_groups = 1;
};

class BatchBuffers {
 public:
  explicit BatchBuffers(const BatchLimits& limits);

  // Views of the batch; valid until the next fill. Token ids that only the device knows come from the sampler's slots.
  // Logit rows [0, max_logit_rows) at most: see set_logit_rows.
  const ForwardBatch& fill(const Batch& batch, const Sampler& sampler);
  // Points logit_rows at rows [first, first + count) of batch.logit_rows.
  const ForwardBatch& set_logit_rows(const Batch& batch, std::int64_t first, std::int64_t count);
  // The largest step that the limits allow, without contents: for measuring memory. `decode`: max_seqs rows that each
  // see a full context; otherwise max_tokens rows, all but the last few of one sequence.
  const ForwardBatch& fill_largest(bool decode, std::int64_t context_length);

  const ForwardBatch& view() const { return view_; }
  static std::int64_t bytes(const BatchLimits& limits);

 private:
  void set_views(std::int64_t tokens, std::int64_t seqs);

  BatchLimits limits_;
  Buffer buffer_;
  Tensor input_ids_, positions_, row_seq_, seq_lens_, prefix_lens_, start_loc_, logit_rows_;   // at full size
  std::vector<Tensor> page_tables_, out_cache_locs_;                                           // by group
  ForwardBatch view_;
};

}  // namespace sluice
