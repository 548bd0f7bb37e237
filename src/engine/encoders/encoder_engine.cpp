// From options to the engine of an encoder, step by step, each timed in the ledger.
#include "engine/encoders/encoder_engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/ranges.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "config/config_reader.h"
#include "engine/encoders/encoder_loop.h"
#include "engine/machine.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
constexpr std::int64_t kStepTokens = 2048;

// Groups of options that say something to an encoder, and their members that say nothing.
constexpr std::string_view kGroups[] = {"Model", "Runtime", "Server", "Limits"};
constexpr std::string_view kUseless[] = {"kv-cache-dtype", "index-cache-dtype", "random-seed",
                                         "enable-expert-parallel", "quantization-group-size"};

DType compute_type(const Options& options, const EncoderConfig& config) {
  if (options.dtype == "float32") return DType::kF32;
  if (options.dtype == "bfloat16") return DType::kBF16;
  if (options.dtype == "float16") return DType::kF16;
  return config.dtype;
}

void check_options(const Options& options) {
  require(options.device != "cuda",
          "encoders run on the CPU in this version; give --device cpu, or leave it out");
  require(options.runner != "generate",
          "the model is an encoder and generates no text; leave --runner out");
  require(options.num_ranks() == 1,
          "an encoder runs on one rank; leave --tp-size, --ep-size and --pp-size out");
  require(options.quantization == "auto" || options.quantization == "none",
          "encoders are not quantised in this version; leave --quantization out");
  require(options.model_impl != "transformers",
          "encoders run in Sluice's own classes; leave --model-impl out");
  std::vector<std::string_view> useless;
  for (const GivenOption& given : given_options(options)) {
    const std::string_view name = given.row->name, group = given.row->group;
    const bool is_budget = name == "chunked-prefill-size" || name == "max-prefill-tokens" ||
                           name == "max-queued-requests" || name == "max-queued-tokens";
    const bool is_read = is_budget || std::ranges::count(kGroups, group) > 0;
    if (!is_read || std::ranges::count(kUseless, name) > 0) useless.push_back(name);
  }
  if (!useless.empty())
    log_warning("options that change nothing for an encoder: {}", fmt::join(useless, ", "));
}

// The peak of the arena over the largest step, from a run in which no operation does work.
std::int64_t measure(const Context& real, const Encoder& encoder, std::int64_t tokens) {
  Arena arena = Arena::measuring(real.device);
  Context ctx = real;
  ctx.arena = &arena;
  ctx.dry_run = true;
  void* nowhere = reinterpret_cast<void*>(64);
  const Tensor rows = Tensor::dense(nowhere, DType::kI32, {tokens});
  const Tensor states = Tensor::dense(nowhere, DType::kF32, {tokens, encoder.config().hidden_size});
  // As many texts as there can be, for the head.
  std::vector<std::int32_t> starts(static_cast<std::size_t>(tokens) + 1);
  for (std::size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<std::int32_t>(i);
  encoder.forward(ctx, {.ids = rows, .positions = rows, .types = rows, .starts = starts}, states);
  if (encoder.config().head != EncoderHead::kNone)
    encoder.score(
        ctx, starts, states,
        Tensor::dense(nowhere, DType::kF32, {tokens, std::ssize(encoder.config().labels)}));
  return arena.peak_bytes();
}

ModelConfig shown_config(const EncoderConfig& config, const Options& options) {
  ModelConfig out;
  out.architecture = config.architecture;
  out.model_type = config.model_type;
  out.vocab_size = static_cast<int>(config.vocab_size);
  out.hidden_size = static_cast<int>(config.hidden_size);
  out.num_layers = config.num_layers;
  out.max_position_embeddings = config.max_tokens;
  out.override_args = options.json_model_override_args;
  return out;
}

}  // namespace

std::optional<EncoderConfig> find_encoder(const Options& options, const std::string& directory) {
  if (directory.ends_with(".gguf")) return std::nullopt;
  const std::optional<std::string> text =
      read_text_beneath(directory, "config.json", kMaxConfigBytes);
  if (!text) return std::nullopt;
  Json config = parse_config_text(*text, "config.json");
  if (!is_encoder(config)) return std::nullopt;
  merge_json(config,
             parse_json_or_throw(options.json_model_override_args, "--json-model-override-args"));
  return parse_encoder_config(config);
}

std::unique_ptr<Engine> create_encoder_engine(
    const Options& options, EncoderConfig config, const std::string& directory,
    std::function<void(const std::string&, double)> progress) {
  using Clock = std::chrono::steady_clock;
  EncoderParts parts;
  Clock::time_point start = Clock::now();
  const auto report = [&](const std::string& step, const std::string& detail) {
    const double milliseconds =
        std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    log_info("{}: {:.1f} ms, {}", step, milliseconds, detail);
    parts.ledger.entries.push_back({step, milliseconds, detail});
    if (progress) progress(step, static_cast<double>(parts.ledger.entries.size()) / 3);
    start = Clock::now();
  };
  check_options(options);
  require(options.context_length <= config.max_tokens,
          "--context-length is {}; the model's table of positions ends at {}",
          options.context_length, config.max_tokens);
  parts.max_queued_texts = options.max_queued_requests;
  parts.max_queued_tokens = options.max_queued_tokens;
  parts.directory = directory;
  parts.config = shown_config(config, options);
  parts.numerics.compute = compute_type(options, config);
  parts.context_length =
      options.context_length > 0 ? static_cast<int>(options.context_length) : config.max_tokens;
  const std::int64_t budget = options.chunked_prefill_size > 0 ? options.chunked_prefill_size
                              : options.max_prefill_tokens > 0 ? options.max_prefill_tokens
                                                               : kStepTokens;
  parts.max_step_tokens = std::max<std::int64_t>(budget, parts.context_length);

  const WeightSource source = [&] {
    if (options.load_format == "dummy") return WeightSource::dummy(0, 0.02);
    WeightSource opened = WeightSource::checkpoint(directory);
    if (options.check_weights) opened.check_finite();
    return opened;
  }();
  report("read", fmt::format("{}, {} layers", config.architecture, config.num_layers));

  parts.rank = std::make_unique<Rank>(
      Placement{.device = {}, .num_threads = usable_threads(options.threads), .numa_nodes = {}},
      true);
  Context& ctx = parts.rank->context();
  Arena load_arena = Arena::measuring(ctx.device);
  ctx.arena = &load_arena;
  parts.encoder = load_encoder(ctx, config, source, parts.numerics);
  parts.memory.weight_bytes = parts.encoder->weight_bytes();
  report("load", fmt::format("{} of weights as {}", format_bytes(parts.memory.weight_bytes),
                             dtype_name(parts.numerics.compute)));

  parts.memory.activation_bytes = measure(ctx, *parts.encoder, parts.max_step_tokens);
  parts.memory.buffer_bytes = 4 * parts.max_step_tokens * config.hidden_size;
  parts.arena = std::make_unique<Arena>(parts.memory.activation_bytes, ctx.device);
  parts.states = Buffer(parts.memory.buffer_bytes, ctx.device);
  ctx.arena = parts.arena.get();
  report("plan memory",
         fmt::format("{} for steps of {} tokens",
                     format_bytes(parts.memory.activation_bytes + parts.memory.buffer_bytes),
                     parts.max_step_tokens));
  parts.encoder_config = std::move(config);
  return std::make_unique<EncoderLoop>(std::move(parts));
}

}  // namespace sluice
