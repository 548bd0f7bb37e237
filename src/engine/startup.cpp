// Engine::create: from options to a running engine, step by step, each timed in the ledger.
#include <algorithm>
#include <chrono>
#include <random>

#include "base/log.h"
#include "base/numa.h"
#include "checkpoint/load_config.h"
#include "engine/engine_loop.h"
#include "engine/model_choice.h"
#include "engine/model_request.h"
#include "tensor/device.h"

namespace sluice {
namespace {

constexpr int kDefaultRunning = 128;
constexpr int kDefaultChunk = 512;
// On a GPU a step of a few rows costs as much as one of some hundred.
constexpr int kDefaultRunningOnGpu = 256;
constexpr int kDefaultChunkOnGpu = 8192;

DType compute_dtype(const std::string& wanted, DType stored) {
  if (wanted == "float32") return DType::kF32;
  if (wanted == "bfloat16") return DType::kBF16;
  if (wanted == "float16") return DType::kF16;
  return stored == DType::kBF16 || stored == DType::kF16 ? stored : DType::kF32;
}

SchedulePolicy policy_of(const std::string& name) {
  if (name == "lpm") return SchedulePolicy::kLpm;
  if (name == "priority") return SchedulePolicy::kPriority;
  require(name == "fcfs", "--schedule-policy is {}; allowed are fcfs, lpm, priority", name);
  return SchedulePolicy::kFcfs;
}

LoadFormat directory_format(const std::string& load_format) {
  return load_format == "safetensors" ? LoadFormat::kSafetensors
         : load_format == "pt"        ? LoadFormat::kPt
                                      : LoadFormat::kAuto;
}

// The memory nodes that workers and memory are dealt over. None on a GPU, whose host memory is no
// worker's, and with the Transformers plugin: torch's threads are made by the engine's, and would
// all be kept to the node of that.
NumaNodes numa_nodes(const Options& options, Device device, const ModelConfig& config) {
  const bool dealt =
      options.numa == "distribute" && device.kind == DeviceKind::kCpu && !config.fallback;
  return dealt ? usable_numa_nodes() : NumaNodes{};
}

// Where a caller of the engine did not do so before.
void isolate(const Options& options) {
  if (options.numa != "isolate") return;
  isolate_on_own_node();
  for (const int node : bound_memory_nodes())
    log_info("numa: node {} alone, with {} of its processors", node, usable_threads());
}

RunnerOptions runner_options(const Options& options, Device device,
                             const SchedulerOptions& scheduler, DType dtype, int context) {
  RunnerOptions out;
  out.device = device;
  out.deterministic = options.deterministic;
  out.dtype = dtype;
  if (options.quantization == "int8") out.quantization = ops::Format::kInt8;
  if (options.quantization == "int4") out.quantization = ops::Format::kInt4;
  out.quantization_group = options.quantization_group_size;
  out.keep_blocks = options.quantization == "auto" && dtype != DType::kF32;
  for (const DType kept : {DType::kF32, DType::kBF16, DType::kI8})
    if (options.kv_cache_dtype == dtype_name(kept)) out.kv_stored = kept;
  for (const DType kept : {DType::kBF16, DType::kF8E4M3})
    if (options.index_cache_dtype == dtype_name(kept)) out.index_stored = kept;
  out.attention.name = options.attention_backend;
  out.attention.prefill_name = options.prefill_attention_backend;
  out.attention.decode_name = options.decode_attention_backend;
  out.attention.device = device.kind;
  out.attention.sm = device_info(device).sm;
  out.attention.deterministic = options.deterministic;
  out.attention.mla_prefill =
      options.mla_prefill == "auto" ? MlaPrefill::kAuto : MlaPrefill::kAbsorb;
  out.steps_in_flight = scheduler.max_steps_in_flight;
  out.graphs = {.enabled = !options.disable_cuda_graph,
                .lazy = options.lazy_cuda_graphs,
                .sizes = options.cuda_graph_bs,
                .max_batch = options.cuda_graph_max_bs};
  out.num_threads = usable_threads(options.threads);
  out.max_running_requests = scheduler.max_running_requests;
  // Decode rows ride along with prefill tokens.
  const int prefill = scheduler.chunked_prefill_tokens > 0
                          ? scheduler.chunked_prefill_tokens
                          : std::max(context, scheduler.max_prefill_tokens);
  out.max_step_tokens = prefill + scheduler.max_running_requests;
  out.context_length = context;
  out.rope_by_length = options.rope_by_length;
  out.max_total_tokens = options.max_total_tokens;
  out.max_states = options.max_mamba_cache_size;
  out.state_ratio = options.mamba_full_memory_ratio;
  out.mem_fraction_static = options.mem_fraction_static;
  out.window_ratio = options.swa_full_tokens_ratio;
  return out;
}

SchedulerOptions scheduler_options(const Options& options, Device device, int context) {
  const bool gpu = device.kind != DeviceKind::kCpu;
  SchedulerOptions out;
  out.max_running_requests = options.max_running_requests > 0 ? options.max_running_requests
                             : gpu                            ? kDefaultRunningOnGpu
                                                              : kDefaultRunning;
  out.chunked_prefill_tokens = prefill_tokens_of_a_step(options, device);
  out.max_steps_in_flight = options.steps_in_flight > 0                ? options.steps_in_flight
                            : gpu && !options.disable_overlap_schedule ? 2
                                                                       : 1;
  out.max_prefill_tokens = std::min(out.max_prefill_tokens, context);
  out.max_queued_requests = options.max_queued_requests;
  out.max_queued_tokens = options.max_queued_tokens;
  out.policy = policy_of(options.schedule_policy);
  out.schedule_conservativeness = options.schedule_conservativeness;
  out.max_context = context;
  out.disable_radix_cache = options.disable_radix_cache;
  out.hash_steps = false;  // one rank has nobody to compare with
  return out;
}

std::vector<PageGroup> page_groups(const ModelRunner& runner) {
  std::vector<PageGroup> out;
  const std::vector<PageGroupSpec>& groups = runner.groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    PageGroup group = groups[g];
    group.num_pages = runner.memory_plan().pages[g];
    out.push_back(std::move(group));
  }
  return out;
}

}  // namespace

int prefill_tokens_of_a_step(const Options& options, Device device) {
  if (options.chunked_prefill_size != 0) return options.chunked_prefill_size;
  return device.kind == DeviceKind::kCpu ? kDefaultChunk : kDefaultChunkOnGpu;
}

std::unique_ptr<Engine> Engine::create(const Options& options, StopMatcherFactory stop_matchers,
                                       std::function<void(const std::string&, double)> progress,
                                       std::shared_ptr<Trace> trace) {
  using Clock = std::chrono::steady_clock;
  auto parts = std::make_unique<EngineParts>();
  parts->options = options;
  if (!trace && !options.trace.empty()) trace = std::make_shared<Trace>(options.trace);
  parts->trace = std::move(trace);
  parts->stop_matchers = std::move(stop_matchers);
  static constexpr double kSteps = 5;
  const StartupReport report = [&](const std::string& step, double milliseconds,
                                   const std::string& detail) {
    log_info("{}: {:.1f} ms, {}", step, milliseconds, detail);
    parts->ledger.entries.push_back({step, milliseconds, detail});
    if (parts->trace) {
      const auto now = Clock::now();
      parts->trace->span(TraceLane::kEngine, step,
                         now - std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double, std::milli>(milliseconds)),
                         now);
    }
    if (progress) progress(step, static_cast<double>(parts->ledger.entries.size()) / kSteps);
  };
  auto since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };

  isolate(options);
  // a missing GPU is said before anything is read
  const Device device = choose_device(options.device);
  auto start = Clock::now();
  const ResolvedModel model = obtain_model(model_request(options, options.load_format != "dummy"),
                                           HubEnvironment::of_process(options.download_dir));
  parts->directory = model.directory;
  report("resolve", since(start),
         model.repo_id.empty() ? "a directory" : model.repo_id + "@" + model.commit);

  start = Clock::now();
  parts->config = read_model_config(options, model.directory);
  parts->generation = load_generation_config(model.directory, parts->config);
  std::erase_if(parts->generation.eos_token_ids, [&](int id) {
    if (id >= 0 && id < parts->config.vocab_size) return false;
    log_warning(
        "eos_token_id {} is not in the vocabulary of {} tokens and will never come: it is ignored",
        id, parts->config.vocab_size);
    return true;
  });
  parts->dtype = compute_dtype(options.dtype, parts->config.dtype);
  parts->context_length = serving_context(options, parts->config);
  std::uint64_t seed =
      options.random_seed >= 0 ? static_cast<std::uint64_t>(options.random_seed) : 0;
  WeightSource source = options.load_format == "dummy"
                            ? WeightSource::dummy(seed, parts->config.initializer_range)
                            : WeightSource::checkpoint(
                                  model.directory, {.format = directory_format(options.load_format),
                                                    .quantization = parts->config.quantization});
  if (options.check_weights) {
    source.check_storages();
    source.check_finite();
  }
  report("read", since(start),
         fmt::format("{}, {} layers", parts->config.architecture, parts->config.num_layers));

  parts->scheduler = scheduler_options(options, device, parts->context_length);
  RunnerOptions wanted =
      runner_options(options, device, parts->scheduler, parts->dtype, parts->context_length);
  wanted.numa_nodes = numa_nodes(options, device, parts->config);
  auto rank = std::make_unique<Rank>(rank_options(wanted));
  std::unique_ptr<Model> weights = load_rank_model(*rank, wanted, parts->config, source, report);
  std::vector<std::unique_ptr<ModelRunner>> ranks;
  ranks.push_back(std::make_unique<ModelRunner>(wanted, parts->config, std::move(rank),
                                                std::move(weights), report));
  parts->scheduler.groups = page_groups(*ranks.front());
  return std::make_unique<EngineLoop>(std::move(parts),
                                      std::make_unique<Executor>(std::move(ranks)));
}

}  // namespace sluice
