// Tokens that the device chooses and keeps by slot, and the host learns of later.
//
//   tokens.resolve(ctx, ids);                         // ids of slots become tokens, before the forward
//   tokens.choose(ctx, logits, draws, logit_slots);   // behind the forward; both may be part of a captured graph
//   tokens.send(batch);                        // starts the copy to the host
//   ... the next step may be launched here: token_of_slot() names the slots whose tokens are on their way ...
//   tokens.receive(sampler);                   // the oldest batch: waits for its copy, fills the result
//
// One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "batch/batch.h"
#include "batch/step_result.h"
#include "sampling/sampler.h"
#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/stream.h"

namespace sluice {

// The result of a batch whose tokens the device has chosen.
struct Arrival {
  bool there = false;
  BatchResult result;
};

class DeviceTokens {
 public:
  // For `max_slots` slots, up to max_rows rows of logits in a step and `depth` batches on their way.
  DeviceTokens(std::int64_t max_slots, std::int64_t max_rows, int depth, Device device, const Stream& stream);

  static std::int64_t bytes(std::int64_t max_slots, std::int64_t max_rows);

  void resolve(Context& ctx, const Tensor& ids) const;   // [tokens] int32
  // logits [rows, vocab] f32; draws as ops::choose_tokens; logit_slots [rows] int32, -1 where a row's token belongs to no slot.
  void choose(Context& ctx, const Tensor& logits, const Tensor& draws, const Tensor& logit_slots) const;

  // What receive() fills. `batch` lives until then.
  std::shared_ptr<Arrival> send(const Batch& batch);
  void receive(Sampler& sampler);
  bool any_on_their_way() const { return !sent_.empty(); }

  // See RowFacts in batch_buffers.h.
  std::int32_t token_of_slot(const Sampler& sampler, std::int32_t slot) const {
    return on_their_way_[static_cast<std::size_t>(slot)] > 0 ? -1 - slot : sampler.last_token(slot);
  }

 private:
  // Where a batch's tokens arrive on the host.
  struct Mailbox {
    Buffer memory;
    StreamEvent arrived;
  };
  struct Sent {
    const Batch* batch;
    std::shared_ptr<Arrival> arrival;
    std::size_t mailbox;
  };

  const Stream& stream_;
  Buffer memory_;        // on the device
  Tensor slot_tokens_;   // [slots] int32
  Tensor tokens_;        // [rows] int32, of the last step
  std::vector<Mailbox> mailboxes_;
  std::size_t next_mailbox_ = 0;
  std::deque<Sent> sent_;
  std::vector<std::int32_t> on_their_way_;   // [slots] batches whose token for the slot has not been received
};

}  // namespace sluice
