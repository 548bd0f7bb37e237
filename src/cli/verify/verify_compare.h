// Comparing what an engine gave with the reference. The limits are those of tests/golden/README.md
// and tests/golden/sluice-tiny.README.md, which say where each comes from.
#pragma once

#include <string>
#include <vector>

#include "cli/verify/verify_golden.h"
#include "cli/verify/verify_run.h"

namespace sluice {

// How far log-probabilities may lie from the reference.
struct Tolerance {
  bool compare_tokens = true;  // greedy tokens must be equal (float32 alone)
  float at_position = 2e-4f;   // limit for every position; 0: no such limit
  // the same where the indexer selects keys (chat records, past kSelectionStart)
  float beyond_selection = 2e-4f;
  double mean_limit = 0;  // limit for the mean over all positions of the file; 0: none
  int num_compared = 5;   // of the best of a position
  // tokens may differ where the reference's smallest margin is not above this
  double margin_for_tokens = 0;
};
inline constexpr std::size_t kSelectionStart = 256;

// For `dtype` (float32, bfloat16, float16). `rounds_rows`: the device rounds rows of linear layers
// to the checkpoint's format. Error{kBadInput} where the reference gives no limit for it.
Tolerance tolerance_for(const GoldenFile& golden, const std::string& dtype,
                        bool rounds_rows = false);

struct CaseVerdict {
  std::string label;
  double worst = 0;  // largest difference of a log-probability
  std::size_t worst_position = 0;
  double sum = 0;  // of differences, for the mean
  std::size_t num_compared = 0;
  std::size_t num_within_half = 0;  // differences up to 0.5
  int greedy_equal = 0;
  int greedy_total = 0;
  bool ok = true;
  std::string reason;
};

CaseVerdict compare_case(const GoldenCase& golden, const CaseRun& run, const Tolerance& tolerance);

// Positions whose logits differ in their bits between two runs of one mode each, where both saw the
// same tokens; one line a case, empty when all are equal. `num_common` counts the positions that
// both have.
std::vector<std::string> compare_bits(const GoldenFile& golden, const ModeRun& a, const ModeRun& b,
                                      std::size_t& num_common);

}  // namespace sluice
