// `sluice plan`: what a model needs, what fits, and how to start it. Reads config.json and the
// headers of the weights.
#include <algorithm>

#include "cli/download_bars.h"
#include "cli/models/fit.h"
#include "cli/models/model_files.h"
#include "cli/verbs.h"
#include "engine/model_choice.h"
#include "models/registry.h"
#include "runtime/memory_plan.h"
#include "tensor/device.h"

namespace sluice {
namespace {

constexpr int kChunk = 512, kRunning = 128;  // the engine's defaults

// Arguments as a shell reads them.
std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./@:+").find(c) != std::string_view::npos;
  });
  if (plain) return text;
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Another way to hold the weights, and whether it fits then.
struct Alternative {
  std::string flags;
  std::int64_t weight_bytes = 0;
  bool fits = false;
};

struct Plan {
  Options options;
  Device device;
  ModelConfig config;
  ModelSize size;
  std::vector<StoredType> stored;
  WeightForm form;
  std::int64_t memory_bytes = 0;
  bool supposed = false;   // memory_bytes was given
  bool is_at_hub = false;  // the model is of the hub, not a directory here
  std::int64_t context = 0;
  FitQuestion question;
  Fit answer;
  std::string command;
  std::vector<Alternative> alternatives;  // where it does not fit
};

std::string command_of(const Plan& p) {
  const Options& o = p.options;
  const Options defaults;
  std::string command = fmt::format("sluice serve {}", shell_word(o.model));
  const auto add = [&](bool wanted, const std::string& words) {
    if (wanted) command += " " + words;
  };
  add(o.device != defaults.device, fmt::format("--device {}", o.device));
  add(o.dtype != defaults.dtype, fmt::format("--dtype {}", o.dtype));
  add(o.quantization != defaults.quantization, fmt::format("--quantization {}", o.quantization));
  add(o.quantization_group_size != defaults.quantization_group_size,
      fmt::format("--quantization-group-size {}", o.quantization_group_size));
  add(o.kv_cache_dtype != defaults.kv_cache_dtype,
      fmt::format("--kv-cache-dtype {}", o.kv_cache_dtype));
  add(o.index_cache_dtype != defaults.index_cache_dtype,
      fmt::format("--index-cache-dtype {}", o.index_cache_dtype));
  add(o.json_model_override_args != defaults.json_model_override_args,
      fmt::format("--json-model-override-args {}", shell_word(o.json_model_override_args)));
  add(p.stored.empty() && !p.is_at_hub, "--load-format dummy");
  add(p.answer.longest != p.config.max_position_embeddings,
      fmt::format("--context-length {}", p.answer.longest));
  add(p.answer.longest > p.config.max_position_embeddings, "--allow-longer");
  add(o.max_running_requests > 0, fmt::format("--max-running-requests {}", o.max_running_requests));
  add(o.chunked_prefill_size != 0,
      fmt::format("--chunked-prefill-size {}", o.chunked_prefill_size));
  add(o.mem_fraction_static > 0, fmt::format("--mem-fraction-static {}", o.mem_fraction_static));
  // The KV cache that the engine takes by itself may be too small for one sequence of the whole
  // context.
  const std::int64_t tokens = o.max_total_tokens > 0                       ? o.max_total_tokens
                              : p.answer.default_tokens < p.answer.longest ? p.answer.longest
                                                                           : 0;
  add(tokens > 0, fmt::format("--max-total-tokens {}", tokens));
  return command;
}

std::vector<Alternative> alternatives_of(const Plan& p, const std::string& model) {
  std::vector<Alternative> out;
  if (p.device.kind != DeviceKind::kCpu || p.form.product_bits < 16) return out;
  for (const char* quantization : {"int8", "int4"}) {
    Options options = p.options;
    options.quantization = quantization;
    FitQuestion question = p.question;
    question.weight_bytes =
        weight_form(options, p.config, model).bytes(p.size, p.config.tie_word_embeddings);
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
  p.size = model_size(p.config);
  p.stored = stored_types(model.directory, p.is_at_hub);
  p.form = weight_form(p.options, p.config, model.directory);
  p.device = choose_device(p.options.device);
  p.supposed = arguments.has("memory");
  p.memory_bytes = p.supposed ? arguments.get_int("memory", 0, 1, std::int64_t{1} << 50)
                              : device_info(p.device).free_bytes;
  p.context = serving_context(p.options, p.config);

  const int running =
      p.options.max_running_requests > 0 ? p.options.max_running_requests : kRunning;
  const int chunk = p.options.chunked_prefill_size > 0 ? p.options.chunked_prefill_size : kChunk;
  p.question = {
      .weight_bytes = p.form.bytes(p.size, p.config.tie_word_embeddings),
      .working_bytes = working_bytes(p.config, chunk, running, static_cast<int>(p.context)),
      .kv_bytes_per_token = kv_bytes_per_token(kv_page_groups(p.config, p.form.kv, p.form.index)),
      .state_bytes = state_bytes(kv_page_groups(p.config, p.form.kv, p.form.index)),
      .memory_bytes = p.memory_bytes,
      .context_length = p.context,
      .max_running_requests = running,
      .mem_fraction_static = p.options.mem_fraction_static,
      .max_total_tokens = p.options.max_total_tokens,
      .max_states = p.options.max_mamba_cache_size,
      .state_ratio = p.options.mamba_full_memory_ratio};
  if (p.question.mem_fraction_static == 0 && p.device.kind == DeviceKind::kCuda)
    p.question.mem_fraction_static = kGpuFraction;
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
          {"dtype", dtype_name(p.form.compute)},
          {"weight_form", p.form.products},
          {"weight_bytes", p.question.weight_bytes},
          {"kv_dtype", dtype_name(p.form.kv)},
          {"index_dtype", dtype_name(p.form.index.value_or(p.form.kv))},
          {"kv_bytes_per_token", p.question.kv_bytes_per_token},
          {"state_bytes", p.question.state_bytes},
          {"working_bytes", p.question.working_bytes},
          {"memory_bytes", p.memory_bytes},
          {"memory_supposed", p.supposed},
          {"fits", p.answer.fits},
          {"left_bytes", p.answer.left_bytes},
          {"max_total_tokens", p.answer.max_tokens},
          {"default_total_tokens", p.answer.default_tokens},
          {"default_states", p.answer.default_states},
          {"longest_sequence", p.answer.longest},
          {"context_length", p.context},
          {"concurrency", concurrency},
          {"alternatives", alternatives},
          {"command", p.command}};
}

std::string in_words(std::int64_t parameters) {
  const auto n = static_cast<double>(parameters);
  return n < 1e9 ? fmt::format("{:.3g} million", n / 1e6) : fmt::format("{:.3g} billion", n / 1e9);
}

std::int64_t missing_bytes(const Plan& p) {
  const std::int64_t tokens = p.options.max_total_tokens > 0
                                  ? p.options.max_total_tokens
                                  : std::min<std::int64_t>(1024, p.context);
  return tokens * p.question.kv_bytes_per_token + p.question.state_bytes - p.answer.left_bytes;
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
      fmt::format("matrices in {}", p.form.products));
  for (const WeightCount& part : p.size.parts())
    row(fmt::format("  {}", part.name),
        format_bytes(p.form.bytes(part, p.config.tie_word_embeddings)));
  row("working memory", format_bytes(p.question.working_bytes),
      "about; it is measured at the start");
  row("a token of KV", format_bytes(p.question.kv_bytes_per_token),
      fmt::format("in {}", dtype_name(p.form.kv)) +
          (p.form.index ? fmt::format(", index keys in {}", dtype_name(*p.form.index)) : ""));
  if (p.question.state_bytes > 0)
    row("a sequence's state", format_bytes(p.question.state_bytes),
        "of its recurrent layers, in float32");
  row("memory", format_bytes(p.memory_bytes),
      p.supposed                          ? "supposed"
      : p.device.kind == DeviceKind::kCpu ? "free on this machine"
                                          : "free on " + describe(p.device));
  fmt::print("\n");
  if (!p.answer.fits) {
    fmt::print("It does not fit: {} are missing.\n", format_bytes(missing_bytes(p)));
    if (p.options.max_total_tokens > p.answer.max_tokens && p.answer.max_tokens > 0)
      fmt::print("--max-total-tokens {} is more than the {} that fit.\n",
                 p.options.max_total_tokens, p.answer.max_tokens);
    for (const Alternative& a : p.alternatives)
      fmt::print("With {}: {} of weights, which {}.\n", a.flags, format_bytes(a.weight_bytes),
                 a.fits ? "fits" : "does not fit either");
    if (p.device.kind != DeviceKind::kCpu)
      fmt::print("--device cpu plans for this machine's memory instead.\n");
    return;
  }
  row("KV by default", format_bytes(p.answer.default_tokens * p.question.kv_bytes_per_token),
      fmt::format("{} tokens", p.answer.default_tokens));
  if (p.question.state_bytes > 0)
    row("states by default", format_bytes(p.answer.default_states * p.question.state_bytes),
        fmt::format("{}: one for each request, and for prefixes that are kept",
                    p.answer.default_states));
  row("KV at most", format_bytes(p.answer.left_bytes),
      fmt::format("{} tokens: --max-total-tokens", p.answer.max_tokens));
  row("longest sequence", fmt::format("{}", p.answer.longest),
      fmt::format("tokens, of {}", p.context));
  for (const FitLine& line : p.answer.concurrency)
    row(fmt::format("at {} tokens", line.length), fmt::format("{}", line.by_default),
        fmt::format("requests at once by default, {} at most", line.at_most));
  fmt::print("\n{}\n", p.command);
}

}  // namespace

int run_plan(const Arguments& arguments) {
  const Plan plan = make_plan(arguments);
  if (arguments.has("json"))
    fmt::print("{}\n", dump_json(json_of(plan)));
  else
    print(plan);
  // As a start would end.
  return plan.answer.fits ? 0 : exit_code(ErrorKind::kNoResources);
}

}  // namespace sluice
