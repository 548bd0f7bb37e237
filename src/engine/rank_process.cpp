#include "engine/rank_process.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <optional>

#include "base/build.h"
#include "base/byte_stream.h"
#include "base/hash.h"
#include "base/log.h"
#include "checkpoint/files_digest.h"
#include "engine/draft_choice.h"
#include "engine/model_choice.h"
#include "runtime/agreement.h"

namespace sluice {
namespace {

// What a rank is told first.
struct Hello {
  int rank = 0;
  ModelDirectories directories;
  Options options;  // with the fields that are no options of the command line
};

// Options as names and texts, as a command line has them. What the engine's process does alone
// stays there: secrets, traces, logs of its progress.
void write_hello(const Options& options, const ModelDirectories& directories, int rank,
                 ByteWriter& out) {
  out.text(kVersion);
  out.value(std::int32_t{rank});
  out.value(std::int32_t{options.steps_in_flight});
  out.value(std::uint8_t{options.drafts_as_rows});
  out.list(options.synthetic_acceptance);
  out.list(options.replayed_tokens);
  out.text(directories.model);
  out.text(directories.draft);
  const std::vector<GivenOption> given = given_options(options);
  out.value(std::uint64_t{given.size()});
  for (const GivenOption& one : given) {
    out.text(one.row->name);
    out.text(one.text);
  }
}

Hello read_hello(const Message& message) {
  check(message.kind == static_cast<std::uint32_t>(RankMessage::kHello),
        "the first message to a rank is of kind {}", message.kind);
  ByteReader in(message.bytes);
  const std::string version = in.text();
  require(version == kVersion, "the engine is version {}, and a rank is version {}", version,
          kVersion);
  Hello hello;
  hello.rank = in.value<std::int32_t>();
  hello.options.steps_in_flight = in.value<std::int32_t>();
  hello.options.drafts_as_rows = in.flag();
  hello.options.synthetic_acceptance = in.list<double>();
  hello.options.replayed_tokens = in.list<std::int32_t>();
  hello.directories.model = in.text();
  hello.directories.draft = in.text();
  set_log_level(LogLevel::kError);  // the engine has said all that there is to say about options
  for (std::size_t left = in.count(2 * sizeof(std::uint64_t)); left > 0; --left) {
    const std::string name = in.text();
    set_option(hello.options, name, in.text());
  }
  in.expect_end();
  hello.options.trace.clear();
  return hello;
}

// Options that each node has for itself at their defaults. Those of the server are of no meaning to
// ranks, too; their groups say so.
Options shared_options(const Options& options) {
  const Options plain;
  Options shared = options;
  for (const auto field :
       {&Options::model, &Options::tokenizer, &Options::tokenizer_revision, &Options::download_dir,
        &Options::device, &Options::dist_init_addr, &Options::dist_key_file, &Options::numa,
        &Options::log_format, &Options::trace})
    shared.*field = plain.*field;
  for (const auto field : {&Options::nnodes, &Options::node_rank, &Options::threads,
                           &Options::base_gpu_id, &Options::decode_log_interval})
    shared.*field = plain.*field;
  for (const auto field :
       {&Options::dist_timeout_s, &Options::watchdog_timeout_s, &Options::drain_timeout_s})
    shared.*field = plain.*field;
  shared.served_model_names.clear();
  shared.log_level = plain.log_level;
  return shared;
}

// How long a rank looks for the others before it sleeps: not at all where threads outnumber
// processors. What joins several hosts are a thread that sends, and one or more that receive.
int spin_us(const ServingPlan& plan, const Machine& machine) {
  const int num_ranks = plan.num_ranks / plan.num_nodes;
  const int threads = plan.runner.placement.num_threads * num_ranks + (plan.num_nodes > 1 ? 2 : 0);
  const bool all_run = threads <= machine.num_threads;
  return all_run ? SharedMemoryCommunicator::kSpinUs : 0;
}

void serve_steps(const Hello& hello, SharedRegion& region, MessageSocket& socket) {
  const Options& options = hello.options;
  const std::string& directory = hello.directories.model;
  set_log_level(std::max(options.log_level, LogLevel::kWarning));
  const Machine machine = read_machine(serving_device(options, hello.rank), hello.rank);
  const ModelConfig config = read_model_config(options, directory);
  ServingPlan plan = resolve_or_throw(options, config, machine);
  plan.speculation.draft_model = hello.directories.draft;
  const WeightSource source = open_weights(plan, config, directory);
  plan.runner.draft = read_draft(options, plan, config, directory);
  limit_drafts(plan);
  RankCommunicators communicators(region, hello.rank, machine, plan);
  require_same_model(communicators.all_ranks(), config, source, plan, directory);
  if (plan.outlives_ranks) communicators.share_experts(kRankExpertsFd);
  plan.runner.model.shared_experts = communicators.shared_experts();
  const RunnerOptions& wanted = plan.runner;
  const StartupReport quiet = [](const std::string&, double, const std::string&) {};
  auto rank = std::make_unique<Rank>(wanted.placement, wanted.model.numerics.deterministic,
                                     communicators.sharers());
  communicators.bind(rank->stream());
  std::unique_ptr<Model> model = load_rank_model(*rank, wanted, config, source, quiet);
  if (plan.outlives_ranks) communicators.shared_experts()->seal();
  ModelRunner runner(wanted, config, std::move(rank), std::move(model), quiet,
                     communicators.links());
  run_steps(
      socket, region,
      {.rank = hello.rank,
       .depth = wanted.limits.steps_in_flight,
       .group = plan.dp_size > 1 ? hello.rank / plan.num_sharers() : 0,
       .sends_results = plan.dp_size > 1 && hello.rank % plan.num_sharers() == 0,
       .drop = [&](std::uint64_t lost,
                   std::span<const std::uint8_t> owners) { communicators.drop(lost, owners); }},
      runner);
}

}  // namespace

std::unique_ptr<RankProcesses> start_own_ranks(const Options& options,
                                               const ModelDirectories& directories,
                                               RankEntry entry) {
  if (!entry) entry = run_program({"/proc/self/exe", std::string(kRankVerb)});
  const NodeLayout layout = layout_of(options);
  const int first = layout.first_rank(options.node()), count = layout.ranks_of_node();
  auto processes =
      std::make_unique<RankProcesses>(layout.num_ranks, first, count, std::move(entry));
  for (int rank = std::max(1, first); rank < first + count; ++rank) {
    ByteWriter hello;
    write_hello(options, directories, rank, hello);
    // Where a rank has ended, what looks after it says so.
    (void)processes->socket(rank).send(static_cast<std::uint32_t>(RankMessage::kHello),
                                       hello.bytes());
  }
  return processes;
}

std::unique_ptr<RemoteRanks> start_ranks(const Options& options,
                                         const ModelDirectories& directories, RankEntry entry,
                                         std::unique_ptr<NodeLobby> lobby) {
  std::vector<JoinedNode> nodes;
  if (lobby) nodes = lobby->wait();
  auto ranks = std::make_unique<RemoteRanks>(
      start_own_ranks(options, directories, std::move(entry)), options.tp_size, options.dp_size);
  if (lobby)
    ranks->span_hosts(
        std::make_unique<HostBridge>(ranks->processes(), layout_of(options), 0, std::move(nodes)));
  return ranks;
}

void require_nodes(const Options& options) {
  const bool on_cpu = serving_device(options).kind == DeviceKind::kCpu;
  const std::string refusal = nodes_refusal(nodes_wanted(options, on_cpu));
  require(refusal.empty(), "--nnodes {} is refused: {}", options.num_nodes(), refusal);
}

std::unique_ptr<NodeLobby> open_lobby(const Options& options) {
  require_nodes(options);
  if (options.num_nodes() == 1) return nullptr;
  return std::make_unique<NodeLobby>(HostAddress::parse(options.dist_init_addr),
                                     NodeKey::read(options.dist_key_file), launch_of(options),
                                     std::chrono::duration<double>(options.dist_timeout_s));
}

NodeLayout layout_of(const Options& options) {
  return {.num_ranks = options.num_ranks(),
          .num_nodes = options.num_nodes(),
          .num_sharers = options.tp_size / options.dp_size};
}

NodeLaunch launch_of(const Options& options) {
  NodeLaunch launch{.num_nodes = options.num_nodes(), .node = options.node()};
  launch.properties = {{"version", std::string(kVersion)},
                       {"instruction set", std::string(cpu_isa_name(detect_cpu_isa()))}};
  for (const GivenOption& one : given_options(shared_options(options)))
    if (one.row->group != "Server" && one.row->group != "Limits")
      launch.properties.emplace_back(fmt::format("--{}", one.row->name), one.text);
  return launch;
}

int run_rank() {
  std::optional<SharedRegion> region;
  std::string name = "a rank";
  try {
    region.emplace(SharedRegion::attach(kRankRegionFd));
    MessageSocket socket(kRankSocketFd);
    Message message;
    if (!socket.receive(message)) return 0;
    const Hello hello = read_hello(message);
    require(hello.rank > 0 && hello.rank < region->size(), "rank {} of {}", hello.rank,
            region->size());
    name = fmt::format("rank {}", hello.rank);
    const RankGuard guard(*region, hello.rank);
    serve_steps(hello, *region, socket);
    return 0;
  } catch (const Error& error) {
    // A failure that another rank has said is in the region already.
    if (region) region->fail(error.kind(), fmt::format("{}: {}", name, error.what()));
    if (!region)
      fmt::print(stderr, "error: {} (the engine starts its ranks itself)\n", error.what());
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    if (region) region->fail(ErrorKind::kNoResources, name + ": out of memory");
    return exit_code(ErrorKind::kNoResources);
  } catch (const std::exception& error) {
    if (region) region->fail(ErrorKind::kFatal, fmt::format("{}: {}", name, error.what()));
    return exit_code(ErrorKind::kFatal);
  }
}

WeightSource open_weights(const ServingPlan& plan, const ModelConfig& config,
                          const std::string& directory) {
  const Loading& loading = plan.loading;
  WeightSource source =
      loading.dummy ? WeightSource::dummy(loading.seed, config.initializer_range,
                                          loading.keeps_stored ? config.quantization : std::nullopt)
                    : WeightSource::checkpoint(directory, {.format = loading.format,
                                                           .quantization = config.quantization});
  if (loading.check_weights) {
    source.check_storages();
    source.check_finite();
  }
  return source;
}

RankCommunicators::RankCommunicators(SharedRegion& region, int rank, const Machine& machine,
                                     const ServingPlan& plan)
    : host_(region, rank, spin_us(plan, machine)),
      num_sharers_(plan.num_sharers()),
      dp_size_(plan.dp_size) {
  const int spin = spin_us(plan, machine);
  if (num_sharers_ > 1 && num_sharers_ < region.size())
    stage_host_ = std::make_unique<SharedMemoryCommunicator>(
        region, RankGroup{rank / num_sharers_ * num_sharers_, num_sharers_}, rank, spin);
  if (machine.device.kind == DeviceKind::kCuda) connect_gpus(machine, plan);
  if (plan.num_stages > 1) link_stages(region, machine, plan, spin);
}

RankCommunicators::GpuGroup::GpuGroup(SharedMemoryCommunicator& host, Device device,
                                      const ServingPlan& plan)
    : nccl(host, device) {
  if (!plan.peer_sums) return;
  const bool is_bf16 = plan.numerics().compute == DType::kBF16;
  peers.emplace(host, nccl, device,
                PeerSumOptions{.wire = is_bf16 ? DType::kBF16 : DType::kF32,
                               .any_length = plan.numerics().deterministic});
  const std::string& refusal = peers->refusal();
  if (refusal.empty()) return;
  if (plan.numerics().deterministic && host.size() > 2)
    fail(ErrorKind::kNoDevice, "--deterministic with {} GPUs needs kernels that sum, and {}",
         host.size(), refusal);
  if (host.rank() == 0) log_warning("sums over ranks: NCCL, since {}", refusal);
}

void RankCommunicators::GpuGroup::bind(const Stream& stream) {
  peers ? peers->bind(stream) : nccl.bind(stream);
}

void RankCommunicators::connect_gpus(const Machine& machine, const ServingPlan& plan) {
  const auto group = [&](SharedMemoryCommunicator& host) {
    return std::make_unique<GpuGroup>(host, machine.device, plan);
  };
  if (dp_size_ > 1) all_gpus_ = group(host_);
  if (num_sharers_ > 1) sharer_gpus_ = group(stage_host_ ? *stage_host_ : host_);
}

void RankCommunicators::link_stages(SharedRegion& region, const Machine& machine,
                                    const ServingPlan& plan, int spin_us) {
  const int rank = host_.rank();
  if (machine.device.kind == DeviceKind::kCuda) {
    link_memory_.emplace(host_, PeerLink::memory_bytes(), machine.device);
    if (!link_memory_->refusal().empty())
      fail(ErrorKind::kNoDevice,
           "--pp-size {} needs GPUs that reach each other's memory: {}; give --tp-size {}",
           plan.num_stages, link_memory_->refusal(), host_.size());
  }
  const auto link = [&](int from, int to) -> std::unique_ptr<StageLink> {
    if (!link_memory_) return std::make_unique<SharedMemoryLink>(region, from, to, spin_us);
    auto made = std::make_unique<PeerLink>(*link_memory_, rank, from == rank ? to : from);
    peer_links_.push_back(made.get());
    return made;
  };
  if (plan.stage > 0) previous_ = link(rank + num_sharers_, rank);
  if (plan.stage + 1 < plan.num_stages) next_ = link(rank, rank - num_sharers_);
}

Communicator* RankCommunicators::sharers() {
  if (num_sharers_ == 1) return nullptr;
  if (sharer_gpus_) return &sharer_gpus_->communicator();
  return stage_host_ ? stage_host_.get() : &host_;
}

RankLinks RankCommunicators::links() {
  RankLinks links{.all_ranks = &host_, .previous = previous_.get(), .next = next_.get()};
  if (dp_size_ > 1)
    links.dp = {.all_ranks = all_gpus_ ? &all_gpus_->communicator() : &host_,
                .rows = std::vector<std::int64_t>(static_cast<std::size_t>(dp_size_)),
                .own = host_.rank() / num_sharers_};
  return previous_ || next_ || dp_size_ > 1 ? links : RankLinks{};
}

void RankCommunicators::share_experts(int fd) {
  experts_ = std::make_unique<SharedExperts>(fd, host_.rank(), host_.size());
}

void RankCommunicators::drop(std::uint64_t lost, std::span<const std::uint8_t> owners) {
  check(experts_ != nullptr, "ranks are dropped whose experts nobody else has");
  host_.drop(lost);
  experts_->set_owners(owners);
}

void RankCommunicators::bind(const Stream& stream) {
  for (PeerLink* link : peer_links_) link->bind(stream);
  if (all_gpus_) all_gpus_->bind(stream);
  if (sharer_gpus_) sharer_gpus_->bind(stream);
}

void require_same_model(Communicator& communicator, const ModelConfig& config,
                        const WeightSource& source, const ServingPlan& plan,
                        const std::string& directory) {
  const int of_node = plan.num_ranks / plan.num_nodes;
  std::uint64_t hash = hash_bytes(config.architecture);
  for (const int number : {config.num_layers, config.hidden_size, config.vocab_size,
                           config.num_heads, config.num_kv_heads, config.intermediate_size})
    hash = hash_combine(hash, static_cast<std::uint64_t>(number));
  require_agreement(communicator, "configuration", hash, of_node);
  const auto hash_of = [](const WeightSource& weights) {
    std::uint64_t names = weights.total_bytes();
    for (const std::string& name : weights.names()) names = hash_bytes(name, names);
    return names;
  };
  require_agreement(communicator, "checkpoint", hash_of(source), of_node);
  if (const DraftSource* draft = plan.runner.draft.get()) {
    require_agreement(communicator, "draft's checkpoint", hash_of(draft->weights), of_node);
    if (plan.num_nodes > 1 && !plan.loading.dummy)
      require_agreement(communicator, "draft's files",
                        digest_of_files(plan.speculation.draft_model, LoadFormat::kAuto), of_node);
  }
  if (plan.num_nodes > 1 && !plan.loading.dummy)
    require_agreement(communicator, "model files", digest_of_files(directory, plan.loading.format),
                      of_node);
  const Limits& limits = plan.runner.limits;
  hash = hash_combine(static_cast<std::uint64_t>(limits.max_running_requests),
                      static_cast<std::uint64_t>(limits.max_step_tokens));
  hash = hash_combine(hash, static_cast<std::uint64_t>(plan.context_length()));
  hash = hash_combine(hash, static_cast<std::uint64_t>(plan.numerics().compute));
  for (const ExpertMap& map : plan.runner.model.expert_maps.layers)
    hash = hash_span(std::span<const std::int32_t>(map), hash);
  require_agreement(communicator, "options", hash, of_node);
}

}  // namespace sluice
