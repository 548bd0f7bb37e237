// Reference outputs for `sluice verify`, in one form: a golden.json (tests/golden/README.md) or the
// chat records of sluice-tiny (tests/golden/sluice-tiny.README.md).
//
// Positions count tokens from the start of the prompt: the row of position p predicts token p + 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "batch/step_result.h"

namespace sluice {

struct GoldenCase {
  std::string label;  // "prompt 3 (130 tokens)"
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> output;                    // greedy
  std::vector<std::vector<TokenLogprob>> prompt_best;  // [prompt] rows 0 .. ; empty: none are known
  std::vector<std::vector<TokenLogprob>> output_best;  // [output] rows prompt - 1, prompt, ..
  double min_margin = 0;  // smallest lead of a chosen token over the runner-up

  // prompt followed by output
  std::vector<std::int32_t> all_tokens() const;
  // The best of row `position`, or null where nothing is known.
  const std::vector<TokenLogprob>* best_at(std::size_t position) const;
};

struct GoldenFile {
  bool chat_records = false;
  std::vector<GoldenCase> cases;
  // checks.bfloat16 of a golden.json: how far transformers itself moves in bfloat16.
  double bfloat16_mean = 0;
  double bfloat16_max = 0;
  // checks.quantised_activations: how far it moves in float32 with the rows of linear layers
  // rounded to the checkpoint's format. 0: the format leaves them as they are.
  double rounded_rows_mean = 0;
  double rounded_rows_max = 0;
  // routers or indexers: one flipped choice moves a position by nats
  bool has_discrete_choices = false;
};

// Error{kBadInput} names the field that is missing or wrong.
GoldenFile read_golden_file(const std::string& path);
GoldenFile parse_golden(std::string_view text, std::string_view what);

}  // namespace sluice
