#include "engine/grammar_rows.h"

#include <algorithm>
#include <optional>

namespace sluice {
namespace {

bool any_token(const TokenMask& mask) {
  return std::ranges::any_of(mask.bits, [](std::uint32_t bits) { return bits != 0; });
}

}  // namespace

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
    std::vector<TokenMask>& masks = inputs[group].masks;
    for (std::size_t i = 0; i < batch.logit_rows.size(); ++i) {
      if (!batch.logit_rows[i].has_mask) continue;
      TokenMask& mask = masks.emplace_back();
      mask.logit_row = static_cast<std::int32_t>(i);
      mask.bits.resize((static_cast<std::size_t>(vocab_size) + 31) / 32);
    }
    for (std::size_t i = 0; i < masks.size();) {
      const auto row = static_cast<std::size_t>(masks[i].logit_row);
      const std::int32_t item = batch.logit_rows[row].item;
      fill(batch.items[static_cast<std::size_t>(item)].sequence, masks[i]);
      std::size_t end = i + 1;
      while (end < masks.size() &&
             batch.logit_rows[static_cast<std::size_t>(masks[end].logit_row)].item == item)
        ++end;
      fill_drafts(batch, row + 1, masks[i], std::span(masks).subspan(i + 1, end - i - 1));
      i = end;
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
  const bool had_tokens = any_token(mask);
  if (leaves_token(row, row.num_tokens, mask)) return;
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

void GrammarRows::fill_drafts(const Batch& batch, std::size_t first, const TokenMask& before,
                              std::span<TokenMask> masks) {
  if (masks.empty()) return;
  const auto item = static_cast<std::size_t>(batch.logit_rows[first].item);
  const auto found = rows_.find(batch.items[item].sequence);
  // What is refused or over is sampled no further.
  const bool is_known = found != rows_.end() && !found->second.is_refused;
  // The rows whose drafts the constraint has accepted, one behind the other.
  std::vector<std::size_t> path;
  std::vector<std::size_t> wanted;
  const auto draft_of = [&](std::size_t i) {
    return batch.token_ids[static_cast<std::size_t>(batch.logit_rows[first + i].row)];
  };
  // Of mask i; the row before the drafts has none.
  const auto parent_of = [&](std::size_t i) -> std::optional<std::size_t> {
    const auto behind = static_cast<std::size_t>(batch.logit_rows[first + i].behind);
    return behind > i ? std::nullopt : std::optional(i - behind);
  };
  // Goes to the place behind a row that was accepted before.
  const auto go_to = [&](std::optional<std::size_t> row) {
    wanted.clear();
    for (; row; row = parent_of(*row)) wanted.insert(wanted.begin(), *row);
    const auto common =
        static_cast<std::size_t>(std::ranges::mismatch(path, wanted).in1 - path.begin());
    TokenConstraint& constraint = *found->second.constraint;
    if (path.size() > common) constraint.rollback(path.size() - common);
    path.resize(common);
    for (; path.size() < wanted.size(); path.push_back(wanted[path.size()]))
      if (!constraint.accept(draft_of(wanted[path.size()]))) return false;
    return true;
  };
  for (std::size_t i = 0; i < masks.size(); ++i) {
    TokenMask& mask = masks[i];
    const std::optional<std::size_t> parent = parent_of(i);
    const TokenMask& last = parent ? masks[*parent] : before;
    const std::int32_t draft = draft_of(i);
    bool follows = is_known && !last.is_skipped && last.allows(draft) && go_to(parent) &&
                   found->second.constraint->accept(draft);
    if (follows) {
      Row& of = found->second;
      path.push_back(i);
      follows = of.constraint->fill(mask.bits) &&
                leaves_token(of, of.num_tokens + static_cast<int>(path.size()), mask);
    }
    mask.is_skipped = !follows;
  }
  // Also of a draft whose place took the whole budget.
  if (is_known) found->second.constraint->rollback(path.size());
}

// Takes the stop tokens out that may not come yet.
bool GrammarRows::leaves_token(const Row& row, int num_tokens, TokenMask& mask) {
  if (num_tokens < row.min_tokens)
    for (const std::int32_t token : row.stop_tokens)
      mask.bits[static_cast<std::size_t>(token) / 32] &= ~(1u << (token % 32));
  return any_token(mask);
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
    // A step that was launched before may have a row of the sequence. Nobody reads that token.
    if (event.finish != FinishReason::kNone) rows_.erase(found);
  }
}

void GrammarRows::draft(std::uint64_t sequence, int max_drafts, std::vector<std::int32_t>& drafts) {
  const auto found = rows_.find(sequence);
  if (found == rows_.end() || found->second.is_refused) return;
  found->second.constraint->draft(max_drafts, drafts);
}

void GrammarRows::refuse(std::uint64_t sequence, Row& row, Fault fault) {
  row.is_refused = true;
  refused_.push_back({sequence >> 8, std::move(fault)});
}

}  // namespace sluice
