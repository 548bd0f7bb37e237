// From options to how a server speculates.
//
//   Result<SpeculationOptions> chosen = choose_speculation(options);
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "engine/options.h"
#include "speculative/drafter_table.h"

namespace sluice {

// Tokens of a sequence that one step verifies, the known one included.
inline constexpr int kMaxDraftTokens = 64;
inline constexpr int kMaxNgram = 64;
inline constexpr int kMaxSuffixDepth = 256;
inline constexpr int kMaxSuffixAnswers = 1'000'000;
inline constexpr int kMaxTopk = 20;  // drafts behind each token of a tree: of ops::read_logprobs

// The row of a method. Error{kBadInput}: unknown, or known and not served, with the reason.
const DraftMethodRow& served_draft_method(std::string_view name);

// vLLM's `--speculative-config`. Error{kBadInput}: no JSON object, a key that is unknown or has no
// effect here, or a value out of range.
SpeculationOptions read_speculative_config(std::string_view json);

// The fault names the option in `param`.
Result<SpeculationOptions> choose_speculation(const Options& options);

// Why trees of drafts are not served, with what to change; empty: they are.
std::string tree_refusal(bool is_recurrent);

}  // namespace sluice
