// What follows the forward of a step: the tokens of its rows, and the drafts behind them.
#include "runtime/model_runner.h"
#include "tensor/copy.h"

namespace sluice {

Tensor ModelRunner::host_logits(const Batch& batch, std::int64_t first, std::int64_t count) {
  // The forward left the first rows; for the others only the head runs again.
  if (first > 0)
    forward_rows(buffers_->set_logit_rows(batch, first, count), config_.num_layers,
                 config_.num_layers);
  const Tensor rows = logits_.rows(0, count);
  if (ctx_.device.kind == DeviceKind::kCpu) return rows;
  const Tensor host = host_logits_.tensor(DType::kF32, {count, rows.dim(1)});
  copy(stream_, rows, host);
  stream_.synchronize();
  return host;
}

void ModelRunner::sample(Pending& pending, const SampleInputs& inputs) {
  if (!is_last_stage()) return;
  const Batch& batch = *pending.batch;
  const auto logits_of = [&](std::int64_t first, std::int64_t count) {
    return host_logits(batch, first, count);
  };
  const Tensor logits = logits_.rows(0, buffers_->view().logit_rows.dim(0));
  sampler_->sample(ctx_, batch, inputs, {logits, buffers_->sampling()}, logits_of,
                   pending.sampling);
  if (!batch.pooled_rows.empty()) pending.pooled_states = pooled_states(batch);
  if (!drafts_ || batch.num_tokens() == 0) return;
  const bool has_states = target_states_.defined() && keeps_states_;
  const Tensor states = has_states ? target_states_.rows(0, batch.num_tokens()) : Tensor{};
  if (batch.max_drafts == 0) {
    // Before the next step overwrites them. A recorded step may have done so.
    if (!pending.kept) pending.kept = drafts_->keep(batch, states);
    return;
  }
  if (batch.is_round) {
    check(std::holds_alternative<DeviceSampled>(pending.sampling) && states.defined(),
          "a round is sampled on the host");
    pending.round = drafts_->run_round(batch);
    return;
  }
  // Drafts continue what was sampled.
  BatchResult result = sampler_->collect(std::move(pending.sampling));
  drafts_->run(batch, states, result);
  pending.sampling = HostSampled{std::move(result)};
}

BatchResult ModelRunner::collect(Pending pending) {
  if (!is_last_stage()) return {};
  BatchResult result = sampler_->collect(std::move(pending.sampling));
  if (pending.kept) drafts_->leave_out(*pending.batch, *pending.kept, result);
  if (pending.round) drafts_->collect_round(*pending.batch, *pending.round, result);
  result.pooled_states = std::move(pending.pooled_states);
  return result;
}

}  // namespace sluice
