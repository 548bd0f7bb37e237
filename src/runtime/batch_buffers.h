// The fixed memory behind a ForwardBatch: one for each step in flight, made once, filled for every step. For a GPU it is
// filled in pinned host memory and copied to its twin on the device, always at the same addresses.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/forward_batch.h"
#include "batch/batch.h"
#include "sampling/sampler.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"

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
  // `stream` (null on the CPU) takes the copies; fill() may be called again once it has passed the last one.
  explicit BatchBuffers(const BatchLimits& limits, Device device = {}, const Stream* stream = nullptr);

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
  // What the device reads in place of `host`.
  Tensor twin(const Tensor& host) const;
  void upload() const;

  BatchLimits limits_;
  Device device_;
  const Stream* stream_ = nullptr;
  Buffer buffer_;      // on the host
  Buffer on_device_;   // of equal size; empty on the CPU
  Tensor input_ids_, positions_, row_seq_, seq_lens_, prefix_lens_, start_loc_, logit_rows_;   // at full size
  std::vector<Tensor> page_tables_, out_cache_locs_;                                           // by group
  ForwardBatch view_;
};

}  // namespace sluice
