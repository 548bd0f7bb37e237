#include "runtime/device_tokens.h"

#include "base/error.h"
#include "ops/tokens.h"
#include "tensor/copy.h"

namespace sluice {

DeviceTokens::DeviceTokens(std::int64_t max_slots, std::int64_t max_rows, int depth, Device device, const Stream& stream)
    : stream_(stream), memory_(bytes(max_slots, max_rows), device), on_their_way_(static_cast<std::size_t>(max_slots)) {
  slot_tokens_ = memory_.tensor(DType::kI32, {max_slots});
  tokens_ = memory_.tensor(DType::kI32, {max_rows}, bytes(max_slots, 0));
  for (int i = 0; i < depth; ++i) mailboxes_.push_back({Buffer::staging(4 * max_rows, device), StreamEvent(device)});
}

std::int64_t DeviceTokens::bytes(std::int64_t max_slots, std::int64_t max_rows) {
  return (4 * max_slots + 63) / 64 * 64 + 4 * max_rows;
}

void DeviceTokens::resolve(Context& ctx, const Tensor& ids) const { ops::take_slot_tokens(ctx, slot_tokens_, ids); }

void DeviceTokens::choose(Context& ctx, const Tensor& logits, const Tensor& draws, const Tensor& logit_slots) const {
  const Tensor tokens = tokens_.rows(0, logits.dim(0));
  ops::choose_tokens(ctx, logits, draws, tokens);
  ops::put_slot_tokens(ctx, tokens, logit_slots, slot_tokens_);
}

std::shared_ptr<Arrival> DeviceTokens::send(const Batch& batch) {
  check(sent_.size() < mailboxes_.size(), "{} batches are on their way already", sent_.size());
  Mailbox& box = mailboxes_[next_mailbox_];
  const auto rows = static_cast<std::int64_t>(batch.logit_rows.size());
  if (rows > 0) copy(stream_, tokens_.rows(0, rows), box.memory.tensor(DType::kI32, {rows}));
  box.arrived.record(stream_);
  for (const LogitRow& row : batch.logit_rows)
    ++on_their_way_[static_cast<std::size_t>(batch.items[static_cast<std::size_t>(row.item)].slot)];
  sent_.push_back({&batch, std::make_shared<Arrival>(), next_mailbox_});
  next_mailbox_ = (next_mailbox_ + 1) % mailboxes_.size();
  return sent_.back().arrival;
}

void DeviceTokens::receive(Sampler& sampler) {
  check(!sent_.empty(), "no batch is on its way");
  const Sent sent = std::move(sent_.front());
  sent_.pop_front();
  Mailbox& box = mailboxes_[sent.mailbox];
  box.arrived.wait();
  const auto rows = static_cast<std::int64_t>(sent.batch->logit_rows.size());
  const Tensor tokens = box.memory.tensor(DType::kI32, {rows});
  sent.arrival->result = sampler.accept(*sent.batch, {tokens.ptr<std::int32_t>(), static_cast<std::size_t>(rows)});
  sent.arrival->there = true;
  for (const LogitRow& row : sent.batch->logit_rows)
    --on_their_way_[static_cast<std::size_t>(sent.batch->items[static_cast<std::size_t>(row.item)].slot)];
}

}  // namespace sluice
