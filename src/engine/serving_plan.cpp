#include "engine/serving_plan.h"

#include <algorithm>
#include <optional>

#include "config/quantization_names.h"
#include "engine/speculation_choice.h"
#include "kernels/types/fp4.h"
#include "runtime/expert_location.h"

namespace sluice {
namespace {

constexpr int kDefaultRunning = 128, kDefaultChunk = 512;
// On a GPU a step of a few rows costs as much as one of some hundred.
constexpr int kDefaultRunningOnGpu = 256;
constexpr int kDefaultChunkOnGpu = 8192;
// Rows of a step with drafts. On a GPU each is laid out as a decode row: more of them gain nothing.
constexpr int kDraftRows = 256;

// The first thing that cannot be served.
class Checks {
 public:
  template <class... Args>
  void require(bool served, std::string_view option, fmt::format_string<Args...> text,
               Args&&... args) {
    if (served || fault_) return;
    fault_ = Fault{400, "invalid_value", std::string(option),
                   fmt::format(text, std::forward<Args>(args)...)};
  }
  void fail(const Fault& fault) {
    if (!fault_) fault_ = fault;
  }
  const std::optional<Fault>& fault() const { return fault_; }

 private:
  std::optional<Fault> fault_;
};

std::optional<DType> dtype_named(const std::string& name, std::initializer_list<DType> allowed) {
  for (const DType dtype : allowed)
    if (name == dtype_name(dtype)) return dtype;
  return std::nullopt;
}

Numerics numerics_of(const Options& options, const ModelConfig& config, bool on_cpu) {
  const bool stored_half = config.dtype == DType::kBF16 || config.dtype == DType::kF16;
  const std::string how = means_stored(options.quantization) ? "auto" : options.quantization;
  Numerics out;
  const QuantizationConfig* stored = config.quantization ? &*config.quantization : nullptr;
  // Stored codes are multiplied with bfloat16, and most of their checkpoints are of float16.
  const bool becomes_bf16 =
      config.dtype == DType::kF16 && stored != nullptr && stored->has_codes() && how == "auto";
  out.compute = dtype_named(options.dtype, {DType::kF32, DType::kBF16, DType::kF16})
                    .value_or(becomes_bf16  ? DType::kBF16
                              : stored_half ? config.dtype
                                            : DType::kF32);
  if (how == "int8") out.quantization = ops::Format::kInt8;
  if (how == "int4") out.quantization = ops::Format::kInt4;
  out.quantization_group = options.quantization_group_size;
  out.keep_fp8 = (how == "auto" || how == "fp8") && out.compute == DType::kBF16;
  // Without a file, weights get the form that the checkpoint would have.
  const bool is_dummy = stored != nullptr && options.load_format == "dummy";
  const bool imagined = is_dummy && stored->is_fp8() && out.keep_fp8;
  if (imagined || (how == "fp8" && (stored == nullptr || !stored->is_fp8()))) {
    out.quantization = ops::Format::kFp8;
    out.quantization_group = on_cpu || (imagined && stored->block_columns == 128) ? 128 : 0;
  }
  out.fp8_fragments = on_cpu && (out.keep_fp8 || out.quantization == ops::Format::kFp8);
  const bool imagines_nvfp4 = is_dummy && stored->is_nvfp4() && out.compute == DType::kBF16;
  if (is_dummy && how == "auto" && (stored->is_integers() || imagines_nvfp4)) {
    out.quantization = imagines_nvfp4            ? ops::Format::kNvFp4
                       : stored->bits == 8       ? ops::Format::kInt8
                       : stored->method == "awq" ? ops::Format::kInt4Zero
                                                 : ops::Format::kInt4;
    out.quantization_group = imagines_nvfp4 ? ops::kNvGroup : 128;
    out.int8_rows = stored->int8_rows;
  }
  const bool rounds = how == "fp8" || (!on_cpu && (how == "int8" || how == "int4"));
  if (out.compute == DType::kBF16 && (rounds || (is_dummy && how == "auto")))
    out.experts_rounded_to = !rounds && stored->is_mxfp4() ? ops::Format::kMxFp4 : out.quantization;
  // On a CPU --quantization and GGUF blocks have tiles of their own.
  const bool stores_codes = stored != nullptr && stored->has_codes() && how == "auto";
  out.int_fragments = (!on_cpu || stores_codes) && out.compute == DType::kBF16 && how != "none" &&
                      out.quantization != ops::Format::kFp8;
  out.keep_blocks = how == "auto" && out.compute != DType::kF32 && (on_cpu || out.int_fragments);
  out.kv_stored =
      options.kv_cache_dtype == "fp8_e4m3"
          ? DType::kF8E4M3
          : dtype_named(options.kv_cache_dtype, {DType::kF32, DType::kBF16, DType::kI8});
  out.index_stored = dtype_named(options.index_cache_dtype, {DType::kBF16, DType::kF8E4M3});
  out.deterministic = options.deterministic;
  return out;
}

void check_numerics(Checks& checks, const Numerics& numerics, const ModelConfig& config,
                    bool on_cpu) {
  checks.require(!numerics.index_stored || config.indexer, "index-cache-dtype",
                 "--index-cache-dtype is for models that choose keys with an indexer "
                 "(DeepSeek-V3.2, GLM-5), and {} has none; leave it out",
                 config.architecture);
  if (config.fallback) return;  // the Transformers plugin says that it needs a CPU
  const bool fp8 = numerics.quantization == ops::Format::kFp8;
  checks.require(on_cpu || !numerics.quantization || fp8 || numerics.int_fragments, "quantization",
                 "--quantization int8 and int4 on a GPU multiply rows of bfloat16, and the "
                 "computation is {}; add --dtype bfloat16, or --device cpu",
                 dtype_name(numerics.compute));
  checks.require(!fp8 || numerics.gemm() == DType::kBF16, "quantization",
                 "--quantization fp8 multiplies rows of bfloat16, and the computation is {}; add "
                 "--dtype bfloat16",
                 dtype_name(numerics.compute));
  checks.require(on_cpu || numerics.kv_stored != DType::kI8, "kv-cache-dtype",
                 "--kv-cache-dtype int8 is for a CPU; give fp8_e4m3, auto, bfloat16 or float32, or "
                 "add --device cpu");
}

std::int64_t context_of(Checks& checks, const Options& options, const ModelConfig& config) {
  const std::int64_t most = config.max_position_embeddings;
  const std::int64_t wanted = options.context_length > 0 ? options.context_length : most;
  checks.require(wanted <= most || config.positions != PositionKind::kLearned, "context-length",
                 "--context-length is {}, and {} has learned embeddings for {} positions "
                 "(max_position_embeddings); ask for at most that, --allow-longer cannot help",
                 wanted, config.architecture, most);
  checks.require(wanted <= most || options.allow_longer, "context-length",
                 "--context-length is {}, and the model's max_position_embeddings is {}; ask for "
                 "at most that, or add --allow-longer",
                 wanted, most);
  return wanted;
}

SchedulePolicy policy_of(Checks& checks, const std::string& name) {
  if (name == "lpm") return SchedulePolicy::kLpm;
  if (name == "priority") return SchedulePolicy::kPriority;
  checks.require(name == "fcfs", "schedule-policy",
                 "--schedule-policy is {}; allowed are fcfs, lpm, priority", name);
  return SchedulePolicy::kFcfs;
}

// What stands against speculation is said by name.
SpeculationOptions speculation_of(Checks& checks, const Options& options, const ModelConfig& config,
                                  bool on_cpu) {
  Result<SpeculationOptions> chosen = choose_speculation(options);
  if (!chosen.ok()) {
    checks.fail(chosen.fault());
    return {};
  }
  const SpeculationOptions out = std::move(chosen).value();
  if (!out.is_on()) return out;
  const bool has_method = out.has_method();
  const std::string name =
      has_method ? fmt::format("--speculative-algorithm {}", draft_method_row(out.method).name)
                 : "--draft-forced-tokens";
  const std::string_view option = has_method ? "speculative-algorithm" : "draft-forced-tokens";
  const std::string_view undo = has_method ? "give NONE" : "leave it out";
  checks.require(!config.fallback, option,
                 "{} cannot serve {}, which the Transformers plugin computes; {}", name,
                 config.architecture, undo);
  if (out.method == DraftMethod::kNextn) {
    const std::string refusal = draft_layer_refusal(config);
    checks.require(refusal.empty(), option, "{} is refused: {}", name, refusal);
  }
  checks.require(options.dp_size == 1 || on_cpu, option,
                 "{} and --dp-size {} exclude each other on GPUs: groups of ranks replay graphs of "
                 "one size, and drafts give each group a size of its own; leave one out",
                 name, options.dp_size);
  checks.require(options.pp_size == 1 || (on_cpu && out.reads_text()), option,
                 "{} and --pp-size {} exclude each other here: stages draft with grammars, NGRAM "
                 "and SUFFIX, on a CPU; leave one out",
                 name, options.pp_size);
  const std::string no_trees = out.has_trees() ? tree_refusal(config.recurrent.has_value()) : "";
  checks.require(no_trees.empty(), "speculative-eagle-topk",
                 "--speculative-eagle-topk is {}, and {}", out.topk, no_trees);
  checks.require(!options.rope_by_length, option,
                 "{} and --rope-by-length exclude each other: rotations would follow the number of "
                 "drafts; leave one out",
                 name);
  checks.require(options.steps_in_flight <= 1 || options.num_ranks() == 1, option,
                 "{} needs every token before the next step of several ranks; {} steps in flight "
                 "were asked for",
                 name, options.steps_in_flight);
  return out;
}

SchedulerOptions scheduler_options(Checks& checks, const Options& options, Device device,
                                   std::int64_t context, const SpeculationOptions& speculation) {
  const bool gpu = device.kind != DeviceKind::kCpu;
  SchedulerOptions out;
  out.max_running_requests = options.max_running_requests > 0 ? options.max_running_requests
                             : gpu                            ? kDefaultRunningOnGpu
                                                              : kDefaultRunning;
  out.chunked_prefill_tokens = prefill_tokens_of_a_step(options, device);
  out.pipelined = options.pp_size > 1;
  // Where drafts are, steps are planned ahead while none pays; on one rank alone.
  const bool overlaps = (gpu || out.pipelined) && !options.disable_overlap_schedule &&
                        (!speculation.is_on() || options.num_ranks() == 1);
  out.max_steps_in_flight = options.steps_in_flight > 0 ? options.steps_in_flight
                            : overlaps                  ? std::max(2, options.pp_size)
                                                        : 1;
  checks.require(out.pipelined || options.pp_max_micro_batch_size == 0, "pp-max-micro-batch-size",
                 "--pp-max-micro-batch-size is {}, and one stage has no micro-batches; leave it "
                 "out, or add --pp-size",
                 options.pp_max_micro_batch_size);
  out.max_micro_batch = options.pp_max_micro_batch_size;
  out.max_context = static_cast<int>(context);
  out.max_prefill_tokens = options.max_prefill_tokens > 0
                               ? options.max_prefill_tokens
                               : std::min(out.max_prefill_tokens, out.max_context);
  out.max_queued_requests = options.max_queued_requests;
  out.max_queued_tokens = options.max_queued_tokens;
  out.policy = policy_of(checks, options.schedule_policy);
  out.schedule_conservativeness = options.schedule_conservativeness;
  out.disable_radix_cache = options.disable_radix_cache;
  out.max_drafts = speculation.max_drafts;
  // On a CPU forced tokens have the same limit, for which memory is taken.
  const bool is_limited =
      gpu || options.drafts_as_rows || !speculation.has_method() || speculation.has_trees();
  if (is_limited && speculation.is_on()) {
    const int rows = std::max(1 + out.max_drafts, speculation.topk);
    out.max_draft_rows =
        std::max(out.max_running_requests, std::min(kDraftRows, out.max_running_requests * rows));
  }
  out.draft_branches = speculation.topk;
  out.make_drafter = options.synthetic_acceptance.empty() ? make_drafter(speculation)
                                                          : make_synthetic_drafter(speculation);
  out.draft_slots = speculation.slots_behind();
  out.hash_steps = options.num_ranks() > 1;  // one rank has nobody to compare with
  return out;
}

// Decode rows and their drafts ride along with prefill tokens. Trees are laid out as rows.
Limits limits_of(const SchedulerOptions& scheduler, bool on_cpu, bool as_rows) {
  const bool drafts_as_rows = as_rows || scheduler.draft_branches > 1;
  const int prefill = scheduler.chunked_prefill_tokens > 0
                          ? scheduler.chunked_prefill_tokens
                          : std::max(scheduler.max_context, scheduler.max_prefill_tokens);
  const bool has_few_rows = scheduler.max_draft_rows > 0 && !as_rows;
  const std::int64_t decode_rows =
      has_few_rows ? scheduler.max_draft_rows
                   : std::int64_t{scheduler.max_running_requests} * (1 + scheduler.max_drafts);
  return {.max_running_requests = scheduler.max_running_requests,
          .max_step_tokens = prefill + decode_rows,
          // A stage on a CPU computes one step after the other, however many wait for it.
          .steps_in_flight = scheduler.pipelined
                                 ? std::min(scheduler.max_steps_in_flight, on_cpu ? 1 : 2)
                                 : scheduler.max_steps_in_flight,
          .max_draft_rows = drafts_as_rows ? scheduler.max_draft_rows : 0,
          .max_sequence_drafts = scheduler.max_drafts};
}

KvPolicy kv_policy(const Options& options, Device device) {
  const bool by_device = options.mem_fraction_static == 0 && device.kind == DeviceKind::kCuda;
  return {.mem_fraction_static = by_device ? kGpuFraction : options.mem_fraction_static,
          .max_total_tokens = options.max_total_tokens,
          .max_states = options.max_mamba_cache_size,
          .state_ratio = options.mamba_full_memory_ratio,
          .window_ratio = options.swa_full_tokens_ratio};
}

// Of several nodes each rank has an equal number, where they divide; else all ranks have all.
NumaNodes nodes_of_rank(const NumaNodes& nodes, int rank, int num_ranks) {
  const std::size_t size = static_cast<std::size_t>(num_ranks), each = nodes.size() / size;
  if (num_ranks == 1 || each == 0 || nodes.size() % size != 0) return nodes;
  const auto first = nodes.begin() + static_cast<std::ptrdiff_t>(each * static_cast<size_t>(rank));
  return {first, first + static_cast<std::ptrdiff_t>(each)};
}

// Threads are dealt to the ranks of the machine, of which there are as many on each node. Workers
// and memory are dealt over no nodes on a GPU, whose host memory is no worker's, and with the
// Transformers plugin: torch's threads are made by the engine's, and would all be kept to the node
// of that.
Placement placement_of(const Options& options, const ModelConfig& config, const Machine& machine) {
  const bool on_cpu = machine.device.kind == DeviceKind::kCpu;
  const int here = std::max(1, options.ranks_of_node());
  const bool dealt = options.numa == "distribute" && on_cpu && !config.fallback;
  const int threads =
      options.threads > 0 ? std::min(options.threads, machine.num_threads) : machine.num_threads;
  return {.device = machine.device,
          .num_threads = std::max(1, threads / here),
          .numa_nodes =
              dealt ? nodes_of_rank(machine.numa_nodes, machine.rank % here, here) : NumaNodes{},
          .num_sharers = on_cpu ? here : 1};
}

AttentionOptions attention_options(const Options& options, const Machine& machine) {
  AttentionOptions out;
  out.name = options.attention_backend;
  out.prefill_name = options.prefill_attention_backend;
  out.decode_name = options.decode_attention_backend;
  out.device = machine.device.kind;
  out.sm = machine.sm;
  out.deterministic = options.deterministic;
  out.mla_prefill = options.mla_prefill == "auto" ? MlaPrefill::kAuto : MlaPrefill::kAbsorb;
  return out;
}

RankGroups groups_wanted(const Options& options, int expert_groups, int dp_size) {
  return {.expert_groups = expert_groups,
          .dp_size = dp_size,
          .whole_experts = options.enable_expert_parallel,
          .num_stages = options.pp_size,
          .num_nodes = options.num_nodes()};
}

// Groups of ranks that experts are dealt over; 1 where that is refused.
int expert_groups_of(Checks& checks, const Options& options, const ModelConfig& config) {
  const bool by_flag = options.enable_expert_parallel;
  if (!by_flag && options.ep_size == 1) return 1;
  const int groups = by_flag ? options.tp_size : options.ep_size;
  checks.require(options.ep_size == 1 || options.ep_size == groups, "ep-size",
                 "--enable-expert-parallel means --ep-size {}, the number of ranks, and --ep-size "
                 "is {}; leave one out",
                 groups, options.ep_size);
  const std::string refusal = expert_groups_refusal(
      config, options.tp_size, groups_wanted(options, groups, options.dp_size));
  checks.require(refusal.empty(), "ep-size", "{} is refused: {}",
                 by_flag ? "--enable-expert-parallel" : fmt::format("--ep-size {}", groups),
                 refusal);
  return refusal.empty() ? groups : 1;
}

// Experts with places by a map, all of them trivial yet; sets the plan's maps and settings.
void place_experts(Checks& checks, const Options& options, const ModelConfig& config, bool on_cpu,
                   ServingPlan& plan) {
  const bool has_map = options.init_expert_location != "trivial";
  const int groups = plan.runner.model.ep_size, redundant = options.ep_num_redundant_experts;
  if (redundant == 0 && !has_map && !options.enable_eplb &&
      !options.enable_expert_distribution_metrics)
    return;
  const std::string_view option = options.enable_eplb ? "enable-eplb"
                                  : redundant > 0     ? "ep-num-redundant-experts"
                                  : has_map           ? "init-expert-location"
                                                      : "enable-expert-distribution-metrics";
  const std::string refusal = expert_places_refusal(
      config, {.groups = groups, .redundant = redundant, .moves = options.enable_eplb});
  checks.require(refusal.empty(), option, "--{} is refused: {}", option, refusal);
  checks.require(on_cpu, option,
                 "--{} is refused on GPUs: experts have one place each there; leave it out, or "
                 "give --device cpu",
                 option);
  checks.require(options.pp_size == 1, option,
                 "--{} and --pp-size {} exclude each other; leave one out", option,
                 options.pp_size);
  checks.require(options.enable_eplb || options.eplb_min_rebalancing_utilization_threshold == 1,
                 "eplb-min-rebalancing-utilization-threshold",
                 "--eplb-min-rebalancing-utilization-threshold needs --enable-eplb");
  if (checks.fault()) return;
  const int experts = config.moe->num_experts;
  int num_layers = 0;
  for (int i = 0; i < config.num_layers; ++i) num_layers += config.layer(i).is_moe ? 1 : 0;
  plan.runner.model.expert_maps = {
      .layers = std::vector<ExpertMap>(static_cast<std::size_t>(num_layers),
                                       trivial_map(experts, experts + redundant)),
      .moves = options.enable_eplb};
  if (!options.enable_eplb) return;
  plan.balancer = {.num_iterations = options.eplb_rebalance_num_iterations,
                   .layers_per_chunk = std::max(1, options.eplb_rebalance_layers_per_chunk),
                   .min_utilization = options.eplb_min_rebalancing_utilization_threshold};
}

// Groups of ranks with attention of their own; 1 where that is refused.
int dp_groups_of(Checks& checks, const Options& options, const ModelConfig& config,
                 int expert_groups, bool on_cpu) {
  checks.require(options.dp_size > 1 || !options.enable_dp_attention, "enable-dp-attention",
                 "--enable-dp-attention needs groups of ranks; add --dp-size");
  if (options.dp_size == 1) return 1;
  checks.require(options.enable_dp_attention, "dp-size",
                 "--dp-size {} gives groups of the ranks of --tp-size attention of their own, with "
                 "--enable-dp-attention; whole replicas are {} servers behind a router",
                 options.dp_size, options.dp_size);
  checks.require(
      on_cpu || !options.lazy_cuda_graphs, "lazy-cuda-graphs",
      "--lazy-cuda-graphs and --dp-size {} exclude each other: all groups record a graph "
      "together; leave one out",
      options.dp_size);
  checks.require(options.pp_size == 1, "dp-size",
                 "--dp-size {} and --pp-size {} exclude each other; leave one out", options.dp_size,
                 options.pp_size);
  const std::string refusal =
      dp_refusal(config, options.tp_size, groups_wanted(options, expert_groups, options.dp_size));
  checks.require(refusal.empty(), "dp-size", "--dp-size {} is refused: {}", options.dp_size,
                 refusal);
  return refusal.empty() ? options.dp_size : 1;
}

Loading loading_of(const Options& options, const ModelConfig& config) {
  return {.format = options.load_format == "safetensors" ? LoadFormat::kSafetensors
                    : options.load_format == "pt"        ? LoadFormat::kPt
                                                         : LoadFormat::kAuto,
          .dummy = options.load_format == "dummy",
          .seed = fixed_seed(options).value_or(0),
          .check_weights = options.check_weights,
          .keeps_stored = keeps_stored(options.quantization, config.quantization)};
}

}  // namespace

NodesWanted nodes_wanted(const Options& options, bool on_cpu) {
  return {.num_nodes = options.num_nodes(),
          .node = options.node(),
          .num_ranks = options.num_ranks(),
          .has_address = !options.dist_init_addr.empty(),
          .has_key = !options.dist_key_file.empty(),
          .on_cpu = on_cpu};
}

int prefill_tokens_of_a_step(const Options& options, Device device) {
  const int chunk = options.chunked_prefill_size != 0 ? options.chunked_prefill_size
                    : device.kind == DeviceKind::kCpu ? kDefaultChunk
                                                      : kDefaultChunkOnGpu;
  const bool bounded = chunk > 0 && options.max_prefill_tokens > 0;
  return bounded ? std::min(chunk, options.max_prefill_tokens) : chunk;
}

Result<ServingPlan> resolve(const Options& options, const ModelConfig& config,
                            const Machine& machine) {
  Checks checks;
  const bool on_cpu = machine.device.kind == DeviceKind::kCpu;
  ServingPlan plan;
  plan.num_nodes = options.num_nodes();
  plan.num_ranks = options.num_ranks();
  const std::string unmet = nodes_refusal(nodes_wanted(options, on_cpu));
  checks.require(unmet.empty(), "nnodes", "--nnodes {} is refused: {}", plan.num_nodes, unmet);
  plan.num_stages = options.pp_size;
  plan.stage = options.pp_size - 1 - machine.rank / options.tp_size;
  plan.peer_sums = !options.disable_custom_all_reduce;
  const int expert_groups = expert_groups_of(checks, options, config);
  plan.dp_size = dp_groups_of(checks, options, config, expert_groups, on_cpu);
  const std::string unshared =
      sharing_refusal(config, options.tp_size, groups_wanted(options, expert_groups, plan.dp_size));
  checks.require(unshared.empty(), "tp-size", "--tp-size {} is refused: {}", options.tp_size,
                 unshared);
  const std::string unstaged = stage_refusal(config, options.pp_size, options.tp_size);
  checks.require(unstaged.empty(), "pp-size", "--pp-size {} is refused: {}", options.pp_size,
                 unstaged);
  checks.require(options.tp_size <= 2 || on_cpu || !options.deterministic || plan.peer_sums,
                 "disable-custom-all-reduce",
                 "--tp-size {} and --deterministic need the kernels that sum over GPUs: NCCL sums "
                 "more than two ranks in an order that depends on the batch; leave out "
                 "--disable-custom-all-reduce, or give --tp-size 2",
                 options.tp_size);
  plan.runner.placement = placement_of(options, config, machine);
  plan.runner.attention = attention_options(options, machine);
  plan.runner.model = {.numerics = numerics_of(options, config, on_cpu),
                       .mla_expandable = plan.runner.attention.mla_prefill == MlaPrefill::kAuto,
                       .context_length = context_of(checks, options, config),
                       .rope_by_length = options.rope_by_length,
                       .ep_size = expert_groups};
  place_experts(checks, options, config, on_cpu, plan);
  plan.outlives_ranks = options.elastic_ep_backend != "none";
  const bool has_places = !plan.runner.model.expert_maps.layers.empty();
  const std::string all_end = elastic_refusal(config, {plan.num_ranks, expert_groups, plan.dp_size,
                                                       has_places, on_cpu && plan.num_nodes == 1});
  checks.require(!plan.outlives_ranks || all_end.empty(), "elastic-ep-backend", "{}", all_end);
  if (plan.dp_size > 1)
    plan.runner.model.feed_forward_ranks = RankShare{machine.rank, options.tp_size};
  const std::string misnamed =
      refusal_of_name(options.quantization, config.quantization,
                      options.load_format == "gguf" || options.model.ends_with(".gguf"));
  checks.require(misnamed.empty(), "quantization", "{}", misnamed);
  const bool has_groups = options.quantization == "int8" || options.quantization == "int4";
  checks.require(has_groups || !was_given(options, "quantization-group-size"),
                 "quantization-group-size",
                 "--quantization-group-size is {}, and --quantization {} rounds to no groups of "
                 "integers; give --quantization int8 or int4, or leave the size out",
                 options.quantization_group_size, options.quantization);
  check_numerics(checks, plan.numerics(), config, on_cpu);
  plan.speculation = speculation_of(checks, options, config, on_cpu);
  if (!plan.speculation.reads_text()) plan.runner.max_drafts = plan.speculation.max_drafts;
  plan.runner.pads_draft_rows = on_cpu && options.drafts_as_rows;
  plan.runner.draft_topk = plan.speculation.topk;
  plan.runner.draft_steps = plan.speculation.steps;
  plan.runner.model.draft_layer = plan.speculation.method == DraftMethod::kNextn;
  plan.runner.synthetic_acceptance = options.synthetic_acceptance;
  plan.runner.replayed_tokens = options.replayed_tokens;
  plan.scheduler =
      scheduler_options(checks, options, machine.device, plan.context_length(), plan.speculation);
  if (options.pp_size > 1 && unstaged.empty())
    plan.runner.model.layers = layers_of_stage(config.num_layers, plan.stage, options.pp_size);
  plan.scheduler.dp_size = plan.dp_size;
  plan.runner.limits = limits_of(plan.scheduler, on_cpu, !on_cpu || options.drafts_as_rows);
  plan.runner.kv = kv_policy(options, machine.device);
  plan.runner.graphs = {.enabled = !options.disable_cuda_graph,
                        .lazy = options.lazy_cuda_graphs,
                        .sizes = options.cuda_graph_bs,
                        .max_batch = options.cuda_graph_max_bs};
  plan.loading = loading_of(options, config);
  if (checks.fault()) return *checks.fault();
  return plan;
}

ServingPlan resolve_or_throw(const Options& options, const ModelConfig& config,
                             const Machine& machine) {
  Result<ServingPlan> plan = resolve(options, config, machine);
  if (!plan) fail(ErrorKind::kBadInput, "{}", plan.fault().message);
  ModelOptions& model = plan.value().runner.model;
  place_by_location(options.init_expert_location, config, model.ep_size, model.expert_maps);
  return std::move(plan).value();
}

}  // namespace sluice
