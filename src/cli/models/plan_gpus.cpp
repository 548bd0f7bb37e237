#include "cli/models/plan_gpus.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "checkpoint/load_config.h"
#include "cli/download_bars.h"
#include "cli/models/mix_choice.h"
#include "cli/models/model_files.h"
#include "cli/models/serve_command.h"
#include "cli/verbs.h"
#include "engine/model_choice.h"
#include "models/registry.h"
#include "runtime/memory_plan.h"

namespace sluice {
namespace {

constexpr int kDefaultContext = 8192;
constexpr int kDefaultConcurrency = 64;
constexpr int kMaxConcurrency = 65536;

struct GpuPlan {
  std::string model;
  bool has_weights = false;  // here, or at the hub
  MixQuestion question;
  std::vector<MixAnswer> answers;
  const MixAnswer* latency = nullptr;
  const MixAnswer* throughput = nullptr;
};

void require_no_mix(const Arguments& arguments, const Options& options) {
  if (options.num_ranks() > 1 || options.ep_size > 1 || options.dp_size > 1 ||
      options.enable_expert_parallel || options.enable_dp_attention)
    throw UsageError("--gpus tries all mixes of parallelism, and one was given",
                     "leave --tp-size, --pp-size, --ep-size and --dp-size out");
  if (arguments.has("memory"))
    throw UsageError("--memory and --gpus exclude each other",
                     "leave --memory out; the memory is that of the GPUs");
}

GpuPlan make_plan(const Arguments& arguments) {
  const GpuSet gpus = parse_gpu_set(arguments.get("gpus"));
  const Options options = model_options(arguments);
  require_no_mix(arguments, options);
  const ResolvedModel model = obtain_model(options, false);
  const ModelConfig config = read_model_config(options, model.directory);
  require(!config.fallback,
          "{} runs through the Transformers plugin on a CPU, in one process; --gpus plans for "
          "architectures of this program",
          config.architecture);
  require_known_dimensions(config);
  load_generation_config(model.directory, config);  // a start would refuse a broken one
  const std::int64_t context = options.context_length > 0
                                   ? options.context_length
                                   : std::min(kDefaultContext, config.max_position_embeddings);
  const auto concurrency =
      static_cast<int>(arguments.get_int("concurrency", kDefaultConcurrency, 1, kMaxConcurrency));
  GpuPlan plan;
  plan.model = options.model;
  const bool is_at_hub = !model.repo_id.empty();
  const bool are_here = !stored_types(model.directory, is_at_hub).empty();
  if (are_here)
    require_weights(resolve_or_throw(options, config, imagined_gpu()), config, model.directory);
  plan.has_weights = is_at_hub || are_here;
  plan.question = mix_question(options, config, model.directory, gpus, static_cast<double>(context),
                               concurrency);
  plan.answers = answer_mixes(plan.question);
  plan.latency = best_latency(plan.answers);
  plan.throughput = best_throughput(plan.answers, plan.question.concurrency);
  return plan;
}

std::string command_of(const GpuPlan& plan, const MixAnswer& answer) {
  return serve_command(plan.model, answer.options, plan.has_weights);
}

std::string in_bytes(double bytes) {
  return format_bytes(static_cast<std::int64_t>(bytes));
}

// With KV in equal parts for each.
int sequences_that_fit(const MixAnswer& answer, int concurrency) {
  const int groups = answer.mix.replicas * answer.mix.dp;
  const double of_group = (concurrency + groups - 1) / groups;
  const double each = answer.bytes.kv / of_group;
  return static_cast<int>((answer.available_bytes - answer.bytes.weights) / each) * groups;
}

// Why a mix is out; empty: it is not.
std::string objection(const GpuPlan& plan, const MixAnswer& answer) {
  if (!answer.refusal.empty()) return answer.refusal;
  if (answer.fits) return "";
  if (answer.bytes.weights > answer.available_bytes)
    return fmt::format("a GPU would hold {} of weights, and has {} for weights and KV",
                       in_bytes(answer.bytes.weights), in_bytes(answer.available_bytes));
  if (answer.bytes.weights + answer.bytes.kv > answer.available_bytes)
    return fmt::format(
        "beside {} of weights a GPU has {} for KV, and {} sequences of {} tokens need {}; {} fit",
        in_bytes(answer.bytes.weights), in_bytes(answer.available_bytes - answer.bytes.weights),
        plan.question.concurrency, plan.question.context, in_bytes(answer.bytes.kv),
        sequences_that_fit(answer, plan.question.concurrency));
  return fmt::format("a step needs {} of working memory, and {} are left beside weights and KV",
                     in_bytes(answer.working_bytes),
                     in_bytes(static_cast<double>(plan.question.gpus.machine->memory_bytes) -
                              answer.available_bytes));
}

Json json_of(const StepCost& cost) {
  Json parts = Json::object();
  for (const PartSeconds& part : cost.parts) parts[std::string(part.name)] = part.seconds;
  return {{"seconds", cost.seconds}, {"tokens_per_s", cost.tokens_per_s}, {"parts", parts}};
}

Json json_of(const GpuPlan& plan, const MixAnswer& answer) {
  const Mix& mix = answer.mix;
  Json decode = Json::object();
  for (const MixStep& step : answer.decode) {
    Json cost = json_of(step.cost);
    cost["fits"] = step.fits;
    decode[std::to_string(step.batch)] = std::move(cost);
  }
  return {
      {"mix",
       {{"tp", mix.tp}, {"pp", mix.pp}, {"ep", mix.ep}, {"dp", mix.dp}, {"servers", mix.replicas}}},
      {"can_serve", answer.can_serve()},
      {"reason", objection(plan, answer)},
      {"weight_bytes", answer.bytes.weights},
      {"kv_bytes", answer.bytes.kv},
      {"available_bytes", answer.available_bytes},
      {"working_bytes", answer.working_bytes},
      {"decode", decode},
      {"first_token", json_of(answer.first_token)},
      {"prefill", json_of(answer.prefill)},
      {"command", answer.can_serve() ? command_of(plan, answer) : ""}};
}

Json json_of(const GpuPlan& plan) {
  const MixQuestion& question = plan.question;
  Json mixes = Json::array();
  for (const MixAnswer& answer : plan.answers) mixes.push_back(json_of(plan, answer));
  const auto best = [&](const MixAnswer* answer) {
    return answer == nullptr ? Json() : json_of(plan, *answer);
  };
  return {{"model", plan.model},
          {"architecture", question.config.architecture},
          {"gpus", question.gpus.count},
          {"machine", question.gpus.machine->name},
          {"context_length", question.context},
          {"concurrency", question.concurrency},
          {"best_latency", best(plan.latency)},
          {"best_throughput", best(plan.throughput)},
          {"mixes", mixes}};
}

void print_table(const GpuPlan& plan) {
  const MixQuestion& question = plan.question;
  std::vector<const MixAnswer*> served;
  for (const MixAnswer& answer : plan.answers)
    if (answer.can_serve()) served.push_back(&answer);
  std::ranges::stable_sort(served, [&](const MixAnswer* a, const MixAnswer* b) {
    return a->at(question.concurrency).tokens_per_s > b->at(question.concurrency).tokens_per_s;
  });
  std::string head = fmt::format("  {:<28}{:>10}{:>11}", "mix", "weights", "KV");
  for (const MixStep& step : served.front()->decode) head += fmt::format("{:>9}", step.batch);
  fmt::print("{}{:>11}{:>11}{:>11}\n", head, "tokens/s", "prompt", "first");
  fmt::print("  {:<28}{:>10}{:>11}{:>{}}{:>11}{:>11}{:>11}\n", "", "a GPU", "a GPU",
             "ms a token, by sequences", 9 * served.front()->decode.size(),
             fmt::format("at {}", question.concurrency), "tokens/s", "token");
  for (const MixAnswer* answer : served) {
    std::string line = fmt::format("  {:<28}{:>10}{:>11}", describe(answer->mix),
                                   in_bytes(answer->bytes.weights), in_bytes(answer->bytes.kv));
    for (const MixStep& step : answer->decode)
      line += step.fits ? fmt::format("{:>9.2f}", step.cost.seconds * 1e3)
                        : fmt::format("{:>9}", "no room");
    fmt::print("{}{:>11.0f}{:>11.0f}{:>11}\n", line, answer->at(question.concurrency).tokens_per_s,
               answer->prefill.tokens_per_s,
               fmt::format("{:.0f} ms", answer->first_token.seconds * 1e3));
  }
}

void print_best(const GpuPlan& plan, std::string_view what, const MixAnswer& answer) {
  fmt::print("\n{}: {}\n{}\n", what, describe(answer.mix), command_of(plan, answer));
  const int each = answer.mix.tp * answer.mix.pp;
  if (answer.mix.replicas > 1)
    fmt::print(
        "{} of these behind a router, each with a --port of its own and --base-gpu-id 0, {} "
        "and so on\n",
        answer.mix.replicas, each);
}

// Names of mixes, or of the first and how many more there are.
std::string list_of(const std::vector<const MixAnswer*>& answers) {
  constexpr std::size_t kShown = 6;
  std::vector<std::string> names;
  for (const MixAnswer* answer : answers)
    if (names.size() < kShown) names.push_back(describe(answer->mix));
  std::string list = fmt::format("{}", fmt::join(names, "; "));
  if (answers.size() > kShown) list += fmt::format("; and {} more", answers.size() - kShown);
  return list;
}

// What the best of refused mixes would do, where its parts divide and memory is enough.
std::string promise_of(const GpuPlan& plan, const std::vector<const MixAnswer*>& answers) {
  const MixAnswer* best = nullptr;
  const auto rate = [&](const MixAnswer& a) {
    return a.at(plan.question.concurrency).tokens_per_s;
  };
  for (const MixAnswer* answer : answers)
    if (answer->fits && !answer->refusal.empty() && answer->divides &&
        (best == nullptr || rate(*answer) > rate(*best)))
      best = answer;
  if (best == nullptr) return "";
  return fmt::format(
      "\n    {} would give {:.0f} tokens/s with {} sequences, and {:.2f} ms with one",
      describe(best->mix), rate(*best), plan.question.concurrency, best->at(1).seconds * 1e3);
}

// A reason without its numbers, nor how many they are.
std::string without_numbers(const std::string& reason) {
  std::string out;
  for (const char c : reason)
    if (std::string_view("0123456789, ").find(c) == std::string_view::npos) out += c;
  return out;
}

// One line for each reason, with the mixes that it stands against.
void print_refused(const GpuPlan& plan) {
  std::map<std::string, std::vector<const MixAnswer*>> mixes;
  std::vector<std::pair<std::string, std::string>> reasons;  // key, words
  for (const MixAnswer& answer : plan.answers) {
    const std::string reason = objection(plan, answer);
    if (reason.empty()) continue;
    // Refusals that differ in numbers alone are one.
    const std::string key = answer.refusal.empty() ? reason : without_numbers(reason);
    if (!mixes.contains(key)) reasons.emplace_back(key, reason);
    mixes[key].push_back(&answer);
  }
  if (reasons.empty()) return;
  fmt::print("\nOut:\n");
  for (const auto& [key, reason] : reasons)
    fmt::print("  {}\n    {}{}\n", list_of(mixes[key]), reason, promise_of(plan, mixes[key]));
}

void print(const GpuPlan& plan) {
  const MixQuestion& question = plan.question;
  fmt::print("{} ({}) on {} {}, predicted: {} sequences of {} tokens\n\n", plan.model,
             question.config.architecture, question.gpus.count, question.gpus.machine->full_name,
             question.concurrency, question.context);
  if (plan.latency != nullptr) {
    print_table(plan);
    print_best(plan, "Fastest for one sequence", *plan.latency);
    print_best(plan, fmt::format("Most tokens a second with {} sequences", question.concurrency),
               *plan.throughput);
  } else {
    fmt::print("No mix can serve it.\n");
  }
  print_refused(plan);
}

}  // namespace

int run_plan_gpus(const Arguments& arguments) {
  const GpuPlan plan = make_plan(arguments);
  if (arguments.has("json"))
    fmt::print("{}\n", dump_json(json_of(plan)));
  else
    print(plan);
  return plan.latency != nullptr ? 0 : exit_code(ErrorKind::kNoResources);
}

}  // namespace sluice
