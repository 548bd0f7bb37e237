#include "runtime/device_tokens.h"

#include "base/error.h"
#include "ops/step_mail.h"
#include "ops/tokens.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

constexpr std::int64_t kAlignment = 64;
std::int64_t align(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DeviceTokens::DeviceTokens(std::int64_t max_slots, std::int64_t max_rows, int depth, Device device, const Stream& stream)
    : stream_(stream), memory_(bytes(max_slots, max_rows), device), on_their_way_(static_cast<std::size_t>(max_slots)) {
  slot_tokens_ = memory_.tensor(DType::kI32, {max_slots});
  tokens_ = memory_.tensor(DType::kI32, {max_rows}, align(4 * max_slots));
  counter_ = memory_.tensor(DType::kI64, {1}, align(4 * max_slots) + align(4 * max_rows));
  for (Buffer& box : boxes_) box = Buffer::staging(4 * max_rows, device);
  for (int i = 0; i < depth; ++i)
    mailboxes_.push_back({Buffer::staging(4 * max_rows, device),
                          Buffer::staging(max_rows * static_cast<std::int64_t>(sizeof(ops::RowChoice)), device), StreamEvent(device)});
}

std::int64_t DeviceTokens::bytes(std::int64_t max_slots, std::int64_t max_rows) {
  return align(4 * max_slots) + align(4 * max_rows) + kAlignment;
}

void DeviceTokens::resolve(Context& ctx, const Tensor& ids) const { ops::take_slot_tokens(ctx, slot_tokens_, ids); }

Tensor DeviceTokens::choose(Context& ctx, const Tensor& logits, const Tensor& draws) const {
  const Tensor tokens = tokens_.rows(0, logits.dim(0));
  ops::choose_tokens(ctx, logits, draws, tokens);
  return tokens;
}

void DeviceTokens::keep(Context& ctx, const Tensor& logit_slots) const {
  ops::put_slot_tokens(ctx, tokens_.rows(0, logit_slots.dim(0)), logit_slots, slot_tokens_);
}

void DeviceTokens::fetch(Context& ctx, const BatchBuffers& buffers) const {
  ops::fetch_step(ctx, buffers.fetch(counter_, slot_tokens_));
}

void DeviceTokens::hand_out(Context& ctx, const Tensor& logit_slots) const {
  const std::int64_t rows = tokens_.dim(0);
  ops::hand_out_tokens(ctx, tokens_.rows(0, logit_slots.dim(0)), logit_slots, slot_tokens_, counter_,
                       {boxes_[0].tensor(DType::kI32, {rows}), boxes_[1].tensor(DType::kI32, {rows})});
}

std::shared_ptr<Arrival> DeviceTokens::note(const Batch& batch, const Tensor& choices, const std::int32_t* tokens) {
  Mailbox& box = mailboxes_[next_mailbox_];
  const auto rows = static_cast<std::int64_t>(batch.logit_rows.size());
  const bool has_choices = choices.defined() && rows > 0;
  if (has_choices) copy(stream_, choices.rows(0, rows), box.choices.tensor(DType::kU8, {rows, choices.dim(1)}));
  box.arrived.record(stream_);
  for (const LogitRow& row : batch.logit_rows)
    ++on_their_way_[static_cast<std::size_t>(batch.items[static_cast<std::size_t>(row.item)].slot)];
  sent_.push_back({&batch, std::make_shared<Arrival>(), next_mailbox_, tokens, has_choices});
  next_mailbox_ = (next_mailbox_ + 1) % mailboxes_.size();
  return sent_.back().arrival;
}

std::shared_ptr<Arrival> DeviceTokens::send(const Batch& batch, const Tensor& choices) {
  check(sent_.size() < mailboxes_.size(), "{} batches are on their way already", sent_.size());
  const auto rows = static_cast<std::int64_t>(batch.logit_rows.size());
  const Tensor place = mailboxes_[next_mailbox_].memory.tensor(DType::kI32, {rows});
  if (rows > 0) copy(stream_, tokens_.rows(0, rows), place);
  return note(batch, choices, place.ptr<std::int32_t>());
}

std::shared_ptr<Arrival> DeviceTokens::send_replayed(const Batch& batch, const Tensor& choices) {
  const Buffer& box = boxes_[static_cast<std::size_t>(num_replayed_++ % 2)];   // counted by the device already
  check(sent_.size() < mailboxes_.size(), "{} batches are on their way already", sent_.size());
  return note(batch, choices, static_cast<const std::int32_t*>(box.data()));
}

void DeviceTokens::receive(Sampler& sampler) {
  check(!sent_.empty(), "no batch is on its way");
  const Sent sent = std::move(sent_.front());
  sent_.pop_front();
  Mailbox& box = mailboxes_[sent.mailbox];
  box.arrived.wait();
  const auto* choices = sent.has_choices ? static_cast<const ops::RowChoice*>(box.choices.data()) : nullptr;
  sent.arrival->result = sampler.accept(*sent.batch, {sent.tokens, sent.batch->logit_rows.size()}, choices);
  sent.arrival->there = true;
  for (const LogitRow& row : sent.batch->logit_rows)
    --on_their_way_[static_cast<std::size_t>(sent.batch->items[static_cast<std::size_t>(row.item)].slot)];
}

}  // namespace sluice
