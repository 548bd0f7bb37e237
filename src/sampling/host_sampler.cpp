#include "sampling/host_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "kernels/cpu/sampling/sample.h"
#include "sampling/row_math.h"
#include "tensor/format.h"

namespace sluice {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

ops::SampleRow sample_row(const SamplingParams& params, std::int32_t position) {
  return {.temperature = params.temperature,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .top_k = params.top_k,
          .uniform = uniform_at(params.seed, position)};
}

}  // namespace

HostSampler::HostSampler(int max_slots, int vocab_size, std::vector<double> pretended,
                         std::vector<std::int32_t> replayed)
    : vocab_size_(vocab_size),
      pretended_(std::move(pretended)),
      replayed_(std::move(replayed)),
      slots_(static_cast<std::size_t>(max_slots)) {
  check(max_slots > 0 && vocab_size > 0, "sampler of {} slots and {} tokens", max_slots,
        vocab_size);
}

void HostSampler::apply(std::span<const SlotInit> inits) {
  for (const SlotInit& init : inits) {
    check(init.slot >= 0 && static_cast<std::size_t>(init.slot) < slots_.size(), "slot {} of {}",
          init.slot, slots_.size());
    Slot& slot = slots_[init.slot];
    slot.params = init.params;
    slot.num_output = init.num_output;
    slot.last_token = init.output.empty() ? -1 : init.output.back();
    slot.counts.clear();
    std::unordered_set<std::int32_t> biased;
    slot.repeats_biases = !std::ranges::all_of(
        init.params.logit_bias, [&](const auto& bias) { return biased.insert(bias.first).second; });
    if (!slot.params.needs_history()) continue;
    for (std::int32_t token : init.prompt) slot.counts.try_emplace(token, 0);
    for (std::int32_t token : init.output) ++slot.counts[token];
  }
}

void HostSampler::begin(const Batch& batch) {
  apply(batch.slot_inits);
  begin_rows(batch);
}

void expect_masks(const Batch& batch, const SampleInputs& inputs) {
  auto next = inputs.masks.begin();
  for (std::size_t i = 0; i < batch.logit_rows.size(); ++i) {
    if (!batch.logit_rows[i].has_mask) continue;
    check(next != inputs.masks.end() && next->logit_row == static_cast<std::int32_t>(i),
          "logit row {} waits for a mask that did not come", i);
    ++next;
  }
  const bool all_taken = next == inputs.masks.end();
  check(all_taken, "a mask for logit row {}", all_taken ? -1 : next->logit_row);
}

void HostSampler::begin_rows(const Batch& batch, const SampleInputs& inputs) {
  rows_.assign(batch.logit_rows.size(), {});
  for (const TokenMask& mask : inputs.masks)
    rows_.at(static_cast<std::size_t>(mask.logit_row)).mask = &mask;
}

bool HostSampler::needs_host(const LogitRow& row, std::int32_t slot) const {
  const Slot& of = slots_[slot];
  // The device may know two tokens more than the host.
  const std::size_t edits =
      of.counts.size() + of.params.logit_bias.size() + of.params.stop_token_ids.size() + 2;
  return !row.sample || row.want_hash || row.num_top_logprobs > ops::kMaxTopLogprobs ||
         of.repeats_biases || edits > static_cast<std::size_t>(kMaxEdits);
}

bool HostSampler::any_needs_host(const Batch& batch) const {
  for (std::size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const LogitRow& row = batch.logit_rows[i];
    const std::int32_t slot = batch.items[row.item].slot;
    // The device has one list of edits for a slot.
    if (needs_host(row, slot) ||
        (is_behind_draft(batch, i) && logit_edits_of(row, slot, 0).slot >= 0))
      return true;
  }
  return false;
}

ops::SampleRow HostSampler::sample_row_of(const LogitRow& row, std::int32_t slot) const {
  return needs_host(row, slot) ? ops::SampleRow{} : sample_row(slots_[slot].params, row.position);
}

ops::LogitEdits HostSampler::logit_edits_of(const LogitRow& row, std::int32_t slot,
                                            std::int32_t num_ahead) const {
  ops::LogitEdits edits;
  if (needs_host(row, slot)) return edits;
  const SamplingParams& params = slots_[slot].params;
  edits.num_top_logprobs = row.num_top_logprobs;
  edits.bans =
      slots_[slot].num_output + num_ahead < params.min_new_tokens && !params.stop_token_ids.empty();
  edits.remembers = params.needs_history();
  if (edits.bans == 0 && edits.remembers == 0 && params.logit_bias.empty()) return edits;
  edits.slot = slot;
  edits.repetition = params.repetition_penalty;
  edits.frequency = params.frequency_penalty;
  edits.presence = params.presence_penalty;
  return edits;
}

std::vector<ops::LogitEdit> HostSampler::list_of(std::int32_t slot) const {
  const Slot& of = slots_[slot];
  std::unordered_map<std::int32_t, ops::LogitEdit> edits;
  const auto edit = [&](std::int32_t token) -> ops::LogitEdit& {
    ops::LogitEdit& found = edits[token];
    found.token = token;
    return found;
  };
  for (const auto& [token, bias] : of.params.logit_bias)
    if (known(token)) edit(token).bias = bias;
  if (of.params.min_new_tokens > 0)
    for (const std::int32_t token : of.params.stop_token_ids)
      if (known(token)) edit(token).banned = 1;
  for (const auto& [token, count] : of.counts)
    if (known(token)) edit(token).count = count;
  std::vector<ops::LogitEdit> out;
  out.reserve(edits.size());
  for (const auto& [token, one] : edits) out.push_back(one);
  return out;
}

BatchResult HostSampler::accept(const Batch& batch, std::span<const std::int32_t> tokens,
                                const ops::SampledRow* sampled_rows,
                                std::span<const std::int32_t> skipped) {
  check(tokens.size() == batch.logit_rows.size(), "{} tokens for {} logit rows", tokens.size(),
        batch.logit_rows.size());
  begin_rows(batch);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (is_behind_draft(batch, i)) {
      const bool is_skipped =
          std::ranges::binary_search(skipped, static_cast<std::int32_t>(i)) || tokens[i] < 0;
      if (!follow_draft(batch, i, is_skipped)) continue;
    }
    rows_[i].done = true;
    rows_[i].failed = tokens[i] < 0;
    rows_[i].token = replayed_or(batch.logit_rows[i], tokens[i]);
    if (batch.logit_rows[i].num_top_logprobs < 0 || rows_[i].failed) continue;
    check(sampled_rows != nullptr, "log-probabilities of row {} are wanted and were not read", i);
    rows_[i].logprobs.logprob = sampled_rows[i].logprob;
    for (std::int32_t k = 0; k < sampled_rows[i].num_top; ++k)
      rows_[i].logprobs.top.push_back(
          {sampled_rows[i].top[k].token, sampled_rows[i].top[k].logprob});
  }
  return finish(batch);
}

void HostSampler::process(const Context& ctx, const Batch& batch, std::int32_t first_row,
                          const Tensor& logits) {
  check(logits.rank == 2 && logits.dim(1) == vocab_size_ && logits.dense(),
        "logits {} for {} tokens", logits, vocab_size_);
  check(first_row >= 0 && first_row + logits.dim(0) <= static_cast<std::int64_t>(rows_.size()),
        "logit rows {} + {} of {}", first_row, logits.dim(0), rows_.size());
  if (ctx.dry_run) return;
  float* data = logits.ptr<float>();
  const auto first = static_cast<std::size_t>(first_row);
  const std::size_t last = first + static_cast<std::size_t>(logits.dim(0));
  // Rows that may depend on each other are one worker's. Rows of a prompt never do.
  item_begins_.clear();
  for (std::size_t row = first; row < last; ++row)
    if (row == first || !is_behind_draft(batch, row)) item_begins_.push_back(row);
  item_begins_.push_back(last);
  const auto count = static_cast<std::int64_t>(item_begins_.size()) - 1;
  ctx.pool->parallel_for(count, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scratch;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::size_t row = item_begins_[static_cast<std::size_t>(i)];
      process_item(batch, row, item_begins_[static_cast<std::size_t>(i) + 1],
                   data + static_cast<std::int64_t>(row - first) * vocab_size_, scratch,
                   count == 1 ? ctx.pool : nullptr);
    }
  });
}

bool HostSampler::is_behind_draft(const Batch& batch, std::size_t row) const {
  if (row == 0 || !batch.logit_rows[row].sample) return false;
  const LogitRow& before = batch.logit_rows[row - 1];
  return before.sample && before.item == batch.logit_rows[row].item;
}

void HostSampler::process_item(const Batch& batch, std::size_t begin, std::size_t end,
                               float* logits, std::vector<float>& scratch, ThreadPool* pool) {
  for (std::size_t i = begin; i < end; ++i, logits += vocab_size_) {
    const LogitRow& row = batch.logit_rows[i];
    Slot& slot = slots_[batch.items[row.item].slot];
    RowResult& result = rows_[i];
    const bool is_behind = is_behind_draft(batch, i);
    if (is_behind && !follow_draft(batch, i, result.mask != nullptr && result.mask->is_skipped))
      continue;
    process_row(row, slot, logits, scratch, pool, result);
    // The next step samples this position first, and says that it fails.
    if (is_behind && result.failed) {
      result.failed = false;
      result.is_skipped = true;
    }
  }
}

bool HostSampler::pretends(const Batch& batch, std::size_t row) const {
  const LogitRow& logit_row = batch.logit_rows[row];
  const BatchItem& item = batch.items[static_cast<std::size_t>(logit_row.item)];
  const auto place = static_cast<std::size_t>(logit_row.position - item.first - 2);
  return place < pretended_.size() &&
         uniform_at(slots_[item.slot].params.seed, -logit_row.position) < pretended_[place];
}

std::int32_t HostSampler::wrong_token(const Batch& batch, std::int32_t item) {
  std::int32_t token = 0;
  const auto holds = [&](const LogitRow& row) {
    return row.item == item && batch.token_ids[static_cast<std::size_t>(row.row)] == token;
  };
  while (std::ranges::any_of(batch.logit_rows, holds)) ++token;
  return token;
}

bool HostSampler::follow_draft(const Batch& batch, std::size_t row, bool is_skipped) {
  const LogitRow& logit_row = batch.logit_rows[row];
  RowResult& before = rows_[row - static_cast<std::size_t>(logit_row.behind)];
  // Of a tree the first draft behind a token is right, or none is. In a round the device pretends.
  if (!pretended_.empty() && !batch.is_round && !before.is_skipped && !before.failed &&
      !std::exchange(before.is_pretended, true))
    before.token = pretends(batch, row) ? batch.token_ids[static_cast<std::size_t>(logit_row.row)]
                                        : wrong_token(batch, logit_row.item);
  // In a round the device has left out the rows behind wrong drafts.
  const bool was_right =
      !before.is_skipped && !before.failed &&
      (batch.is_round || before.token == batch.token_ids[static_cast<std::size_t>(logit_row.row)]);
  if (was_right && !is_skipped) {
    remember(slots_[batch.items[logit_row.item].slot], before);
    return true;
  }
  rows_[row].done = rows_[row].is_skipped = true;
  return false;
}

std::int32_t HostSampler::replayed_or(const LogitRow& row, std::int32_t token) const {
  const auto position = static_cast<std::size_t>(row.position);
  return token >= 0 && position < replayed_.size() ? replayed_[position] : token;
}

void HostSampler::remember(Slot& slot, RowResult& row) {
  if (std::exchange(row.is_remembered, true)) return;
  slot.last_token = row.token;
  ++slot.num_output;
  if (slot.params.needs_history()) ++slot.counts[row.token];
}

void HostSampler::process_row(const LogitRow& row, const Slot& slot, float* logits,
                              std::vector<float>& scratch, ThreadPool* pool,
                              RowResult& result) const {
  scratch.clear();
  const std::span<float> values(logits, static_cast<std::size_t>(vocab_size_));
  check(!result.done, "logit row of token row {} was given twice", row.row);
  result.done = true;
  if (row.want_hash) result.logprobs.logits_hash = hash_span(std::span<const float>(values));

  const draw::RowMax raw = pool != nullptr ? draw::row_max(*pool, values) : draw::row_max(values);
  result.failed = !raw.finite;
  if (result.failed) return;
  double normaliser = 0;
  const bool want_logprobs = !row.sample || row.num_top_logprobs >= 0;
  if (want_logprobs) {
    normaliser = log_sum_exp(values, raw.value);
    result.logprobs.top = top_logprobs(values, row.num_top_logprobs, normaliser);
  }
  if (!row.sample) {
    check(row.target >= 0 && row.target < vocab_size_, "target {} of {} tokens", row.target,
          vocab_size_);
    result.logprobs.logprob = static_cast<float>(values[row.target] - normaliser);
    return;
  }

  const SamplingParams& params = slot.params;
  const bool bans_stop_tokens =
      slot.num_output < params.min_new_tokens && !params.stop_token_ids.empty();
  const bool adjusts = !params.logit_bias.empty() || bans_stop_tokens || params.needs_history() ||
                       result.mask != nullptr;
  if (want_logprobs && (adjusts || !params.greedy())) scratch.assign(values.begin(), values.end());
  draw::RowMax max = raw;
  if (adjusts) {
    adjust(slot, logits);
    if (result.mask != nullptr)
      for (std::int32_t token = 0; token < vocab_size_; ++token)
        if (!result.mask->allows(token)) logits[token] = kMinusInfinity;
    max = draw::row_max(values);
    result.failed = !max.finite;
    if (result.failed) return;
  }
  const ops::SampleRow how = sample_row(params, row.position);
  result.token = replayed_or(
      row, how.greedy() && max.first >= 0 ? max.first : draw::choose(values, max.value, how));
  if (want_logprobs) {
    const float raw_logit = scratch.empty() ? values[result.token] : scratch[result.token];
    result.logprobs.logprob = static_cast<float>(raw_logit - normaliser);
  }
}

// The bits of draw::edited_logit (kernels/types/logit_edit_math.h), edit by edit.
void HostSampler::adjust(const Slot& slot, float* logits) const {
  const SamplingParams& params = slot.params;
  for (const auto& [token, bias] : params.logit_bias)
    if (known(token)) logits[token] += bias;
  if (slot.num_output < params.min_new_tokens)
    for (std::int32_t token : params.stop_token_ids)
      if (known(token)) logits[token] = kMinusInfinity;
  for (const auto& [token, count] : slot.counts) {
    if (!known(token)) continue;
    float& x = logits[token];
    x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
    if (count > 0)
      x -= params.frequency_penalty * static_cast<float>(count) + params.presence_penalty;
  }
}

BatchResult HostSampler::finish(const Batch& batch) {
  BatchResult result;
  const std::size_t num_items = batch.items.size();
  result.failed.assign(num_items, 0);
  result.token_offsets.assign(num_items + 1, 0);
  result.prompt_offsets.assign(num_items + 1, 0);

  // Logit rows ascend by token row, and items cover token rows in order, so rows of an item are
  // neighbours.
  std::size_t row = 0;
  for (std::size_t item = 0; item < num_items; ++item) {
    for (; row < batch.logit_rows.size() &&
           batch.logit_rows[row].item == static_cast<std::int32_t>(item);
         ++row) {
      RowResult& found = rows_[row];
      check(found.done, "logit row {} of {} was not processed", row, rows_.size());
      if (found.failed) {
        result.failed[item] = 1;
      } else if (found.is_skipped) {
        continue;
      } else if (batch.logit_rows[row].sample) {
        result.tokens.push_back(found.token);
        result.token_logprobs.push_back(std::move(found.logprobs));
        remember(slots_[batch.items[item].slot], found);
      } else {
        result.prompt_logprobs.push_back(std::move(found.logprobs));
      }
    }
    result.token_offsets[item + 1] = static_cast<std::int32_t>(result.tokens.size());
    result.prompt_offsets[item + 1] = static_cast<std::int32_t>(result.prompt_logprobs.size());
  }
  check(row == batch.logit_rows.size(), "logit rows are not in the order of items: row {} of {}",
        row, batch.logit_rows.size());
  return result;
}

BatchResult HostSampler::sample(const Context& ctx, const Batch& batch, const Tensor& logits) {
  begin(batch);
  if (!batch.logit_rows.empty()) process(ctx, batch, 0, logits);
  return finish(batch);
}

}  // namespace sluice
