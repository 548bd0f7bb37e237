// `sluice bench latency`: one batch through the engine, as sglang.bench_one_batch measures it, each
// case against the machine's limits of the same minute.
#include <algorithm>
#include <memory>
#include <optional>
#include <ranges>

#include "cli/bench/replay.h"
#include "cli/bench/roofline.h"
#include "cli/bench/synthetic.h"
#include "cli/bench/timed_batch.h"
#include "cli/download_bars.h"
#include "cli/models/model_files.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "engine/model_choice.h"
#include "engine/options_parse.h"
#include "engine/speculation_choice.h"
#include "tensor/device.h"

namespace sluice {
namespace {

struct Work {
  ops::PeakInstruction instruction = ops::PeakInstruction::kFma;
  double prefill_operations = 0;  // of the whole batch
  double decode_weight_bytes =
      0;                       // of a step: of a mixture the experts that it chooses in the mean
  double decode_kv_bytes = 0;  // of a step in the middle of the output

  double decode_bytes() const { return decode_weight_bytes + decode_kv_bytes; }
};

Work work_of(const Engine& engine, const Options& options, const BatchShape& shape) {
  const ModelConfig& config = engine.model_config();
  const auto weight_bytes = static_cast<double>(engine.memory_plan().weight_bytes);
  const bool bfloat16 = engine.dtype_name() == "bfloat16";
  const double embedding_bits =
      weight_form(resolve_or_throw(options, config, read_machine(serving_device(options))), config,
                  engine.model_directory())
          .embedding_bits;
  // The best arithmetic that the weights' type allows: integers lie in less than 12 bits an
  // element.
  Work work;
  work.instruction =
      product_instruction(product_bits(config, weight_bytes, embedding_bits) < 12 ? DType::kU8
                          : bfloat16                                              ? DType::kBF16
                                                                                  : DType::kF32);
  work.prefill_operations = shape.batch * prefill_operations(config, shape.input);
  work.decode_weight_bytes = weight_bytes_read(config, shape.batch, weight_bytes, embedding_bits);
  // The cache may be kept in another type than the one that the formula is asked for.
  const double kept = static_cast<double>(engine.memory_plan().kv_bytes_per_token) /
                      static_cast<double>(kv_bytes_per_token(kv_page_groups(config, DType::kBF16)));
  const auto length = static_cast<std::int64_t>(shape.input) + shape.output / 2;
  work.decode_kv_bytes =
      shape.batch * kept * static_cast<double>(kv_bytes_read(config, DType::kBF16, length));
  return work;
}

struct CaseResult {
  BatchShape shape;
  BatchTimes times;
  Work work;
  bool with_ceilings = false, with_speculation = false;
  double peak = 0;  // operations a second
  int tries = 1;

  double prefill_rate() const {
    return shape.batch * static_cast<double>(shape.input) / times.prefill_s;
  }
  double decode_rate() const {
    return times.decode_s > 0 ? shape.batch * times.tokens_per_step / times.decode_s : 0;
  }
  // While all sequences decode, where steps take different times.
  double mean_decode_rate() const {
    return times.mean_decode_s > 0 ? shape.batch * times.tokens_per_step / times.mean_decode_s : 0;
  }
  double share_of_peak() const {
    return peak > 0 ? work.prefill_operations / times.prefill_s / peak : 0;
  }

  // Whether the memory kept its speed in most segments.
  bool steady() const {
    return times.segments.empty() ||
           2 * std::ranges::count_if(times.segments, &DecodeSegment::steady) >
               std::ssize(times.segments);
  }
  // The median of the steady segments, each held against the bandwidth right before and right after
  // it; of all when there are no steady ones.
  double share_of_read() const {
    const bool some_steady = std::ranges::any_of(times.segments, &DecodeSegment::steady);
    std::vector<double> shares;
    for (const DecodeSegment& segment : times.segments)
      if (segment.steady() || !some_steady)
        shares.push_back(work.decode_bytes() / segment.step_s / segment.read());
    return shares.empty() ? 0 : median(std::move(shares));
  }
};

// The most tokens of a sequence in steps in which prompts of others are read.
int tokens_ahead(const Options& options, const BatchShape& shape, std::int64_t context) {
  const std::int64_t prompt = static_cast<std::int64_t>(shape.batch - 1) * shape.input;
  const int chunk = prefill_tokens_of_a_step(options, serving_device(options));
  const std::int64_t steps = chunk > 0 ? (prompt + chunk - 1) / chunk : shape.batch - 1;
  const Result<SpeculationOptions> drafts = choose_speculation(options);
  const std::int64_t each = 1 + (drafts.ok() ? drafts.value().max_drafts : 0);
  return static_cast<int>(
      std::clamp<std::int64_t>(steps * each, 0, context - shape.input - shape.output));
}

CaseResult run_case(Engine& engine, const Options& options, const BatchShape& shape,
                    Roofline* roofline, int max_tries) {
  CaseResult out;
  out.shape = shape;
  out.work = work_of(engine, options, shape);
  out.with_ceilings = roofline != nullptr;
  out.with_speculation = engine.stats().has_speculation;
  // The first steps fault pages in, of the KV cache too, which the case gets again: they are not
  // measured.
  time_batch(engine, {shape.batch, shape.input, std::min(shape.output, 4), shape.prompt}, 0, 1);
  engine.flush_cache();
  // Behind a replayed answer there are no tokens.
  const int ahead =
      shape.prompt.empty() ? tokens_ahead(options, shape, engine.context_length()) : 0;
  for (out.tries = 1;; ++out.tries) {
    if (roofline != nullptr) roofline->read();  // finds the best way to read
    out.times = time_batch(engine, shape, ahead, 1'000'000 * static_cast<std::uint64_t>(out.tries),
                           roofline);
    if (roofline != nullptr) out.peak = roofline->peak(out.work.instruction);
    if (out.steady() || out.tries >= max_tries) return out;
  }
}

Json json_of(const CaseResult& r, const Engine& engine, const Options& options) {
  Json json = {
      {"model", options.model},
      {"dtype", engine.dtype_name()},
      {"batch_size", r.shape.batch},
      {"input_len", r.shape.input},
      {"output_len", r.shape.output},
      {"prefill_latency", r.times.prefill_s},
      {"prefill_throughput", r.prefill_rate()},
      {"median_decode_latency", r.times.decode_s},
      {"median_decode_throughput", r.decode_rate()},
      {"mean_decode_throughput", r.mean_decode_rate()},
      {"tokens_per_step", r.times.tokens_per_step},
      {"total_latency", r.times.total_s},
      {"overall_throughput",
       r.shape.batch * static_cast<double>(r.shape.input + r.shape.output) / r.times.total_s},
      {"weight_bytes", engine.memory_plan().weight_bytes},
      {"decode_bytes", r.work.decode_bytes()},
      {"decode_weight_bytes", r.work.decode_weight_bytes},
      {"decode_kv_bytes", r.work.decode_kv_bytes},
      {"prefill_operations", r.work.prefill_operations}};
  if (r.with_ceilings) {
    json["decode_segments"] = Json::array();
    for (const DecodeSegment& segment : r.times.segments)
      json["decode_segments"].push_back({{"median_decode_latency", segment.step_s},
                                         {"read_bytes_per_s_before", segment.read_before},
                                         {"read_bytes_per_s_after", segment.read_after}});
    json["decode_share_of_read_bandwidth"] = r.share_of_read();
    json["peak_instruction"] = instruction_name(r.work.instruction);
    json["peak_operations_per_s"] = r.peak;
    json["prefill_share_of_peak"] = r.share_of_peak();
    json["tries"] = r.tries;
    json["steady"] = r.steady();
  }
  return json;
}

void print_head(const Engine& engine, bool with_ceilings, bool with_speculation) {
  fmt::print("{}, {}, {} of weights\n\n", engine.model_config().architecture, engine.dtype_name(),
             format_bytes(engine.memory_plan().weight_bytes));
  fmt::print("{:>5}{:>8}{:>7}{:>13}{:>10}{}{:>10}{}{:>10}{:>11}{:>11}{}\n", "batch", "input",
             "output", "prefill ms", "tokens/s", with_ceilings ? "    peak" : "", "step ms",
             with_speculation ? "   tokens" : "", "tokens/s", "weights", "KV",
             with_ceilings ? "    read       GB/s" : "");
}

void print_case(const CaseResult& r) {
  const bool decoded = r.times.decode_s > 0;
  const auto percent = [](double share) { return fmt::format("{:>6.1f} %", share * 100); };
  const auto bytes = [](double n) { return format_bytes(static_cast<std::int64_t>(n)); };
  fmt::print("{:>5}{:>8}{:>7}{:>13.2f}{:>10.1f}{}", r.shape.batch, r.shape.input, r.shape.output,
             r.times.prefill_s * 1e3, r.prefill_rate(),
             r.with_ceilings ? percent(r.share_of_peak()) : "");
  if (decoded)
    fmt::print("{:>10.2f}{}{:>10.1f}{:>11}{:>11}{}", r.times.decode_s * 1e3,
               r.with_speculation ? fmt::format("{:>9.2f}", r.times.tokens_per_step) : "",
               r.decode_rate(), bytes(r.work.decode_weight_bytes), bytes(r.work.decode_kv_bytes),
               r.with_ceilings ? percent(r.share_of_read()) : "");
  if (decoded && r.with_ceilings) {
    const auto [slowest, fastest] =
        std::ranges::minmax(r.times.segments | std::views::transform(&DecodeSegment::read));
    fmt::print("{:>6.1f}-{:.1f}{}", slowest / 1e9, fastest / 1e9,
               r.steady() ? "" : fmt::format("  unsteady in {} tries", r.tries));
  }
  fmt::print("\n");
}

void print_notes(const CaseResult& last) {
  fmt::print(
      "\nprefill until every request has its first token; step: the median between two steps that "
      "bring tokens to a request\n");
  if (last.with_speculation)
    fmt::print("tokens: of a request in a step, the known one's and those of right drafts\n");
  fmt::print(
      "weights, KV: bytes that a step touches, of routed experts those chosen in the mean\n");
  if (last.with_ceilings)
    fmt::print(
        "peak: of {}, last {:.0f} Gop/s; read: of the read bandwidth, which is measured between "
        "the steps four times "
        "a second:\nthe median of what lies between two measurements that differ by less than a "
        "tenth\n",
        instruction_name(last.work.instruction), last.peak / 1e9);
}

std::vector<double> acceptance(const Arguments& arguments, const Options& options) {
  constexpr const char* kName = "speculative-synthetic-acceptance";
  std::vector<double> out;
  if (!arguments.has(kName)) return out;
  require(options.speculative_algorithm != "NONE" || !options.speculative_config.empty(),
          "--{} needs --speculative-algorithm, whose drafts it is about", kName);
  try {
    std::vector<std::string> parts;
    option_parse::append_list(parts, arguments.get(kName));
    for (const std::string& part : parts) out.push_back(option_parse::number(part, 0, 1));
  } catch (const Error& error) {
    throw UsageError(fmt::format("--{}: {}", kName, error.message()),
                     "allowed: numbers from 0 to 1, with commas");
  }
  if (out.size() == 1) {
    out.resize(kMaxDraftTokens, out.front());
    return out;
  }
  const Result<SpeculationOptions> chosen = choose_speculation(options);
  if (!chosen.ok()) return out;  // the start says why
  const auto most = static_cast<std::size_t>(chosen.value().topk > 1 ? chosen.value().steps
                                                                     : chosen.value().max_drafts);
  if (out.size() > most)
    throw UsageError(fmt::format("--{}: {} numbers, and there are {} drafts one behind another",
                                 kName, out.size(), most),
                     "give a number for each draft, or one for all");
  return out;
}

std::vector<int> numbers(const Arguments& arguments, const std::string& name, int otherwise,
                         std::int64_t high) {
  if (!arguments.has(name)) return {otherwise};
  std::vector<int> out;
  try {
    std::vector<std::string> parts;
    option_parse::append_list(parts, arguments.get(name));
    for (const std::string& part : parts)
      out.push_back(static_cast<int>(option_parse::integer(part, 1, high)));
  } catch (const Error& error) {
    throw UsageError(fmt::format("--{}: {}", name, error.message()),
                     fmt::format("allowed: numbers from 1 to {}, with commas", high));
  }
  return out;
}

}  // namespace

int bench_latency(const Arguments& arguments) {
  constexpr std::int64_t kMaxTokens = 1 << 24;
  const std::vector<int> batches = numbers(arguments, "batch-size", 1, 4096);
  std::vector<int> inputs = numbers(arguments, "input-len", 1024, kMaxTokens);
  int output = static_cast<int>(arguments.get_int("output-len", 16, 1, kMaxTokens));
  const int tries = static_cast<int>(arguments.get_int("tries", 3, 1, 100));
  Options options = model_options(arguments);
  options.synthetic_acceptance = acceptance(arguments, options);
  // The ceilings are the CPU's.
  const bool on_cpu = serving_device(options).kind == DeviceKind::kCpu;
  const std::int64_t mib =
      arguments.get_int("roofline-mib", on_cpu ? 2048 : 0, 0, on_cpu ? 1 << 20 : 0);
  // Said before a large model is loaded for nothing.
  const ModelConfig config = read_model_config(options, obtain_model(options).directory);
  require(!config.fallback,
          "{} runs through the Transformers plugin, whose operations cannot be counted; measure it "
          "with `sluice bench serve`",
          config.architecture);
  Replay replay = replay_of(arguments, config.vocab_size, options);
  if (replay.is_on()) {
    inputs = {static_cast<int>(replay.prompt.size())};
    output = static_cast<int>(replay.answer.size());
  }
  const std::int64_t longest = *std::ranges::max_element(inputs) + output;
  const std::int64_t context =
      options.context_length > 0 ? options.context_length : config.max_position_embeddings;
  require(longest <= context, "{} make {} tokens, and the context length is {}; ask for fewer{}",
          replay.is_on() ? "--replay-prompt and --replay-answer" : "--input-len and --output-len",
          longest, context, options.context_length > 0 ? ", or raise --context-length" : "");
  const BatchShape largest{*std::ranges::max_element(batches), *std::ranges::max_element(inputs),
                           output, std::move(replay.prompt)};
  fit_options(options, largest.batch, longest + tokens_ahead(options, largest, context),
              arguments.log_level_was_given());

  std::optional<LoadProgress> progress(std::in_place, expected_weight_bytes(options));
  const std::unique_ptr<Engine> engine = Engine::create(options, {}, progress->callback());
  progress.reset();
  std::optional<Roofline> roofline;
  if (mib > 0) roofline.emplace(usable_threads(options.threads), mib);
  const bool as_json = arguments.has("json");
  if (!as_json) print_head(*engine, mib > 0, engine->stats().has_speculation);
  CaseResult result;
  for (const int batch : batches)
    for (const int input : inputs) {
      result = run_case(*engine, options, {batch, input, output, largest.prompt},
                        roofline ? &*roofline : nullptr, tries);
      if (as_json)
        fmt::print("{}\n", dump_json(json_of(result, *engine, options)));
      else
        print_case(result);
      std::fflush(stdout);
    }
  if (!as_json) print_notes(result);
  return 0;
}

}  // namespace sluice
