// `sluice verify`: reference outputs against this engine, tokenizer and template interpreter.
#include <algorithm>
#include <cstdio>

#include "base/json.h"
#include "base/log.h"
#include "cli/download_bars.h"
#include "cli/files.h"
#include "cli/verbs.h"
#include "cli/verify/verify_compare.h"
#include "cli/verify/verify_golden.h"
#include "cli/verify/verify_run.h"
#include "engine/machine.h"
#include "engine/model_choice.h"
#include "engine/options_parse.h"

namespace sluice {
namespace {

// Every mode, once for each number of threads asked for.
std::vector<VerifyMode> expand(const std::vector<VerifyMode>& modes,
                               const std::string& thread_counts) {
  if (thread_counts.empty()) return modes;
  std::vector<VerifyMode> all;
  std::vector<std::string> counts;
  option_parse::append_list(counts, thread_counts);
  for (const std::string& count : counts)
    for (VerifyMode mode : modes) {
      mode.threads = static_cast<int>(option_parse::integer(count, 1, 1024));
      mode.name += fmt::format(", {} thread{}", count, mode.threads == 1 ? "" : "s");
      all.push_back(mode);
    }
  return all;
}

// Keeps the cases whose prompt has one of these lengths.
void keep_lengths(GoldenFile& golden, const std::string& lengths) {
  if (lengths.empty()) return;
  std::vector<std::string> wanted;
  option_parse::append_list(wanted, lengths);
  std::erase_if(golden.cases, [&](const GoldenCase& c) {
    return std::ranges::find(wanted, std::to_string(c.prompt.size())) == wanted.end();
  });
  require(!golden.cases.empty(), "--lengths {}: the file has no such prompt", lengths);
}

Json dump_mode(const GoldenFile& golden, const ModeRun& run) {
  Json json;
  json["mode"] = run.mode.name;
  json["mixed_steps"] = run.report.mixed_steps;
  json["prefill_tokens_per_step"] = run.report.prefill_tokens_per_step;
  json["cached_tokens"] = run.cached_tokens;
  Json methods = Json::object();
  for (const auto& [name, calls] : run.report.attention_methods) methods[name] = calls;
  json["attention_methods"] = methods;
  Json cases = Json::array();
  for (const CaseRun& c : run.cases) {
    Json entry;
    entry["case"] = c.case_index;
    entry["label"] = golden.cases[c.case_index].label;
    entry["cached_tokens"] = c.cached_tokens;
    entry["tokens"] = c.tokens;
    Json positions = Json::array();
    for (std::size_t i = 0; i < c.rows.size(); ++i) {
      const RowLogprobs& row = c.rows[i];
      Json ids = Json::array(), logprobs = Json::array();
      for (const TokenLogprob& top : row.top) {
        ids.push_back(top.token);
        logprobs.push_back(top.logprob);
      }
      positions.push_back({{"position", c.first + i},
                           {"next_token", c.tokens[c.first + i + 1]},
                           {"logprob", row.logprob},
                           {"top_ids", ids},
                           {"top_logprobs", logprobs},
                           {"logits_hash", fmt::format("{:016x}", row.logits_hash)}});
    }
    entry["positions"] = positions;
    cases.push_back(entry);
  }
  json["cases"] = cases;
  return json;
}

// Prints the verdicts of one mode; true when all is well.
bool judge_mode(const GoldenFile& golden, const ModeRun& run, const Tolerance& tolerance) {
  bool ok = true;
  double sum = 0;
  std::size_t count = 0, within_half = 0;
  for (const CaseRun& c : run.cases) {
    const CaseVerdict v = compare_case(golden.cases[c.case_index], c, tolerance);
    fmt::print("{}: {}: worst {:.2g} at position {}, greedy {}/{}, {}{}\n", run.mode.name, v.label,
               v.worst, v.worst_position, v.greedy_equal, v.greedy_total,
               v.ok ? "ok" : "FAIL: ", v.reason);
    ok = ok && v.ok;
    sum += v.sum;
    count += v.num_compared;
    within_half += v.num_within_half;
  }
  if (tolerance.mean_limit > 0 && count > 0) {
    const double mean = sum / static_cast<double>(count);
    const bool mean_ok = mean <= tolerance.mean_limit;
    fmt::print("{}: mean {:.3g}, allowed {:.3g}, {:.1f} % within 0.5: {}\n", run.mode.name, mean,
               tolerance.mean_limit,
               100.0 * static_cast<double>(within_half) / static_cast<double>(count),
               mean_ok ? "ok" : "FAIL");
    ok = ok && mean_ok;
  }
  for (const std::string& problem : run.problems)
    fmt::print("{}: {}: FAIL\n", run.mode.name, problem);
  std::fflush(stdout);
  return ok && run.problems.empty();
}

// Whether linear layers round rows of x to the checkpoint's format: int8, and on a GPU e4m3.
bool rounds_rows(const Options& options, bool is_gpu) {
  const auto quantization = read_model_config(options, find_model(options).directory).quantization;
  return quantization && (quantization->int8_rows || (is_gpu && quantization->is_fp8()));
}

int verify_model(const Arguments& arguments) {
  Options options = model_options(arguments);
  if (!arguments.was_given("dtype")) options.dtype = "float32";
  if (!arguments.log_level_was_given()) set_log_level(LogLevel::kWarning);
  GoldenFile golden = read_golden_file(arguments.get("golden"));
  keep_lengths(golden, arguments.get("lengths"));
  const std::vector<VerifyMode> modes =
      expand(parse_modes(arguments.get("modes", "whole,decode")), arguments.get("thread-counts"));
  const bool is_gpu = serving_device(options).kind != DeviceKind::kCpu;
  Tolerance tolerance = tolerance_for(golden, options.dtype, rounds_rows(options, is_gpu));
  if (arguments.has("tolerance")) {
    require(options.dtype == "float32",
            "--tolerance is for --dtype float32; the limits of {} come from the reference",
            options.dtype);
    tolerance.at_position = tolerance.beyond_selection =
        static_cast<float>(option_parse::number(arguments.get("tolerance"), 1e-6, 0.1));
  }

  bool ok = true;
  std::vector<ModeRun> runs;
  for (const VerifyMode& mode : modes) {
    runs.push_back(run_mode(mode, options, golden));
    ok = judge_mode(golden, runs.back(), tolerance) && ok;
  }
  for (std::size_t i = 1; i < runs.size(); ++i) {
    std::size_t common = 0;
    const std::vector<std::string> lines = compare_bits(golden, runs[0], runs[i], common);
    for (const std::string& line : lines)
      fmt::print("bits of {} and {}: {}: FAIL\n", runs[0].mode.name, runs[i].mode.name, line);
    if (common == 0)
      fmt::print("bits of {} and {}: no position in common: FAIL\n", runs[0].mode.name,
                 runs[i].mode.name);
    ok = ok && lines.empty() && common > 0;
    if (lines.empty() && common > 0)
      fmt::print("bits of {} and {}: equal at {} positions\n", runs[0].mode.name, runs[i].mode.name,
                 common);
  }
  if (arguments.has("dump")) {
    Json dump = {{"model", options.model}, {"dtype", options.dtype}, {"runs", Json::array()}};
    for (const ModeRun& run : runs) dump["runs"].push_back(dump_mode(golden, run));
    write_text_file(arguments.get("dump"), dump_json(dump) + "\n");
  }
  fmt::print("{}: {} case{} in {} mode{}\n", ok ? "ok" : "FAIL", golden.cases.size(),
             golden.cases.size() == 1 ? "" : "s", modes.size(), modes.size() == 1 ? "" : "s");
  return ok ? 0 : 1;
}

}  // namespace

int run_verify(const Arguments& arguments) {
  if (arguments.has("grammar")) return verify_grammar(arguments);
  if (arguments.has("tokenizer") || arguments.has("chat-template") || arguments.has("snippets"))
    return verify_text(arguments);
  if (arguments.has("parsers")) return verify_parsers(arguments);
  if (!arguments.has("golden"))
    throw UsageError("nothing to compare with",
                     "give --golden FILE, or --tokenizer, --chat-template, --snippets or "
                     "--parsers");
  return verify_model(arguments);
}

}  // namespace sluice
