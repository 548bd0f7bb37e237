#include "cli/verify/verify_compare.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"

namespace sluice {
namespace {

// Rows up to here follow on the reference's own tokens.
std::size_t common_rows(const GoldenCase& golden, const CaseRun& run) {
  const std::vector<std::int32_t> reference = golden.all_tokens();
  const auto [a, b] = std::ranges::mismatch(run.tokens, reference);
  const auto equal_tokens = static_cast<std::size_t>(a - run.tokens.begin());
  // The row of position p follows on tokens 0 .. p.
  const std::size_t end = run.first + run.rows.size();
  return std::min(end, equal_tokens) > run.first ? std::min(end, equal_tokens) - run.first : 0;
}

// The log-probability of `token` among the best of a row. A token that is not among them lies below
// the last one, so the difference is at least that to the last.
double logprob_of(const RowLogprobs& row, std::int32_t token) {
  for (const TokenLogprob& entry : row.top)
    if (entry.token == token) return entry.logprob;
  return row.top.empty() ? -INFINITY : row.top.back().logprob;
}

std::map<std::size_t, std::uint64_t> hashes_by_position(const GoldenCase& golden,
                                                        const CaseRun& run) {
  std::map<std::size_t, std::uint64_t> hashes;
  const std::size_t n = common_rows(golden, run);
  for (std::size_t i = 0; i < n; ++i) hashes[run.first + i] = run.rows[i].logits_hash;
  return hashes;
}

}  // namespace

Tolerance tolerance_for(const GoldenFile& golden, const std::string& dtype, bool rounds_rows) {
  Tolerance t;
  if (golden.chat_records) {
    require(dtype == "float32",
            "the chat records are float32 references: run with --dtype float32, not {}", dtype);
    t.at_position = 2e-3f;
    t.beyond_selection = 0.02f;
    t.num_compared = 2;
    t.margin_for_tokens = 0.05;
    return t;
  }
  if (dtype == "float32") return t;
  require(dtype == "bfloat16" || dtype == "float16", "no limits are known for {}", dtype);
  require(golden.bfloat16_mean > 0,
          "the reference has no 'checks.bfloat16', from which the limits of {} are derived", dtype);
  const double share = dtype == "float16" ? 1.0 / 8 : 1.0;
  t.compare_tokens = false;
  const double mean = share * golden.bfloat16_mean + rounds_rows * golden.rounded_rows_mean,
               max = share * golden.bfloat16_max + rounds_rows * golden.rounded_rows_max;
  t.mean_limit = 1.5 * mean;
  // One flipped choice of an expert or a key moves a position by nats: there the mean alone judges.
  t.at_position = golden.has_discrete_choices ? 0 : static_cast<float>(2 * max);
  t.beyond_selection = t.at_position;
  return t;
}

CaseVerdict compare_case(const GoldenCase& golden, const CaseRun& run, const Tolerance& tolerance) {
  CaseVerdict verdict;
  verdict.label = golden.label;
  const std::size_t n = common_rows(golden, run);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t position = run.first + i;
    const std::vector<TokenLogprob>* best = golden.best_at(position);
    if (best == nullptr) continue;
    const float limit =
        position >= kSelectionStart ? tolerance.beyond_selection : tolerance.at_position;
    for (std::size_t j = 0;
         j < best->size() && j < static_cast<std::size_t>(tolerance.num_compared); ++j) {
      const double difference =
          std::abs(logprob_of(run.rows[i], (*best)[j].token) - (*best)[j].logprob);
      verdict.sum += difference;
      ++verdict.num_compared;
      verdict.num_within_half += difference <= 0.5;
      if (difference > verdict.worst || std::isnan(difference)) {
        verdict.worst = difference;
        verdict.worst_position = position;
      }
      if (limit > 0 && !(difference <= limit) && verdict.ok) {
        verdict.ok = false;
        verdict.reason = fmt::format("position {}: token {} is off by {:.2g}, allowed {:.2g}",
                                     position, (*best)[j].token, difference, limit);
      }
    }
  }
  // Greedy tokens: what was chosen, or would have been at the reference's tokens.
  const std::size_t first_output_row = golden.prompt.size() - 1;
  for (std::size_t j = 0; j < golden.output.size(); ++j) {
    const std::size_t position = first_output_row + j;
    if (position < run.first) continue;  // cached: no row was computed
    ++verdict.greedy_total;
    if (position - run.first >= n) continue;
    const RowLogprobs& row = run.rows[position - run.first];
    if (!row.top.empty() && row.top.front().token == golden.output[j]) ++verdict.greedy_equal;
  }
  const bool tokens_count =
      tolerance.compare_tokens && golden.min_margin > tolerance.margin_for_tokens;
  if (tokens_count && verdict.greedy_equal != verdict.greedy_total && verdict.ok) {
    verdict.ok = false;
    verdict.reason =
        fmt::format("{} of {} greedy tokens", verdict.greedy_equal, verdict.greedy_total);
  }
  if (verdict.num_compared == 0) {
    verdict.ok = false;
    verdict.reason = "nothing could be compared";
  }
  return verdict;
}

std::vector<std::string> compare_bits(const GoldenFile& golden, const ModeRun& a, const ModeRun& b,
                                      std::size_t& num_common) {
  std::vector<std::string> lines;
  num_common = 0;
  for (const CaseRun& run_a : a.cases)
    for (const CaseRun& run_b : b.cases) {
      if (run_a.case_index != run_b.case_index) continue;
      const GoldenCase& c = golden.cases[run_a.case_index];
      const auto hashes_a = hashes_by_position(c, run_a);
      std::size_t different = 0, first_different = 0;
      for (const auto& [position, hash] : hashes_by_position(c, run_b)) {
        const auto it = hashes_a.find(position);
        if (it == hashes_a.end()) continue;
        ++num_common;
        if (it->second == hash) continue;
        if (different++ == 0) first_different = position;
      }
      if (different > 0)
        lines.push_back(fmt::format("{}: {} positions differ in their bits, the first is {}",
                                    c.label, different, first_different));
    }
  return lines;
}

}  // namespace sluice
