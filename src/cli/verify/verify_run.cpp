#include "cli/verify/verify_run.h"

#include <algorithm>
#include <memory>

#include "base/hash.h"
#include "cli/arguments.h"
#include "cli/chat/engine_call.h"
#include "engine/options_parse.h"

namespace sluice {
namespace {

// Ids among which the reference's best must be found.
constexpr int kNumTop = 20;
// small enough that prompts of 33 and more are prefilled beside decode rows
constexpr int kMixedChunk = 16;
constexpr int kMixedChunkLong = 128;  // chat records reach 4,000 tokens

VerifyMode parse_mode(const std::string& text) {
  VerifyMode mode;
  mode.name = text;
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  constexpr std::pair<std::string_view, VerifyMode::Kind> kKinds[] = {
      {"whole", VerifyMode::kWhole}, {"passes", VerifyMode::kPasses},
      {"chunk", VerifyMode::kChunk}, {"cached", VerifyMode::kCached},
      {"mixed", VerifyMode::kMixed}, {"decode", VerifyMode::kDecode}};
  const auto it = std::ranges::find(kKinds, kind, [](const auto& pair) { return pair.first; });
  const bool may_have_size = it != std::end(kKinds) && (it->second == VerifyMode::kChunk ||
                                                        it->second == VerifyMode::kCached);
  const std::string hint = "modes: whole, passes, chunk:N, cached, cached:N, mixed, decode";
  if (it == std::end(kKinds) || (colon != std::string::npos && !may_have_size))
    throw UsageError(fmt::format("unknown mode '{}'", text), hint);
  mode.kind = it->second;
  if (colon != std::string::npos) {
    try {
      mode.size = static_cast<int>(option_parse::integer(text.substr(colon + 1), 1, 1 << 20));
    } catch (const Error& error) {
      throw UsageError(fmt::format("mode '{}': {}", text, error.message()), hint);
    }
  } else if (mode.kind == VerifyMode::kChunk) {
    throw UsageError("mode 'chunk' needs a size", hint);
  }
  return mode;
}

Request base_request(std::uint64_t cache_namespace) {
  Request request;
  request.params.temperature = 0;
  request.params.num_top_logprobs = kNumTop;
  request.want_logits_hash = true;
  request.ignore_eos = true;
  // Cases must not find each other's prefixes: what is cached is what the mode put there.
  request.cache_namespace = mix64(cache_namespace + 1);
  return request;
}

// The last position whose row is compared is that of the last output token.
std::vector<std::int32_t> forced_tokens(const GoldenCase& golden) {
  std::vector<std::int32_t> tokens = golden.all_tokens();
  if (!golden.output.empty()) tokens.pop_back();
  return tokens;
}

// Rows of a finished request, from its position `first` on.
CaseRun gather(std::size_t index, std::vector<std::int32_t> prompt, std::size_t first,
               Completion&& done) {
  CaseRun run;
  run.case_index = index;
  run.first = first;
  run.cached_tokens = done.cached_tokens;
  require(done.finish == FinishReason::kStop || done.finish == FinishReason::kLength,
          "case {}: the request failed: {}", index, done.error.message);
  run.rows = std::move(done.prompt_logprobs);
  require(run.rows.size() == prompt.size() - 1 - first,
          "case {}: {} prompt rows from position {} of {} tokens", index, run.rows.size(), first,
          prompt.size());
  require(done.token_logprobs.size() == done.tokens.size(), "case {}: {} rows for {} tokens", index,
          done.token_logprobs.size(), done.tokens.size());
  std::ranges::move(done.token_logprobs, std::back_inserter(run.rows));
  require(
      std::ranges::none_of(run.rows, [](const RowLogprobs& row) { return row.logits_hash == 0; }),
      "case {}: a row came without the hash of its logits", index);
  run.tokens = std::move(prompt);
  run.tokens.insert(run.tokens.end(), done.tokens.begin(), done.tokens.end());
  return run;
}

// Where rows of the prompt are of interest: everywhere, or from its last token on.
std::size_t first_row(const GoldenCase& golden) {
  return golden.prompt_best.empty() ? golden.prompt.size() - 1 : 0;
}

class ModeRunner {
 public:
  ModeRunner(const VerifyMode& mode, Engine& engine, const GoldenFile& golden, ModeRun& out)
      : mode_(mode), engine_(engine), golden_(golden), out_(out) {}

  void run_prefill(std::size_t index) {
    const GoldenCase& golden = golden_.cases[index];
    const std::vector<std::int32_t> tokens = forced_tokens(golden);
    std::size_t first = first_row(golden);
    std::size_t cached = 0;
    if (mode_.kind == VerifyMode::kCached) {
      const std::size_t wanted =
          mode_.size > 0 ? static_cast<std::size_t>(mode_.size) : golden.prompt.size() / 2;
      cached = std::min(wanted, tokens.size() - 1);
      first = std::max(first, cached);
      if (cached > 0) seed_cache(index, tokens, cached);
    }
    engine_.run_report(true);
    Request request = base_request(index);
    request.prompt_ids = tokens;
    request.max_new_tokens = 1;
    request.logprob_start = static_cast<int>(first);
    CaseRun run =
        gather(index, tokens, first, PendingCompletion(engine_, std::move(request)).wait());
    run.teacher_forced = true;
    const RunReport report = engine_.run_report(true);
    check_prefill(golden.label, tokens.size() - run.cached_tokens, report);
    if (mode_.kind == VerifyMode::kCached && static_cast<std::size_t>(run.cached_tokens) != cached)
      out_.problems.push_back(fmt::format("{}: {} of {} tokens came from the prefix cache",
                                          golden.label, run.cached_tokens, cached));
    add(report);
    out_.cases.push_back(std::move(run));
  }

  void run_passes(std::size_t index) {
    const GoldenCase& golden = golden_.cases[index];
    CaseRun all;
    std::vector<std::int32_t> tokens = golden.prompt;
    for (std::size_t i = 0; i < std::max<std::size_t>(1, golden.output.size()); ++i) {
      engine_.run_report(true);
      Request request = base_request(index);
      request.prompt_ids = tokens;
      request.max_new_tokens = 1;
      const std::size_t first = i == 0 ? first_row(golden) : tokens.size() - 1;
      request.logprob_start = static_cast<int>(first);
      CaseRun run =
          gather(index, tokens, first, PendingCompletion(engine_, std::move(request)).wait());
      const RunReport report = engine_.run_report(true);
      check_prefill(golden.label, tokens.size(), report);
      add(report);
      tokens = run.tokens;
      if (i == 0) {
        all = std::move(run);
      } else {
        all.rows.push_back(std::move(run.rows.back()));
      }
    }
    all.tokens = std::move(tokens);
    out_.cases.push_back(std::move(all));
  }

  void run_decode(std::size_t index) {
    std::vector<CaseRun> runs;
    finish_decode(index, start_decode(index), runs);
    add(engine_.run_report(true));
    out_.cases.push_back(std::move(runs.front()));
  }

  // Two waves: every case at once, and each again as soon as its first token is out. Where other
  // programs hold this thread up, the first wave may end before the second begins; then again.
  void run_mixed() {
    constexpr int kMaxAttempts = 5;
    for (int attempt = 0; attempt < kMaxAttempts && out_.report.mixed_steps == 0; ++attempt) {
      engine_.run_report(true);
      std::vector<PendingCompletion> waves;
      for (std::size_t i = 0; i < golden_.cases.size(); ++i) waves.push_back(start_decode(i, 0));
      for (std::size_t i = 0; i < golden_.cases.size(); ++i) {
        waves[i].wait_for_tokens();
        waves.push_back(start_decode(i, 1));
      }
      out_.cases.clear();
      for (std::size_t i = 0; i < waves.size(); ++i)
        finish_decode(i % golden_.cases.size(), std::move(waves[i]), out_.cases);
      add(engine_.run_report(true));
    }
    if (out_.report.mixed_steps == 0)
      out_.problems.push_back("no step held both prefill chunks and decode rows");
  }

 private:
  void seed_cache(std::size_t index, const std::vector<std::int32_t>& tokens, std::size_t count) {
    Request request = base_request(index);
    request.prompt_ids.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
    request.params.num_top_logprobs = -1;
    request.want_logits_hash = false;
    request.max_new_tokens = 1;
    const Completion done = PendingCompletion(engine_, std::move(request)).wait();
    require(done.finish == FinishReason::kLength, "case {}: the request for its prefix failed: {}",
            index, done.error.message);
  }

  PendingCompletion start_decode(std::size_t index, std::uint64_t wave = 0) {
    const GoldenCase& golden = golden_.cases[index];
    Request request = base_request(index + wave * golden_.cases.size());
    request.prompt_ids = golden.prompt;
    request.max_new_tokens = std::max<int>(1, static_cast<int>(golden.output.size()));
    request.logprob_start = static_cast<int>(first_row(golden));
    return PendingCompletion(engine_, std::move(request));
  }

  void finish_decode(std::size_t index, PendingCompletion pending, std::vector<CaseRun>& runs) {
    const GoldenCase& golden = golden_.cases[index];
    runs.push_back(gather(index, golden.prompt, first_row(golden), pending.wait()));
  }

  void check_prefill(const std::string& label, std::size_t num_tokens, const RunReport& report) {
    const int limit = mode_.kind == VerifyMode::kChunk ? mode_.size : static_cast<int>(num_tokens);
    if (mode_.kind == VerifyMode::kCached) return;
    std::vector<int> wanted(num_tokens / limit, limit);
    if (num_tokens % limit != 0) wanted.push_back(static_cast<int>(num_tokens) % limit);
    // The report is bounded: what it holds must be how the prefill began.
    const std::vector<int>& seen = report.prefill_tokens_per_step;
    if (seen.empty() || seen.size() > wanted.size() ||
        !std::equal(seen.begin(), seen.end(), wanted.begin()))
      out_.problems.push_back(
          fmt::format("{}: {} prefill steps, the first of {} tokens; {} steps of {} were asked for",
                      label, seen.size(), seen.empty() ? 0 : seen.front(), wanted.size(), limit));
  }

  void add(const RunReport& report) {
    RunReport& sum = out_.report;
    sum.mixed_steps += report.mixed_steps;
    sum.prefill_tokens_per_step.insert(sum.prefill_tokens_per_step.end(),
                                       report.prefill_tokens_per_step.begin(),
                                       report.prefill_tokens_per_step.end());
    for (const auto& [name, calls] : report.attention_methods) {
      const auto it = std::ranges::find(sum.attention_methods, name,
                                        [](const auto& entry) { return entry.first; });
      if (it == sum.attention_methods.end()) {
        sum.attention_methods.emplace_back(name, calls);
      } else {
        it->second += calls;
      }
    }
  }

  const VerifyMode& mode_;
  Engine& engine_;
  const GoldenFile& golden_;
  ModeRun& out_;
};

// Room for every case at once, twice, each rounded up to pages.
std::int64_t tokens_needed(const GoldenFile& golden) {
  std::int64_t total = 0;
  for (const GoldenCase& c : golden.cases)
    total += 2 * (static_cast<std::int64_t>(c.prompt.size() + c.output.size()) + 128);
  return total;
}

}  // namespace

std::vector<VerifyMode> parse_modes(const std::string& text) {
  std::vector<std::string> names;
  try {
    option_parse::append_list(names, text);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--modes: {}", error.message()),
                     "modes: whole, passes, chunk:N, cached, cached:N, mixed, decode");
  }
  std::vector<VerifyMode> modes;
  for (const std::string& name : names) modes.push_back(parse_mode(name));
  return modes;
}

ModeRun run_mode(const VerifyMode& mode, Options options, const GoldenFile& golden) {
  if (mode.kind == VerifyMode::kChunk) options.chunked_prefill_size = mode.size;
  const bool whole = mode.kind == VerifyMode::kWhole || mode.kind == VerifyMode::kPasses;
  if (whole) options.chunked_prefill_size = -1;
  // Nothing is to be found in a cache, and what is kept for it would cut the chunks of recurrent
  // models.
  if (whole || mode.kind == VerifyMode::kChunk) options.disable_radix_cache = true;
  if (mode.kind == VerifyMode::kMixed)
    options.chunked_prefill_size = golden.chat_records ? kMixedChunkLong : kMixedChunk;
  if (mode.threads > 0) options.threads = mode.threads;
  if (options.max_total_tokens == 0)
    options.max_total_tokens = std::max(tokens_needed(golden), options.context_length);
  const std::unique_ptr<Engine> engine = Engine::create(options);

  ModeRun out;
  out.mode = mode;
  ModeRunner runner(mode, *engine, golden, out);
  if (mode.kind == VerifyMode::kMixed) {
    runner.run_mixed();
  } else {
    for (std::size_t i = 0; i < golden.cases.size(); ++i) {
      if (mode.kind == VerifyMode::kDecode) {
        runner.run_decode(i);
      } else {
        mode.kind == VerifyMode::kPasses ? runner.run_passes(i) : runner.run_prefill(i);
      }
    }
  }
  for (const CaseRun& run : out.cases) out.cached_tokens += run.cached_tokens;
  if (mode.kind == VerifyMode::kCached && out.cached_tokens == 0)
    out.problems.push_back("nothing came from the prefix cache");
  return out;
}

}  // namespace sluice
