// How the rows of logits of a rank's steps become tokens: on the host, or on the device.
//
//   SampleState state = sampler.begin(batch);               // who samples the batch
//   const ForwardBatch& fb = buffers.fill(batch, sampler.row_info(state));
//   sampler.resolve(ctx, fb.input_ids);                      // on the stream, before the forward
//   sampler.run(ctx, logits, buffers.sampling(), edits, false);   // behind it; can be captured
//   sampler.sample(ctx, batch, inputs, logits_of, state);    // once the masks are there
//   BatchResult result = sampler.collect(state);             // in the order of the batches
//
// The device samples where the batch wants nothing that only the host does
// (HostSampler::any_needs_host); the host learns of those tokens later, so the next step may be
// launched before. A rank with one step in flight on a CPU samples on the host alone. Rows of
// drafts are chosen each for itself; the host keeps those that follow from right ones.
//
// Logit edits of a row are, in this order: bias, bans, penalties, and a mask that comes with
// SampleInputs. A step with masks is launched before they come, so the device edits its rows and
// chooses behind the step, outside of a graph.
//
// State lives by slot, as sequences do on a device: parameters, the last token, how many tokens
// were generated and, where penalties need it, how often each token occurred. The sampler appends
// what it chooses, so a step may be launched before the host has seen the step before it.
//
// Order of work for a sampled row (docs/architecture.md, Numerics): raw log-probabilities and hash
// are read first; then logit bias, the ban on end tokens until min_new_tokens, repetition,
// frequency and presence penalties; then the most likely token (ties to the lowest id), or
// temperature, softmax, top-k, top-p, min-p and a draw. Filters keep the best tokens in the order
// (probability descending, id ascending). top-k and top-p both look at the probabilities of the
// whole vocabulary and the smaller set is kept ("joint" in FlashInfer); with min-p in use top-p
// looks at the probabilities renormalised after top-k, and min-p keeps p >= min_p * max(p) of what
// is left.
//
// The draw is one uniform number, a hash of (seed, position), laid on the cumulative sum of the
// kept probabilities in order of token id. Sums of probabilities are exact
// (kernels/types/sample_math.h). So a token depends on its row of logits, its slot and (seed,
// position) alone: not on the batch, the number of threads, the device that draws, or how the rows
// were cut into chunks. Choices of one request (n > 1) need seeds of their own.
//
// A row that holds NaN or +infinity, or in which no finite logit is left, fails its item
// (numerics_error); other rows are not affected. Filters work inside the row of logits; the only
// copy is of one row for each worker (R12).
//
// One thread calls; rows are shared out over ctx.pool.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "batch/batch.h"
#include "batch/sample_inputs.h"
#include "batch/step_result.h"
#include "sampling/device_logit_edits.h"
#include "sampling/device_masks.h"
#include "sampling/device_rounds.h"
#include "sampling/device_sampler.h"
#include "sampling/host_sampler.h"
#include "sampling/row_sampling.h"
#include "tensor/context.h"
#include "tensor/stream.h"

namespace sluice {

struct SamplerLimits {
  int max_slots = 1;
  int vocab_size = 0;
  std::int64_t max_rows = 1;  // rows of logits that are computed at once
  int steps_in_flight = 1;
  bool chooses_drafts = false;         // the device chooses the tokens of rows of drafts
  int max_drafts = 0;                  // of a slot, in rounds; 0: there are no rounds
  std::vector<double> pretended = {};  // as of HostSampler, for measurements
  std::vector<std::int32_t> replayed = {};
  Device device;

  bool keeps_tokens_on_device() const {
    return device.kind != DeviceKind::kCpu || steps_in_flight > 1 || chooses_drafts;
  }
};

// Where the sampling of a launched batch stands: one of the four.
struct HostPending {  // the host samples when sample() is called
  bool is_replayed = false;
};
struct DevicePending {     // the device samples behind the forward
  bool has_edits = false;  // or log-probabilities
  bool has_masks = false;  // edits and choice wait for them
  bool is_replayed = false;
  // How the tokens of a step with masks are chosen: the step itself leaves its rows out.
  std::vector<ops::SampleRow> masked_rows = {};
};
using DeviceSampled = std::shared_ptr<SampleResult>;
struct HostSampled {
  BatchResult result;
};
using SampleState = std::variant<HostPending, DevicePending, DeviceSampled, HostSampled>;

// The step was a graph.
void set_replayed(SampleState& state);
// Whether the device edits the rows, or reads log-probabilities, in the step.
bool has_device_edits(const SampleState& state);

class Sampler {
 public:
  Sampler(const SamplerLimits& limits, const Stream& stream);
  // Memory that it takes on the device.
  static std::int64_t bytes(const SamplerLimits& limits);

  bool keeps_tokens_on_device() const { return device_ != nullptr; }

  // Takes in batch.slot_inits.
  SampleState begin(const Batch& batch);
  RowInfo row_info(const SampleState& state) const;

  // On the stream. ids [tokens] int32: ids of slots become tokens.
  void resolve(Context& ctx, const Tensor& ids) const;
  // Chooses the tokens of logits [rows, vocab] f32 where tokens stay on the device; else nothing.
  // `recorded`: the step is being captured as a graph. `round`: of rows of drafts, where there are
  // rounds; else null.
  void run(Context& ctx, const Tensor& logits, const SamplingTensors& rows, bool has_edits,
           bool recorded, const StepOfRound* round = nullptr) const;
  // Of a recorded step that chooses no tokens, as in a stage of a pipeline that is not the last.
  void run_nothing(Context& ctx, const SamplingTensors& rows) const;
  // The graph of such a step was launched.
  void skip_replay() { device_->discard_replay(); }
  // What a recorded step reads (ops::load_step_inputs).
  const Tensor& step_counter() const { return device_->step_counter(); }
  const Tensor& slot_tokens() const { return device_->slot_tokens(); }
  // Null where there are no rounds.
  const DeviceRounds* rounds() const { return device_rounds_.get(); }

  // Logits of rows [first, first + count) of the batch, in memory that the host reads.
  using LogitsOf = std::function<Tensor(std::int64_t first, std::int64_t count)>;
  // What run() had; it is read where the device samples rows with masks.
  struct StepRows {
    Tensor logits;  // [rows, vocab] f32, as the forward left them
    SamplingTensors rows;
  };
  void sample(Context& ctx, const Batch& batch, const SampleInputs& inputs, const StepRows& step,
              const LogitsOf& logits_of, SampleState& state);
  BatchResult collect(SampleState state);

 private:
  const SamplerLimits limits_;
  HostSampler host_;
  void choose_masked(Context& ctx, const SampleInputs& inputs, const StepRows& step,
                     const DevicePending& pending);

  std::unique_ptr<DeviceSampler> device_;  // this and the next: null where the host samples alone
  std::unique_ptr<DeviceLogitEdits> device_edits_;
  std::unique_ptr<DeviceMasks> device_masks_;
  std::unique_ptr<DeviceRounds> device_rounds_;  // null without rounds
};

}  // namespace sluice
