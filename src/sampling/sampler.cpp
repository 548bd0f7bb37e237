#include "sampling/sampler.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {

void set_replayed(SampleState& state) {
  if (auto* host = std::get_if<HostPending>(&state)) host->is_replayed = true;
  if (auto* device = std::get_if<DevicePending>(&state)) device->is_replayed = true;
}

bool has_device_edits(const SampleState& state) {
  const auto* device = std::get_if<DevicePending>(&state);
  return device != nullptr && device->has_edits && !device->has_masks;
}

Sampler::Sampler(const SamplerLimits& limits, const Stream& stream)
    : limits_(limits),
      host_(limits.max_slots, limits.vocab_size, limits.pretended, limits.replayed) {
  if (!limits.keeps_tokens_on_device()) return;
  device_ = std::make_unique<DeviceSampler>(limits.max_slots, limits.max_rows, limits.max_drafts,
                                            limits.steps_in_flight, limits.device, stream);
  if (limits.max_drafts > 0)
    device_rounds_ = std::make_unique<DeviceRounds>(
        limits.max_slots, limits.max_rows, device_->slot_tokens(), limits.pretended, limits.device);
  device_edits_ = std::make_unique<DeviceLogitEdits>(
      limits.max_slots, limits.max_rows, DeviceLogitEdits::edits_of_slot(limits.vocab_size),
      limits.device, stream);
  device_masks_ =
      std::make_unique<DeviceMasks>(limits.max_rows, limits.vocab_size, limits.device, stream);
}

std::int64_t Sampler::bytes(const SamplerLimits& limits) {
  std::int64_t bytes = DeviceSampler::bytes(limits.max_slots, limits.max_rows, limits.max_drafts);
  if (limits.max_drafts > 0) bytes += DeviceRounds::bytes(limits.max_slots, limits.max_rows);
  if (limits.keeps_tokens_on_device())
    bytes += DeviceLogitEdits::bytes(limits.max_slots, limits.max_rows,
                                     DeviceLogitEdits::edits_of_slot(limits.vocab_size)) +
             DeviceMasks::bytes(limits.max_rows, limits.vocab_size);
  return bytes;
}

SampleState Sampler::begin(const Batch& batch) {
  host_.apply(batch.slot_inits);
  if (!device_) return HostPending{};
  device_edits_->invalidate(batch.slot_inits);
  const bool fits = static_cast<std::int64_t>(batch.logit_rows.size()) <= limits_.max_rows;
  if (!fits || host_.any_needs_host(batch)) return HostPending{};
  const bool has_edits = device_edits_->wanted(batch, host_);
  if (has_edits) device_edits_->refresh(batch, host_);
  DevicePending pending{.has_edits = has_edits,
                        .has_masks = std::ranges::any_of(batch.logit_rows, &LogitRow::has_mask)};
  if (pending.has_masks)
    for (const LogitRow& row : batch.logit_rows)
      pending.masked_rows.push_back(
          host_.sample_row_of(row, batch.items[static_cast<std::size_t>(row.item)].slot));
  return pending;
}

RowInfo Sampler::row_info(const SampleState& state) const {
  RowInfo info;
  info.token_of_slot = [this](std::int32_t slot) {
    return device_ ? device_->token_of_slot(host_, slot) : host_.last_token(slot);
  };
  info.draft_of_slot = [this](std::int32_t slot, std::int32_t draft) {
    check(device_rounds_ != nullptr, "a draft that the device knows, and no rounds");
    return device_->draft_of_slot(slot, draft);
  };
  const auto* device = std::get_if<DevicePending>(&state);
  if (device == nullptr) return info;
  if (device_rounds_)
    info.row_key_of = [this](const LogitRow& row, std::int32_t slot) {
      return host_.row_key_of(row, slot);
    };
  if (!device->has_masks)
    info.sample_row_of = [this](const LogitRow& row, std::int32_t slot) {
      return host_.sample_row_of(row, slot);
    };
  info.logit_edits_of = [this](const LogitRow& row, std::int32_t slot) {
    return host_.logit_edits_of(row, slot, device_->num_ahead(slot));
  };
  return info;
}

void Sampler::resolve(Context& ctx, const Tensor& ids) const {
  if (device_) device_->resolve(ctx, ids);
}

void Sampler::run(Context& ctx, const Tensor& logits, const SamplingTensors& rows, bool has_edits,
                  bool recorded, const StepOfRound* round) const {
  if (!device_ || logits.dim(0) == 0) return;
  if (has_edits) device_edits_->before(ctx, logits, rows.logit_edits);
  const Tensor tokens = device_->choose(ctx, logits, rows.sample_rows);
  if (has_edits) device_edits_->after(ctx, tokens, logits, rows.logit_edits);
  if (round != nullptr) device_rounds_->accept(ctx, *round, tokens);
  if (recorded)
    device_->store(ctx, rows.logit_slots);
  else
    device_->keep(ctx, rows.logit_slots);
}

void Sampler::run_nothing(Context& ctx, const SamplingTensors& rows) const {
  device_->store(ctx, rows.logit_slots);  // counts the step
}

void Sampler::choose_masked(Context& ctx, const SampleInputs& inputs, const StepRows& step,
                            const DevicePending& pending) {
  device_masks_->put(inputs, pending.masked_rows, step.logits.dim(0));
  if (pending.has_edits) device_edits_->before(ctx, step.logits, step.rows.logit_edits);
  device_masks_->apply(ctx, step.logits);
  const Tensor tokens = device_->choose(ctx, step.logits, device_masks_->sample_rows());
  device_masks_->release();
  if (pending.has_edits) device_edits_->after(ctx, tokens, step.logits, step.rows.logit_edits);
  device_->keep(ctx, step.rows.logit_slots);
}

void Sampler::sample(Context& ctx, const Batch& batch, const SampleInputs& inputs,
                     const StepRows& step, const LogitsOf& logits_of, SampleState& state) {
  expect_masks(batch, inputs);
  if (const auto* device = std::get_if<DevicePending>(&state)) {
    const Tensor sampled_rows = device->has_edits ? device_edits_->sampled_rows() : Tensor{};
    if (device->has_masks) {
      if (device->is_replayed) device_->discard_replay();
      choose_masked(ctx, inputs, step, *device);
    }
    if (device->is_replayed && !device->has_masks) {
      state = device_->send_replayed(batch, sampled_rows);
      return;
    }
    std::vector<std::int32_t> skipped;
    for (const TokenMask& mask : inputs.masks)
      if (mask.is_skipped) skipped.push_back(mask.logit_row);
    state = device_->send(batch, sampled_rows, std::move(skipped));
    return;
  }
  if (std::get<HostPending>(state).is_replayed) device_->discard_replay();
  // The host must know what came before, and goes on with the lists of edits.
  if (device_) {
    device_edits_->invalidate(batch.items);
    while (device_->any_on_their_way()) device_->receive(host_);
  }
  host_.begin_rows(batch, inputs);
  const auto total = static_cast<std::int64_t>(batch.logit_rows.size());
  for (std::int64_t first = 0; first < total; first += limits_.max_rows)
    host_.process(ctx, batch, static_cast<std::int32_t>(first),
                  logits_of(first, std::min(limits_.max_rows, total - first)));
  state = HostSampled{host_.finish(batch)};
}

BatchResult Sampler::collect(SampleState state) {
  if (auto* host = std::get_if<HostSampled>(&state)) return std::move(host->result);
  const auto* device = std::get_if<DeviceSampled>(&state);
  check(device != nullptr, "a batch is collected that was not sampled");
  while (!(*device)->is_there) device_->receive(host_);
  return std::move((*device)->result);
}

}  // namespace sluice
