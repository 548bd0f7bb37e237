#include "batch/batch.h"

#include <bit>
#include <span>

#include "base/hash.h"

namespace sluice {
namespace {

std::uint64_t fold(std::uint64_t h, const std::vector<std::int32_t>& values) {
  return hash_span(std::span<const std::int32_t>(values), h);
}

std::uint64_t fold(std::uint64_t h, const SamplingParams& p) {
  for (float value : {p.temperature, p.top_p, p.min_p, p.frequency_penalty, p.presence_penalty,
                      p.repetition_penalty})
    h = hash_combine(h, std::bit_cast<std::uint32_t>(value));
  for (const auto& [token, bias] : p.logit_bias)
    h = hash_combine(hash_combine(h, static_cast<std::uint32_t>(token)),
                     std::bit_cast<std::uint32_t>(bias));
  h = hash_combine(h, p.seed);
  h = hash_combine(h, static_cast<std::uint64_t>(p.top_k) ^
                          (static_cast<std::uint64_t>(p.min_new_tokens) << 32));
  return fold(hash_combine(h, static_cast<std::uint64_t>(p.num_top_logprobs)), p.stop_token_ids);
}

std::uint64_t fold(std::uint64_t h, const Batch& batch) {
  h = hash_combine(
      h, static_cast<std::uint64_t>(batch.mode) << 2 | batch.is_round << 1 | batch.deterministic);
  h = hash_combine(h, static_cast<std::uint32_t>(batch.max_drafts));
  for (const BatchItem& item : batch.items) {
    h = hash_combine(h, item.sequence);
    h = hash_combine(
        h, (static_cast<std::uint64_t>(item.slot) << 32) ^ static_cast<std::uint32_t>(item.first));
    h = hash_combine(
        h, static_cast<std::uint64_t>(item.count) << 2 | item.is_ahead << 1 | item.decode);
    h = hash_combine(h, static_cast<std::uint32_t>(item.next_token));
  }
  h = fold(h, batch.token_ids);
  for (const PageRows& rows : batch.groups) h = fold(fold(h, rows.offsets), rows.pages);
  h = fold(h, batch.state_slots);
  for (const PageCopy& copy : batch.copies)
    for (std::int32_t value : {copy.group, copy.from, copy.to, copy.tokens})
      h = hash_combine(h, static_cast<std::uint32_t>(value));
  for (const SlotInit& init : batch.slot_inits) {
    h = fold(hash_combine(h, static_cast<std::uint64_t>(init.slot)), init.params);
    h = hash_combine(fold(fold(h, init.prompt), init.output),
                     static_cast<std::uint64_t>(init.num_output));
  }
  for (const LogitRow& row : batch.logit_rows)
    for (std::int32_t value : {row.item, row.row, row.position, std::int32_t{row.sample},
                               row.target, row.num_top_logprobs, std::int32_t{row.want_hash},
                               std::int32_t{row.has_mask}, row.behind})
      h = hash_combine(h, static_cast<std::uint32_t>(value));
  for (const PooledRows& rows : batch.pooled_rows)
    for (std::int32_t value : {rows.item, rows.row, rows.count})
      h = hash_combine(h, static_cast<std::uint32_t>(value));
  for (const ItemBranches& one : batch.branches) {
    for (std::int32_t value : {one.item, one.first_page, one.num_pages})
      h = hash_combine(h, static_cast<std::uint32_t>(value));
    h = fold(fold(h, one.parents), one.pages);
  }
  return h;
}

}  // namespace

std::uint64_t hash_step(const Step& step) {
  std::uint64_t h = hash_combine(0, step.id);
  for (const Batch& batch : step.dp) h = fold(h, batch);
  for (const ExpertMove& move : step.expert_moves) {
    for (const std::int32_t value : {move.layer, move.expert, move.from, move.to})
      h = hash_combine(h, static_cast<std::uint32_t>(value));
    h = hash_combine(hash_combine(h, static_cast<std::uint64_t>(move.begin)),
                     static_cast<std::uint64_t>(move.end));
  }
  return fold(h, step.global_tokens);
}

}  // namespace sluice
