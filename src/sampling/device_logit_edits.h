// Penalties, biases, bans and log-probabilities where the device chooses the tokens
// (ops/logit_edits.h): the lists of logit edits by slot, which grow on the device, and what is read
// of the rows.
//
//   edits.refresh(batch, sampler);         // before the forward: lists of new slots, and of those
//                                          // that the host went on with
//   edits.before(ctx, logits, rows);       // around the choice; both may be part of a captured
//   edits.after(ctx, tokens, logits, rows);   // graph
//
// One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "batch/batch.h"
#include "sampling/host_sampler.h"
#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/stream.h"

namespace sluice {

class DeviceLogitEdits {
 public:
  DeviceLogitEdits(std::int64_t max_slots, std::int64_t max_rows, std::int64_t max_edits,
                   Device device, const Stream& stream);

  // At most HostSampler::kMaxEdits for a slot.
  static std::int64_t bytes(std::int64_t max_slots, std::int64_t max_rows, std::int64_t max_edits);
  // What one sequence can need: as many as HostSampler leaves to the device. Its own tokens, biases
  // and stop tokens make edits.
  static std::int64_t edits_of_slot(std::int64_t vocab_size);

  // The lists of these slots are the sampler's, not the device's any more.
  template <class Items>
  void invalidate(const Items& items) {
    for (const auto& item : items) is_there_[static_cast<std::size_t>(item.slot)] = false;
  }
  // Copies the lists that the batch needs and the device does not have. No token of such a slot is
  // on its way.
  void refresh(const Batch& batch, const HostSampler& sampler);
  // Whether a row of the batch is changed by edits or wants log-probabilities.
  bool wanted(const Batch& batch, const HostSampler& sampler) const;

  void before(Context& ctx, const Tensor& logits, const Tensor& logit_edits) const;
  void after(Context& ctx, const Tensor& tokens, const Tensor& logits,
             const Tensor& logit_edits) const;
  // [max_rows, sizeof(SampledRow)] u8, of the last step with edits.
  const Tensor& sampled_rows() const { return sampled_rows_; }

 private:
  const Stream& stream_;
  Buffer memory_;
  Tensor edit_lists_;  // [slots, max_edits, sizeof(LogitEdit)] u8
  Tensor lengths_;     // [slots] int32
  Tensor sampled_rows_;
  std::vector<bool> is_there_;  // by slot: the device's list is the slot's
};

}  // namespace sluice
