#include "sampling/device_sampler.h"

#include <utility>

#include "base/error.h"
#include "ops/graph_io.h"
#include "ops/tokens.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

constexpr std::int64_t kAlignment = 64;
std::int64_t align(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

DeviceSampler::DeviceSampler(std::int64_t max_slots, std::int64_t max_rows, int max_drafts,
                             int depth, Device device, const Stream& stream)
    : stream_(stream),
      memory_(bytes(max_slots, max_rows, max_drafts), device),
      on_their_way_(static_cast<std::size_t>(max_slots)) {
  const std::int64_t of_slots = (1 + max_drafts) * max_slots;
  slot_tokens_ = memory_.tensor(DType::kI32, {of_slots});
  tokens_ = memory_.tensor(DType::kI32, {max_rows}, align(4 * of_slots));
  counter_ = memory_.tensor(DType::kI64, {1}, align(4 * of_slots) + align(4 * max_rows));
  for (Buffer& box : boxes_) box = Buffer::staging(4 * max_rows, device);
  for (int i = 0; i < depth; ++i)
    result_buffers_.push_back(
        {Buffer::staging(4 * max_rows, device),
         Buffer::staging(max_rows * static_cast<std::int64_t>(sizeof(ops::SampledRow)), device),
         StreamEvent(device)});
}

std::int64_t DeviceSampler::bytes(std::int64_t max_slots, std::int64_t max_rows, int max_drafts) {
  return align(4 * (1 + max_drafts) * max_slots) + align(4 * max_rows) + kAlignment;
}

void DeviceSampler::resolve(Context& ctx, const Tensor& ids) const {
  ops::take_slot_tokens(ctx, slot_tokens_, ids);
}

Tensor DeviceSampler::choose(Context& ctx, const Tensor& logits, const Tensor& sample_rows) const {
  const Tensor tokens = tokens_.rows(0, logits.dim(0));
  ops::sample_tokens(ctx, logits, sample_rows, tokens);
  return tokens;
}

void DeviceSampler::keep(Context& ctx, const Tensor& logit_slots) const {
  ops::put_slot_tokens(ctx, tokens_.rows(0, logit_slots.dim(0)), logit_slots, slot_tokens_);
}

void DeviceSampler::store(Context& ctx, const Tensor& logit_slots) const {
  const std::int64_t rows = tokens_.dim(0);
  ops::store_step_tokens(
      ctx, tokens_.rows(0, logit_slots.dim(0)), logit_slots, slot_tokens_, counter_,
      {boxes_[0].tensor(DType::kI32, {rows}), boxes_[1].tensor(DType::kI32, {rows})});
}

std::shared_ptr<SampleResult> DeviceSampler::note(const Batch& batch, const Tensor& sampled_rows,
                                                  const std::int32_t* tokens,
                                                  std::vector<std::int32_t> skipped) {
  ResultBuffer& box = result_buffers_[next_result_buffer_];
  const auto rows = static_cast<std::int64_t>(batch.logit_rows.size());
  const bool has_sampled_rows = sampled_rows.defined() && rows > 0;
  if (has_sampled_rows)
    copy(stream_, sampled_rows.rows(0, rows),
         box.sampled_rows.tensor(DType::kU8, {rows, sampled_rows.dim(1)}));
  box.arrived.record(stream_);
  for (const LogitRow& row : batch.logit_rows)
    ++on_their_way_[static_cast<std::size_t>(batch.items[static_cast<std::size_t>(row.item)].slot)];
  sent_.push_back({&batch, std::make_shared<SampleResult>(), next_result_buffer_, tokens,
                   has_sampled_rows, std::move(skipped)});
  next_result_buffer_ = (next_result_buffer_ + 1) % result_buffers_.size();
  return sent_.back().sample_result;
}

std::shared_ptr<SampleResult> DeviceSampler::send(const Batch& batch, const Tensor& sampled_rows,
                                                  std::vector<std::int32_t> skipped) {
  check(sent_.size() < result_buffers_.size(), "{} batches are on their way already", sent_.size());
  const auto rows = static_cast<std::int64_t>(batch.logit_rows.size());
  const Tensor place = result_buffers_[next_result_buffer_].memory.tensor(DType::kI32, {rows});
  if (rows > 0) copy(stream_, tokens_.rows(0, rows), place);
  return note(batch, sampled_rows, place.ptr<std::int32_t>(), std::move(skipped));
}

std::shared_ptr<SampleResult> DeviceSampler::send_replayed(const Batch& batch,
                                                           const Tensor& sampled_rows) {
  // counted by the device already
  const Buffer& box = boxes_[static_cast<std::size_t>(num_replayed_++ % 2)];
  check(sent_.size() < result_buffers_.size(), "{} batches are on their way already", sent_.size());
  return note(batch, sampled_rows, static_cast<const std::int32_t*>(box.data()), {});
}

void DeviceSampler::receive(HostSampler& sampler) {
  check(!sent_.empty(), "no batch is on its way");
  const Sent sent = std::move(sent_.front());
  sent_.pop_front();
  ResultBuffer& box = result_buffers_[sent.result_buffer];
  box.arrived.wait();
  const auto* sampled_rows = sent.has_sampled_rows
                                 ? static_cast<const ops::SampledRow*>(box.sampled_rows.data())
                                 : nullptr;
  sent.sample_result->result = sampler.accept(
      *sent.batch, {sent.tokens, sent.batch->logit_rows.size()}, sampled_rows, sent.skipped);
  sent.sample_result->is_there = true;
  for (const LogitRow& row : sent.batch->logit_rows)
    --on_their_way_[static_cast<std::size_t>(
        sent.batch->items[static_cast<std::size_t>(row.item)].slot)];
}

}  // namespace sluice
