// Masks of a step whose tokens the device chooses: bits that come while the forward runs, and how
// the tokens of the step's rows are chosen once they are applied.
//
//   masks.put(inputs, rows, num_rows);   // starts the copy to the device, beside the forward
//   masks.apply(ctx, logits);            // behind the forward and the logit edits
//   ... masks.sample_rows() ...
//   masks.release();                     // behind what reads them
//
// The copy has a stream of its own, so a step pays for no copy.
// One thread.
#pragma once

#include <cstdint>
#include <span>

#include "batch/sample_inputs.h"
#include "kernels/types/op_params.h"
#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/stream.h"

namespace sluice {

class DeviceMasks {
 public:
  // For rows of `vocab_size` logits, up to max_rows of them.
  DeviceMasks(std::int64_t max_rows, std::int64_t vocab_size, Device device, const Stream& stream);
  static std::int64_t bytes(std::int64_t max_rows, std::int64_t vocab_size);

  // At least one mask. num_rows: rows of logits of the step; those behind `rows` are left out.
  void put(const SampleInputs& inputs, std::span<const ops::SampleRow> rows, std::int64_t num_rows);
  // Of the masks put last. logits [num_rows, vocab] f32, changed in place.
  void apply(Context& ctx, const Tensor& logits);
  // [num_rows, sizeof(ops::SampleRow)] u8, put last.
  Tensor sample_rows() const { return sample_rows(memory_, num_rows_); }
  // The stream has read all of it by then: the next put() may overwrite it.
  void release();

 private:
  // [max_rows] int32, [max_rows, sizeof(ops::SampleRow)] u8 and [max_rows, words] int32, one after
  // the other: one copy.
  Tensor indices(const Buffer& memory, std::int64_t rows) const;
  Tensor sample_rows(const Buffer& memory, std::int64_t rows) const;
  Tensor bits(const Buffer& memory, std::int64_t masks) const;

  const Stream& stream_;  // of the forward
  std::int64_t max_rows_, words_;
  std::int64_t num_masks_ = 0, num_rows_ = 0;
  Buffer memory_, staging_;
  Stream copies_;
  StreamEvent copied_;  // staging_ to memory_
  StreamEvent read_;    // memory_, by the stream
  bool is_copying_ = false, is_read_ = false;
};

}  // namespace sluice
