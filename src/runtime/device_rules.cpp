#include "runtime/device_rules.h"

#include <algorithm>

#include "base/error.h"
#include "ops/penalties.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

constexpr std::int64_t kRuleBytes = sizeof(ops::TokenRule), kChoiceBytes = sizeof(ops::RowChoice);

std::int64_t align(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

std::int64_t DeviceRules::rules_of_slot(std::int64_t vocab_size) {
  return std::min<std::int64_t>(vocab_size, Sampler::kMaxRules);
}

std::int64_t DeviceRules::bytes(std::int64_t max_slots, std::int64_t max_rows, std::int64_t max_rules) {
  return align(max_slots * max_rules * kRuleBytes) + align(4 * max_slots) + max_rows * kChoiceBytes;
}

DeviceRules::DeviceRules(std::int64_t max_slots, std::int64_t max_rows, std::int64_t max_rules, Device device, const Stream& stream)
    : stream_(stream), memory_(bytes(max_slots, max_rows, max_rules), device), there_(static_cast<std::size_t>(max_slots)) {
  const std::int64_t lengths_at = align(max_slots * max_rules * kRuleBytes);
  rules_ = memory_.tensor(DType::kU8, {max_slots, max_rules, kRuleBytes});
  lengths_ = memory_.tensor(DType::kI32, {max_slots}, lengths_at);
  choices_ = memory_.tensor(DType::kU8, {max_rows, kChoiceBytes}, lengths_at + align(4 * max_slots));
}

bool DeviceRules::wanted(const Batch& batch, const Sampler& sampler) const {
  return std::ranges::any_of(batch.logit_rows, [&](const LogitRow& row) {
    return sampler.ask_of(row, batch.items[static_cast<std::size_t>(row.item)].slot, 0).anything();
  });
}

void DeviceRules::refresh(const Batch& batch, const Sampler& sampler) {
  for (const LogitRow& row : batch.logit_rows) {
    const std::int32_t slot = batch.items[static_cast<std::size_t>(row.item)].slot;
    if (there_[static_cast<std::size_t>(slot)] || sampler.ask_of(row, slot, 0).slot < 0) continue;
    const std::vector<ops::TokenRule> list = sampler.rules_of(slot);
    auto length = static_cast<std::int32_t>(list.size());
    check(length <= rules_.dim(1), "{} rules of slot {}; {} at most", length, slot, rules_.dim(1));
    const auto put = [&](const void* from, const Tensor& to) {
      Tensor host = to;
      host.device = {};
      host.data = const_cast<void*>(from);
      copy(stream_, host, to);
    };
    const Tensor place = rules_.at(slot);
    if (length > 0) put(list.data(), place.rows(0, length));
    put(&length, lengths_.rows(slot, 1));
    there_[static_cast<std::size_t>(slot)] = true;
  }
}

void DeviceRules::before(Context& ctx, const Tensor& logits, const Tensor& asks) const {
  ops::read_logprobs(ctx, logits, asks, choices_.rows(0, logits.dim(0)));
  ops::adjust_logits(ctx, asks, rules_, lengths_, logits);
}

void DeviceRules::after(Context& ctx, const Tensor& tokens, const Tensor& logits, const Tensor& asks) const {
  ops::remember_choices(ctx, tokens, logits, asks, rules_, lengths_, choices_.rows(0, logits.dim(0)));
}

}  // namespace sluice
