// Tokens that the device chooses and keeps by slot, and the host learns of later.
//
//   tokens.resolve(ctx, ids);                // ids of slots become tokens, before the forward
//   tokens.choose(ctx, logits, sample_rows);   // behind the forward
//   tokens.keep(ctx, logit_slots);
//   tokens.send(batch, sampled_rows);          // starts the copy to the host
//   ...                          // the next step may be launched: token_of_slot() names its slots
//   tokens.receive(sampler);     // the oldest batch: waits for its copy, fills the result
//
// In a recorded step ops::load_step_inputs() stands for resolve(), store() for keep(), and
// send_replayed() for send(): there is no copy.
//
// One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "batch/batch.h"
#include "batch/step_result.h"
#include "sampling/host_sampler.h"
#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/stream.h"

namespace sluice {

// The result of a batch whose tokens the device has chosen.
struct SampleResult {
  bool is_there = false;
  BatchResult result;
};

class DeviceSampler {
 public:
  // For `max_slots` slots, up to max_rows rows of logits in a step and `depth` batches on their
  // way. Rounds keep max_drafts drafts of each slot.
  DeviceSampler(std::int64_t max_slots, std::int64_t max_rows, int max_drafts, int depth,
                Device device, const Stream& stream);
  static std::int64_t bytes(std::int64_t max_slots, std::int64_t max_rows, int max_drafts);

  void resolve(Context& ctx, const Tensor& ids) const;  // [tokens] int32
  // logits [rows, vocab] f32; sample_rows as ops::sample_tokens. The tokens, [rows] int32.
  Tensor choose(Context& ctx, const Tensor& logits, const Tensor& sample_rows) const;
  // logit_slots [rows] int32, distinct; -1 where a row's token belongs to no slot, or to one that
  // has several rows: the host knows their tokens before the next step.
  void keep(Context& ctx, const Tensor& logit_slots) const;
  void store(Context& ctx, const Tensor& logit_slots) const;
  // What ops::load_step_inputs reads: [1] int64, recorded steps that the device has done, and
  // [(1 + max_drafts) * slots] int32: the last token of each slot, then its drafts.
  const Tensor& step_counter() const { return counter_; }
  const Tensor& slot_tokens() const { return slot_tokens_; }

  // What receive() fills. `batch` lives until then. `sampled_rows` [rows, sizeof(ops::SampledRow)]
  // u8 go along where defined. `skipped`: as of HostSampler::accept.
  std::shared_ptr<SampleResult> send(const Batch& batch, const Tensor& sampled_rows,
                                     std::vector<std::int32_t> skipped = {});
  // Of the graph launched last.
  std::shared_ptr<SampleResult> send_replayed(const Batch& batch, const Tensor& sampled_rows);
  // A graph was launched whose tokens nobody will read.
  void discard_replay() { ++num_replayed_; }
  void receive(HostSampler& sampler);
  bool any_on_their_way() const { return !sent_.empty(); }

  // The token that kTokenFromSlot stands for: its id, or -1 - slot where only the device knows it.
  std::int32_t token_of_slot(const HostSampler& sampler, std::int32_t slot) const {
    return num_ahead(slot) > 0 ? -1 - slot : sampler.last_token(slot);
  }
  // The same of draft `draft`, which the device alone knows.
  std::int32_t draft_of_slot(std::int32_t slot, std::int32_t draft) const {
    return -1 - slot - (draft + 1) * static_cast<std::int32_t>(on_their_way_.size());
  }
  // Tokens of the slot that are on their way.
  std::int32_t num_ahead(std::int32_t slot) const {
    return on_their_way_[static_cast<std::size_t>(slot)];
  }

 private:
  // Where what was chosen for a batch arrives on the host.
  struct ResultBuffer {
    Buffer memory;  // tokens; unused where a replayed step writes them itself
    Buffer sampled_rows;
    StreamEvent arrived;
  };
  struct Sent {
    const Batch* batch;
    std::shared_ptr<SampleResult> sample_result;
    std::size_t result_buffer;
    const std::int32_t* tokens;
    bool has_sampled_rows;
    std::vector<std::int32_t> skipped;
  };
  std::shared_ptr<SampleResult> note(const Batch& batch, const Tensor& sampled_rows,
                                     const std::int32_t* tokens, std::vector<std::int32_t> skipped);

  const Stream& stream_;
  Buffer memory_;                // on the device
  Tensor slot_tokens_;           // [(1 + max_drafts) * slots] int32
  Tensor tokens_;                // [rows] int32, of the last step
  Tensor counter_;               // [1] int64: recorded steps that the device has done
  std::array<Buffer, 2> boxes_;  // on the host: tokens of recorded steps in turn
  std::int64_t num_replayed_ = 0;
  std::vector<ResultBuffer> result_buffers_;
  std::size_t next_result_buffer_ = 0;
  std::deque<Sent> sent_;
  // [slots] batches whose token for the slot has not been received
  std::vector<std::int32_t> on_their_way_;
};

}  // namespace sluice
