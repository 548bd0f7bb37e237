// Masks of rows whose tokens the device chooses: bits that come while the forward runs.
//
//   masks.put(inputs, num_rows);   // starts the copy to the device, beside the forward
//   masks.apply(ctx, logits);      // behind the forward and the logit edits
//
// The copy has a stream of its own, so a step pays for no copy.
// One thread.
#pragma once

#include <cstdint>

#include "batch/sample_inputs.h"
#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/stream.h"

namespace sluice {

class DeviceMasks {
 public:
  // For rows of `vocab_size` logits, up to max_rows of them.
  DeviceMasks(std::int64_t max_rows, std::int64_t vocab_size, Device device, const Stream& stream);
  static std::int64_t bytes(std::int64_t max_rows, std::int64_t vocab_size);

  // num_rows: rows of logits of the step.
  void put(const SampleInputs& inputs, std::int64_t num_rows);
  // Of the masks put last. logits [num_rows, vocab] f32, changed in place.
  void apply(Context& ctx, const Tensor& logits);

 private:
  // [max_rows] int32 and [max_rows, words] int32, one after the other: one copy.
  Tensor indices(const Buffer& memory, std::int64_t rows) const;
  Tensor bits(const Buffer& memory, std::int64_t masks) const;

  const Stream& stream_;  // of the forward
  std::int64_t max_rows_, words_;
  std::int64_t num_masks_ = 0;
  Buffer memory_, staging_;
  Stream copies_;
  StreamEvent copied_;   // staging_ to memory_
  StreamEvent applied_;  // memory_ to the logits
  bool is_copying_ = false, is_applying_ = false;
};

}  // namespace sluice
