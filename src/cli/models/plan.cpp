// `sluice plan`: what a model needs, what fits, and how to start it. Reads config.json and the
// headers of the weights.
#include <algorithm>

#include "checkpoint/load_config.h"
#include "cli/download_bars.h"
#include "cli/models/draft_size.h"
#include "cli/models/fit.h"
#include "cli/models/model_files.h"
#include "cli/models/plan_gpus.h"
#include "cli/models/serve_command.h"
#include "cli/verbs.h"
#include "engine/model_choice.h"
#include "models/registry.h"
#include "runtime/memory_plan.h"
#include "tensor/device.h"

namespace sluice {
namespace {

// Another way to hold the weights, and whether it fits then.
struct Alternative {
  std::string flags;
  std::int64_t weight_bytes = 0;
  bool fits = false;
};

struct Plan {
  Options options;
  Machine machine;
  ServingPlan serving;
  ModelConfig config;
  ModelSize size;
  std::vector<StoredType> stored;
  WeightForm form;
  std::int64_t memory_bytes = 0;
  bool supposed = false;   // memory_bytes was given
  bool is_at_hub = false;  // the model is of the hub, not a directory here
  DraftSize draft;         // within the question
  FitQuestion question;
  Fit answer;
  std::string command;
  std::vector<Alternative> alternatives;  // where it does not fit
};

// The options that were given, and those that the answer adds.
std::string command_of(const Plan& p) {
  Options options = p.options;
  const std::int64_t most = p.config.max_position_embeddings;
  options.context_length = p.answer.longest != most ? p.answer.longest : 0;
  options.allow_longer = p.answer.longest > most;
  // The KV cache that the engine takes by itself may be too small for one sequence of the whole
  // context.
  if (options.max_total_tokens == 0 && p.answer.default_tokens < p.answer.longest)
    options.max_total_tokens = p.answer.longest;
  return serve_command(p.options.model, options, !p.stored.empty() || p.is_at_hub);
}

std::vector<Alternative> alternatives_of(const Plan& p, const std::string& model) {
  std::vector<Alternative> out;
  if (p.machine.device.kind != DeviceKind::kCpu || p.form.product_bits < 16 || p.form.blocks)
    return out;
  for (const char* quantization : {"int8", "int4"}) {
    Options options = p.options;
    options.quantization = quantization;
    FitQuestion question = p.question;
    const ServingPlan serving = resolve_or_throw(options, p.config, p.machine);
    const WeightForm form = weight_form(serving, p.config, model);
    question.weight_bytes =
        form.bytes(size_of_model(serving, p.config, model), p.config.tie_word_embeddings) +
        draft_size(options, serving, p.config, model, form).weight_bytes;
    out.push_back({fmt::format("--quantization {}", quantization), question.weight_bytes,
                   fit(question).fits});
  }
  return out;
}

Plan make_plan(const Arguments& arguments) {
  Plan p;
  p.options = model_options(arguments);
  const ResolvedModel model = obtain_model(p.options, false);
  p.is_at_hub = !model.repo_id.empty();
  p.config = read_model_config(p.options, model.directory);
  require(!p.config.fallback,
          "{} runs through the Transformers plugin, whose sizes only its own class knows; `sluice "
          "serve` prints its "
          "memory plan before it takes memory",
          p.config.architecture);
  require_known_dimensions(p.config);
  load_generation_config(model.directory, p.config);  // a start would refuse a broken one
  p.stored = stored_types(model.directory, p.is_at_hub);
  p.machine = read_machine(serving_device(p.options));
  p.serving = resolve_or_throw(p.options, p.config, p.machine);
  if (!p.stored.empty()) require_weights(p.serving, p.config, model.directory);
  require(p.serving.num_ranks == 1,
          "`sluice plan` counts the memory of one rank, not of {}; leave --tp-size, "
          "--ep-size and --pp-size out, or plan for several GPUs with --gpus",
          p.serving.num_ranks);
  p.size = size_of_model(p.serving, p.config, model.directory);
  p.form = weight_form(p.serving, p.config, model.directory);
  p.supposed = arguments.has("memory");
  p.memory_bytes = p.supposed ? arguments.get_int("memory", 0, 1, std::int64_t{1} << 50)
                              : device_info(p.machine.device).free_bytes;

  const Limits& limits = p.serving.runner.limits;
  p.question = {
      .weight_bytes = p.form.bytes(p.size, p.config.tie_word_embeddings),
      .working_bytes = working_bytes(
          p.config, static_cast<int>(limits.max_step_tokens) - limits.max_running_requests,
          limits.max_running_requests, static_cast<int>(p.serving.context_length())),
      .kept = kv_page_groups(p.config, p.serving.numerics().kv(), p.serving.numerics().index()),
      .memory_bytes = p.memory_bytes,
      .context_length = p.serving.context_length(),
      .limits = limits,
      .kv = p.serving.runner.kv};
  p.draft = draft_size(p.options, p.serving, p.config, model.directory, p.form);
  p.question.weight_bytes += p.draft.weight_bytes;
  std::vector<PageGroupSpec>& kept = p.question.kept;
  kept.insert(kept.begin() + num_page_groups(kept), p.draft.kept.begin(), p.draft.kept.end());
  p.answer = fit(p.question);
  if (p.answer.fits)
    p.command = command_of(p);
  else
    p.alternatives = alternatives_of(p, model.directory);
  return p;
}

Json json_of(const Plan& p) {
  Json parts = Json::object();
  for (const WeightCount& part : p.size.parts()) parts[part.name] = part.total();
  Json stored = Json::array();
  for (const StoredType& type : p.stored)
    stored.push_back({{"dtype", type.dtype}, {"tensors", type.num_tensors}, {"bytes", type.bytes}});
  Json alternatives = Json::array();
  for (const Alternative& a : p.alternatives)
    alternatives.push_back(
        {{"flags", a.flags}, {"weight_bytes", a.weight_bytes}, {"fits", a.fits}});
  Json concurrency = Json::object();
  for (const FitLine& line : p.answer.concurrency)
    concurrency[std::to_string(line.length)] = {{"by_default", line.by_default},
                                                {"at_most", line.at_most}};
  return {{"model", p.options.model},
          {"architecture", p.config.architecture},
          {"parameters", p.size.parameters()},
          {"parameters_by_part", parts},
          {"stored", stored},
          {"dtype", dtype_name(p.serving.numerics().compute)},
          {"weight_form", p.form.describe(p.size)},
          {"weight_bytes", p.question.weight_bytes},
          {"kv_dtype", dtype_name(p.serving.numerics().kv())},
          {"index_dtype", dtype_name(p.serving.numerics().index())},
          {"kv_bytes_per_token", kv_bytes_per_token(p.question.kept)},
          {"window_bytes_per_token", window_bytes_per_token(p.question.kept)},
          {"state_bytes", state_bytes(p.question.kept)},
          {"draft_weight_bytes", p.draft.weight_bytes},
          {"draft_kv_bytes_per_token", kv_bytes_per_token(p.draft.kept)},
          {"working_bytes", p.question.working_bytes},
          {"memory_bytes", p.memory_bytes},
          {"memory_supposed", p.supposed},
          {"fits", p.answer.fits},
          {"left_bytes", p.answer.left_bytes},
          {"max_total_tokens", p.answer.max_tokens},
          {"default_total_tokens", p.answer.default_tokens},
          {"default_kv_bytes", p.answer.default_kv_bytes},
          {"default_states", p.answer.default_states},
          {"longest_sequence", p.answer.longest},
          {"context_length", p.question.context_length},
          {"concurrency", concurrency},
          {"alternatives", alternatives},
          {"command", p.command}};
}

std::string in_words(std::int64_t parameters) {
  const auto n = static_cast<double>(parameters);
  return n < 1e9 ? fmt::format("{:.3g} million", n / 1e6) : fmt::format("{:.3g} billion", n / 1e9);
}

void print(const Plan& p) {
  fmt::print("{} ({}, {} layers, {} parameters)\n\n", p.options.model, p.config.architecture,
             p.config.num_layers, in_words(p.size.parameters()));
  const auto row = [](std::string_view name, const std::string& value,
                      const std::string& note = "") {
    fmt::print("  {:<18}{:>12}{}{}\n", name, value, note.empty() ? "" : "  ", note);
  };
  if (p.stored.empty())
    row("in the files", "none",
        p.is_at_hub ? "the weights are not downloaded yet"
                    : "no weights here: --load-format dummy makes random ones");
  for (const StoredType& type : p.stored)
    row("in the files", format_bytes(type.bytes),
        fmt::format("{} tensors in {}", type.num_tensors, type.dtype));
  fmt::print("\n");
  row("weights", format_bytes(p.question.weight_bytes),
      fmt::format("matrices in {}", p.form.describe(p.size)));
  for (const WeightCount& part : p.size.parts())
    row(fmt::format("  {}", part.name),
        format_bytes(p.form.bytes(part, p.config.tie_word_embeddings)));
  if (!p.draft.what.empty())
    row("  draft", format_bytes(p.draft.weight_bytes),
        fmt::format("{}, and {} of KV for a token", p.draft.what,
                    format_bytes(kv_bytes_per_token(p.draft.kept))));
  row("working memory", format_bytes(p.question.working_bytes),
      "about; it is measured at the start");
  const std::int64_t windows = window_bytes_per_token(p.question.kept),
                     state = state_bytes(p.question.kept);
  row("a token of KV", format_bytes(kv_bytes_per_token(p.question.kept)),
      fmt::format("in {}", dtype_name(p.serving.numerics().kv())) +
          (windows > 0 ? fmt::format(", {} of it within windows", format_bytes(windows)) : "") +
          (p.serving.numerics().index_stored
               ? fmt::format(", index keys in {}", dtype_name(p.serving.numerics().index()))
               : ""));
  if (state > 0)
    row("a sequence's state", format_bytes(state), "of its recurrent layers, in float32");
  row("memory", format_bytes(p.memory_bytes),
      p.supposed                                  ? "supposed"
      : p.machine.device.kind == DeviceKind::kCpu ? "free on this machine"
                                                  : "free on " + describe(p.machine.device));
  fmt::print("\n");
  if (!p.answer.fits) {
    fmt::print("It does not fit: {} are missing.\n", format_bytes(p.answer.missing_bytes));
    if (p.options.max_total_tokens > p.answer.max_tokens && p.answer.max_tokens > 0)
      fmt::print("--max-total-tokens {} is more than the {} that fit.\n",
                 p.options.max_total_tokens, p.answer.max_tokens);
    for (const Alternative& a : p.alternatives)
      fmt::print("With {}: {} of weights, which {}.\n", a.flags, format_bytes(a.weight_bytes),
                 a.fits ? "fits" : "does not fit either");
    if (p.machine.device.kind != DeviceKind::kCpu)
      fmt::print("--device cpu plans for this machine's memory instead.\n");
    return;
  }
  row("KV by default", format_bytes(p.answer.default_kv_bytes),
      fmt::format("{} tokens", p.answer.default_tokens));
  if (state > 0)
    row("states by default", format_bytes(p.answer.default_states * state),
        fmt::format("{}: one for each request, and for prefixes that are kept",
                    p.answer.default_states));
  row("KV at most", format_bytes(p.answer.left_bytes),
      fmt::format("{} tokens: --max-total-tokens", p.answer.max_tokens));
  row("longest sequence", fmt::format("{}", p.answer.longest),
      fmt::format("tokens, of {}", p.question.context_length));
  for (const FitLine& line : p.answer.concurrency)
    row(fmt::format("at {} tokens", line.length), fmt::format("{}", line.by_default),
        fmt::format("requests at once by default, {} at most", line.at_most));
  fmt::print("\n{}\n", p.command);
}

}  // namespace

int run_plan(const Arguments& arguments) {
  if (arguments.has("gpus")) return run_plan_gpus(arguments);
  if (arguments.has("concurrency"))
    throw UsageError("--concurrency is of --gpus", "add --gpus, as --gpus 8xH200");
  const Plan plan = make_plan(arguments);
  if (arguments.has("json"))
    fmt::print("{}\n", dump_json(json_of(plan)));
  else
    print(plan);
  // As a start would end.
  return plan.answer.fits ? 0 : exit_code(ErrorKind::kNoResources);
}

}  // namespace sluice
