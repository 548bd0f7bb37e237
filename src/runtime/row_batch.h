// A step of decode rows and drafts, laid out as decode rows alone: each row is an item with the
// pages of its sequence. So a GPU's kernels and graphs of decode steps compute it.
//
//   RowBatch rows;
//   buffers.fill(rows.of(batch), info);    // the mode stays kTargetVerify
#pragma once

#include "batch/batch.h"

namespace sluice {

class RowBatch {
 public:
  // Token and logit rows keep their order; copies and slot_inits are left out. Valid until the next
  // call.
  const Batch& of(const Batch& batch);

 private:
  Batch rows_;
};

}  // namespace sluice
