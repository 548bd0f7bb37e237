#include "engine/grammar_rows.h"

#include <algorithm>

namespace sluice {

void GrammarRows::add(const QueuedRequest& request) {
  if (!request.make_constraint) return;
  for (int choice = 0; choice < request.num_choices; ++choice)
    rows_.emplace(sequence_id(request.id, choice),
                  Row{.constraint = request.make_constraint(),
                      .stop_tokens = request.params.stop_token_ids,
                      .min_tokens = request.params.min_new_tokens});
}

bool GrammarRows::wants_masks(const Step& step) {
  return std::ranges::any_of(step.dp, [](const Batch& batch) {
    return std::ranges::any_of(batch.logit_rows, &LogitRow::has_mask);
  });
}

std::vector<SampleInputs> GrammarRows::masks(const Step& step, int vocab_size) {
  std::vector<SampleInputs> inputs(step.dp.size());
  for (std::size_t group = 0; group < step.dp.size(); ++group) {
    const Batch& batch = step.dp[group];
    for (std::size_t i = 0; i < batch.logit_rows.size(); ++i) {
      const LogitRow& row = batch.logit_rows[i];
      if (!row.has_mask) continue;
      TokenMask& mask = inputs[group].masks.emplace_back();
      mask.logit_row = static_cast<std::int32_t>(i);
      mask.bits.resize((static_cast<std::size_t>(vocab_size) + 31) / 32);
      fill(batch.items[static_cast<std::size_t>(row.item)].sequence, mask);
    }
  }
  return inputs;
}

void GrammarRows::fill(std::uint64_t sequence, TokenMask& mask) {
  const auto all = [&] { std::ranges::fill(mask.bits, ~0u); };
  const auto found = rows_.find(sequence);
  // a sequence that ended in a step before this one
  if (found == rows_.end() || found->second.is_refused) return all();
  Row& row = found->second;
  if (!row.constraint->fill(mask.bits)) {
    refuse(sequence, row,
           {500, "grammar_budget_exceeded", "",
            "The grammar of this request needs more steps for one token than are allowed; "
            "simplify it."});
    return all();
  }
  const bool may_stop = row.num_tokens >= row.min_tokens;
  const bool had_tokens =
      std::ranges::any_of(mask.bits, [](std::uint32_t bits) { return bits != 0; });
  if (!may_stop)
    for (const std::int32_t token : row.stop_tokens)
      mask.bits[static_cast<std::size_t>(token) / 32] &= ~(1u << (token % 32));
  if (std::ranges::any_of(mask.bits, [](std::uint32_t bits) { return bits != 0; })) return;
  if (had_tokens)
    refuse(sequence, row,
           {400, "grammar_is_over", "",
            fmt::format("The grammar was fulfilled after {} tokens, but at least {} were asked "
                        "for; ask for fewer.",
                        row.num_tokens, row.min_tokens)});
  else
    refuse(sequence, row,
           {500, "grammar_dead_end", "",
            "No token of the model's vocabulary continues the output within its grammar."});
  all();
}

void GrammarRows::accept(std::span<const Event> events) {
  for (const Event& event : events) {
    const auto found = rows_.find(sequence_id(event.request, event.choice));
    if (found == rows_.end()) continue;
    Row& row = found->second;
    for (const std::int32_t token : event.tokens) {
      ++row.num_tokens;
      if (row.is_refused || row.constraint->accept(token)) continue;
      // A stop token of the request's own that is text to the grammar may stand anywhere.
      if (event.finish == FinishReason::kStop && token == event.matched_token) continue;
      refuse(found->first, row,
             {500, "grammar_mismatch", "", "A token came that the grammar does not allow."});
    }
  }
}

void GrammarRows::refuse(std::uint64_t sequence, Row& row, Fault fault) {
  row.is_refused = true;
  refused_.push_back({sequence >> 8, std::move(fault)});
}

}  // namespace sluice
