// `sluice bench throughput`: many prompts through the engine at once, without a server.
#include <algorithm>
#include <chrono>
#include <random>

#include "base/log.h"
#include "cli/bench/bench_dataset.h"
#include "cli/bench/synthetic.h"
#include "cli/chat/engine_call.h"
#include "cli/download_bars.h"
#include "cli/models/model_files.h"
#include "cli/progress.h"
#include "cli/verbs.h"

namespace sluice {

int bench_throughput(const Arguments& arguments) {
  constexpr std::int64_t kMaxTokens = 1 << 24;
  const auto count = static_cast<int>(arguments.get_int("num-prompts", 64, 1, 1'000'000));
  const int input = static_cast<int>(arguments.get_int("random-input-len", 256, 1, kMaxTokens));
  const int output = static_cast<int>(arguments.get_int("random-output-len", 64, 1, kMaxTokens));
  const double ratio = arguments.get_number("random-range-ratio", 1, 0, 1);
  require_room_for_prompts(count, input);
  Options options = model_options(arguments);
  // The KV cache is left to the memory plan: requests may have to wait for it.
  if (!arguments.log_level_was_given()) set_log_level(LogLevel::kWarning);
  options.max_queued_requests = std::max(options.max_queued_requests, count + 1);
  options.max_queued_tokens = std::max(options.max_queued_tokens, std::int64_t{count} * input + 1);

  obtain_model(options);
  std::optional<LoadProgress> progress(std::in_place, expected_weight_bytes(options));
  const std::unique_ptr<Engine> engine = Engine::create(options, {}, progress->callback());
  progress.reset();
  const auto seed = std::max<std::uint64_t>(fixed_seed(options).value_or(1), 1);
  require(input < engine->context_length(),
          "--random-input-len is {}; the context of {} tokens leaves room for {}", input,
          engine->context_length(), engine->context_length() - 1);
  std::mt19937_64 gen(seed);
  std::vector<Request> requests;
  std::int64_t prompt_tokens = 0;
  for (int i = 0; i < count; ++i) {
    const int length = random_length(gen, input, ratio);
    requests.push_back(random_request(engine->model_config().vocab_size, length,
                                      random_length(gen, output, ratio),
                                      seed + static_cast<std::uint64_t>(i)));
    prompt_tokens += length;
  }
  // Pages are faulted in beforehand.
  PendingCompletion(
      *engine, random_request(engine->model_config().vocab_size, std::min(input, 32), 2, seed - 1))
      .wait();

  const auto start = std::chrono::steady_clock::now();
  std::vector<PendingCompletion> pending;
  for (Request& request : requests) pending.emplace_back(*engine, std::move(request));
  std::int64_t generated = 0;
  for (PendingCompletion& p : pending) {
    const Completion done = p.wait();
    require(done.finish == FinishReason::kLength, "a request failed: {}", done.error.message);
    generated += static_cast<std::int64_t>(done.tokens.size());
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const auto rate = [&](std::int64_t n) { return static_cast<double>(n) / elapsed.count(); };
  if (arguments.has("json")) {
    fmt::print("{}\n", dump_json({{"model", options.model},
                                  {"dtype", engine->dtype_name()},
                                  {"elapsed_time", elapsed.count()},
                                  {"num_requests", count},
                                  {"total_input_tokens", prompt_tokens},
                                  {"total_output_tokens", generated},
                                  {"total_num_tokens", prompt_tokens + generated},
                                  {"requests_per_second", rate(count)},
                                  {"tokens_per_second", rate(prompt_tokens + generated)},
                                  {"output_tokens_per_second", rate(generated)}}));
    return 0;
  }
  fmt::print("{} requests, {} tokens in, {} out, {}, {:.2f} s\n\n", count, prompt_tokens, generated,
             engine->dtype_name(), elapsed.count());
  fmt::print("requests/s         {:>10.2f}\n", rate(count));
  fmt::print("all tokens/s       {:>10.1f}\n", rate(prompt_tokens + generated));
  fmt::print("output tokens/s    {:>10.1f}\n", rate(generated));
  return 0;
}

}  // namespace sluice
