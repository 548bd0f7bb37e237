// The result of a step, as plain values. Ragged: an item yields 0..k tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0;
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

// Log-probabilities (natural logarithms over all logits) of one row.
struct RowLogprobs {
  float logprob = 0;  // log-probability of the sampled token, or of the prompt's next token
  std::uint64_t logits_hash = 0;  // hash of the bits of the row's raw logits
  std::vector<TokenLogprob> top;  // best first, ties to the lower id
};

// The result of one data-parallel group.
struct BatchResult {
  std::vector<std::int32_t> token_offsets;  // [items + 1]
  std::vector<std::int32_t> tokens;  // tokens of item i: [token_offsets[i], token_offsets[i + 1])
  // one per token of `tokens`; an entry is empty if its log-probabilities were not requested
  std::vector<RowLogprobs> token_logprobs;
  std::vector<std::int32_t> prompt_offsets;  // [items + 1]
  std::vector<RowLogprobs> prompt_logprobs;  // for logit rows with sample == false, in their order
  std::vector<std::uint8_t> failed;  // [items] 1: the logits were not finite (numerics_error)
  std::vector<float> pooled_states;  // [rows of Batch::pooled_rows, hidden], in their order
  // Of a draft layer: drafts of the tokens that follow those of item i are drafts[draft_offsets[i]
  // .. draft_offsets[i + 1]). Empty offsets: there are none.
  std::vector<std::int32_t> draft_offsets;
  std::vector<std::int32_t> drafts;
  // Of drafts that branch, beside each: its forerunner, 0 for the known token, i for the item's
  // i-th draft. Empty: each follows the one before it.
  std::vector<std::int32_t> draft_parents;

  std::span<const std::int32_t> tokens_of(std::size_t item) const {
    return std::span(tokens).subspan(token_offsets[item],
                                     token_offsets[item + 1] - token_offsets[item]);
  }
  std::span<const std::int32_t> drafts_of(std::size_t item) const {
    if (draft_offsets.empty()) return {};
    return std::span(drafts).subspan(draft_offsets[item],
                                     draft_offsets[item + 1] - draft_offsets[item]);
  }
  std::span<const std::int32_t> draft_parents_of(std::size_t item) const {
    if (draft_parents.empty()) return {};
    return std::span(draft_parents)
        .subspan(draft_offsets[item], draft_offsets[item + 1] - draft_offsets[item]);
  }
};

struct StepResult {
  std::uint64_t step_id = 0;
  std::vector<BatchResult> dp;
};

}  // namespace sluice
