// `sluice bench latency`: one batch through the engine, as sglang.bench_one_batch measures it.
#include <algorithm>
#include <chrono>
#include <random>

#include "base/json.h"
#include "base/log.h"
#include "cli/completion.h"
#include "cli/verbs.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

struct Shape {
  int batch = 1;
  int input = 1024;
  int output = 16;
};

struct Figures {
  double prefill_s = 0;  // from the first submit until every request has its first token
  double decode_s = 0;   // median time between two tokens of a request after that
  double total_s = 0;
};

// Random tokens, so that no request finds another's prefix.
std::vector<std::int32_t> random_prompt(int length, int vocab_size, std::uint64_t seed) {
  std::mt19937_64 gen(seed);
  std::uniform_int_distribution<std::int32_t> token(0, vocab_size - 1);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
  for (std::int32_t& id : ids) id = token(gen);
  return ids;
}

Figures measure(Engine& engine, const Shape& shape, std::uint64_t seed) {
  std::vector<GenerateRequest> requests(static_cast<std::size_t>(shape.batch));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    GenerateRequest& r = requests[i];
    r.prompt_ids = random_prompt(shape.input, engine.model_config().vocab_size, seed + i);
    r.params.temperature = 0;
    r.max_new_tokens = shape.output;
    r.ignore_eos = true;
    r.cache_namespace = seed + i;
  }
  const Clock::time_point start = Clock::now();
  std::vector<PendingCompletion> pending;
  for (GenerateRequest& request : requests) pending.emplace_back(engine, std::move(request));

  Clock::time_point prefilled = start, end = start;
  std::vector<Completion> done;
  for (PendingCompletion& p : pending) {
    done.push_back(p.wait());
    const Completion& c = done.back();
    require(c.finish == FinishReason::kLength && !c.arrivals.empty(), "a request failed: {}",
            c.error.message);
    prefilled = std::max(prefilled, c.arrivals.front());
    end = std::max(end, c.arrivals.back());
  }
  std::vector<double> gaps;  // of decode steps of the whole batch
  for (const Completion& c : done)
    for (std::size_t i = 1; i < c.arrivals.size(); ++i)
      if (c.arrivals[i - 1] >= prefilled) gaps.push_back(seconds(c.arrivals[i] - c.arrivals[i - 1]));
  Figures figures;
  figures.prefill_s = seconds(prefilled - start);
  figures.total_s = seconds(end - start);
  if (!gaps.empty()) {
    std::ranges::nth_element(gaps, gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2));
    figures.decode_s = gaps[gaps.size() / 2];
  }
  return figures;
}

}  // namespace

int run_bench(const Arguments& arguments) {
  if (arguments.positional.empty() || arguments.positional[0] != "latency")
    throw UsageError("which benchmark?", "usage: sluice bench latency --model MODEL [flags]");
  require_model(arguments);
  Shape shape;
  shape.batch = static_cast<int>(arguments.get_int("batch-size", shape.batch, 1, 4096));
  shape.input = static_cast<int>(arguments.get_int("input-len", shape.input, 1, 1 << 24));
  shape.output = static_cast<int>(arguments.get_int("output-len", shape.output, 1, 1 << 24));
  Options options = arguments.options;
  if (!arguments.was_given("log-level")) set_log_level(LogLevel::kWarning);
  if (options.max_running_requests == 0) options.max_running_requests = std::max(shape.batch, 1);
  if (options.max_total_tokens == 0)
    options.max_total_tokens =
        static_cast<std::int64_t>(shape.batch) * (shape.input + shape.output + 128) * 2;

  const std::unique_ptr<Engine> engine = Engine::create(options);
  // The first steps fault pages in: they are not measured.
  measure(*engine, {shape.batch, std::min(shape.input, 32), std::min(shape.output, 4)}, 1);
  const Figures f = measure(*engine, shape, 1'000'000);

  const double prefill_rate = shape.batch * static_cast<double>(shape.input) / f.prefill_s;
  const double decode_rate = f.decode_s > 0 ? shape.batch / f.decode_s : 0;
  const double overall_rate = shape.batch * static_cast<double>(shape.input + shape.output) / f.total_s;
  if (arguments.has("json")) {
    const Json json = {{"model", options.model},
                       {"dtype", engine->dtype_name()},
                       {"batch_size", shape.batch},
                       {"input_len", shape.input},
                       {"output_len", shape.output},
                       {"prefill_latency", f.prefill_s},
                       {"prefill_throughput", prefill_rate},
                       {"median_decode_latency", f.decode_s},
                       {"median_decode_throughput", decode_rate},
                       {"total_latency", f.total_s},
                       {"overall_throughput", overall_rate}};
    fmt::print("{}\n", dump_json(json));
    return 0;
  }
  fmt::print("{} requests, {} tokens in, {} out, {}\n\n", shape.batch, shape.input, shape.output,
             engine->dtype_name());
  fmt::print("             latency ms    tokens/s\n");
  fmt::print("prefill    {:>12.2f}{:>12.1f}\n", f.prefill_s * 1e3, prefill_rate);
  if (f.decode_s > 0)
    fmt::print("decode     {:>12.2f}{:>12.1f}   median step\n", f.decode_s * 1e3, decode_rate);
  fmt::print("all        {:>12.2f}{:>12.1f}\n", f.total_s * 1e3, overall_rate);
  return 0;
}

}  // namespace sluice
