#include "sampling/device_logit_edits.h"

#include <algorithm>

#include "base/error.h"
#include "ops/logit_edits.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

constexpr std::int64_t kEditBytes = sizeof(ops::LogitEdit),
                       kSampledRowBytes = sizeof(ops::SampledRow);

std::int64_t align(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace

std::int64_t DeviceLogitEdits::edits_of_slot(std::int64_t vocab_size) {
  return std::min<std::int64_t>(vocab_size, HostSampler::kMaxEdits);
}

std::int64_t DeviceLogitEdits::bytes(std::int64_t max_slots, std::int64_t max_rows,
                                     std::int64_t max_edits) {
  return align(max_slots * max_edits * kEditBytes) + align(4 * max_slots) +
         max_rows * kSampledRowBytes;
}

DeviceLogitEdits::DeviceLogitEdits(std::int64_t max_slots, std::int64_t max_rows,
                                   std::int64_t max_edits, Device device, const Stream& stream)
    : stream_(stream),
      memory_(bytes(max_slots, max_rows, max_edits), device),
      is_there_(static_cast<std::size_t>(max_slots)) {
  const std::int64_t lengths_at = align(max_slots * max_edits * kEditBytes);
  edit_lists_ = memory_.tensor(DType::kU8, {max_slots, max_edits, kEditBytes});
  lengths_ = memory_.tensor(DType::kI32, {max_slots}, lengths_at);
  sampled_rows_ =
      memory_.tensor(DType::kU8, {max_rows, kSampledRowBytes}, lengths_at + align(4 * max_slots));
}

bool DeviceLogitEdits::wanted(const Batch& batch, const HostSampler& sampler) const {
  return std::ranges::any_of(batch.logit_rows, [&](const LogitRow& row) {
    return sampler.logit_edits_of(row, batch.items[static_cast<std::size_t>(row.item)].slot, 0)
        .anything();
  });
}

void DeviceLogitEdits::refresh(const Batch& batch, const HostSampler& sampler) {
  for (const LogitRow& row : batch.logit_rows) {
    const std::int32_t slot = batch.items[static_cast<std::size_t>(row.item)].slot;
    if (is_there_[static_cast<std::size_t>(slot)] || sampler.logit_edits_of(row, slot, 0).slot < 0)
      continue;
    const std::vector<ops::LogitEdit> list = sampler.list_of(slot);
    auto length = static_cast<std::int32_t>(list.size());
    check(length <= edit_lists_.dim(1), "{} logit edits of slot {}; {} at most", length, slot,
          edit_lists_.dim(1));
    const auto put = [&](const void* from, const Tensor& to) {
      Tensor host = to;
      host.device = {};
      host.data = const_cast<void*>(from);
      copy(stream_, host, to);
    };
    const Tensor place = edit_lists_.at(slot);
    if (length > 0) put(list.data(), place.rows(0, length));
    put(&length, lengths_.rows(slot, 1));
    is_there_[static_cast<std::size_t>(slot)] = true;
  }
}

void DeviceLogitEdits::before(Context& ctx, const Tensor& logits, const Tensor& logit_edits) const {
  ops::read_logprobs(ctx, logits, logit_edits, sampled_rows_.rows(0, logits.dim(0)));
  ops::adjust_logits(ctx, logit_edits, edit_lists_, lengths_, logits);
}

void DeviceLogitEdits::after(Context& ctx, const Tensor& tokens, const Tensor& logits,
                             const Tensor& logit_edits) const {
  ops::record_sampled_rows(ctx, tokens, logits, logit_edits, edit_lists_, lengths_,
                           sampled_rows_.rows(0, logits.dim(0)));
}

}  // namespace sluice
