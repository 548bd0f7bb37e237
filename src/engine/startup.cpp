// Engine::create: from options to a running engine, step by step, each timed in the ledger.
#include <fcntl.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "base/log.h"
#include "base/numa.h"
#include "checkpoint/load_config.h"
#include "engine/draft_choice.h"
#include "engine/engine_loop.h"
#include "engine/model_choice.h"
#include "engine/model_request.h"
#include "engine/rank_process.h"
#include "runtime/draft_costs_meter.h"
#include "scheduler/draft_controller.h"

namespace sluice {
namespace {

// Where a caller of the engine did not do so before.
void isolate(const Options& options) {
  if (options.numa != "isolate") return;
  isolate_on_own_node();
  for (const int node : bound_memory_nodes())
    log_info("numa: node {} alone, with {} of its processors", node, usable_threads());
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

// A sequence as long as the context must find room in the KV cache. A context that was asked for is
// refused where it does not fit; that of the model becomes what fits.
void fit_context(const Options& options, ServingPlan& plan) {
  const std::int64_t wanted = plan.context_length();
  std::int64_t fits = wanted;
  for (const PageGroup& group : plan.scheduler.groups)
    if (group.retention == Retention::kFull) fits = std::min(fits, group.num_pages * kPageSize);
  if (fits == wanted) return;
  if (options.context_length > 0)
    fail(ErrorKind::kNoResources,
         "--context-length is {}, and the KV cache holds {} tokens, less than one sequence of that "
         "length; lower --context-length to {}, or give the cache more: --max-total-tokens {}, a "
         "larger --mem-fraction-static or a smaller --kv-cache-dtype",
         wanted, fits, fits, wanted);
  log_warning(
      "context {} tokens, which is what the KV cache holds, of the model's {}; a larger cache "
      "(--max-total-tokens {}, --mem-fraction-static) holds more",
      fits, wanted, wanted);
  plan.runner.model.context_length = fits;
  plan.scheduler.max_context = static_cast<int>(fits);
}

std::string describe(const CostLine& line) {
  std::vector<std::string> points;
  for (const CostLine::Point& point : line.points)
    points.push_back(fmt::format("{}: {:.2f}", point.rows, point.seconds * 1e3));
  return fmt::format("{}", fmt::join(points, ", "));
}

// What was measured, and what follows from it for one sequence.
std::string describe(const DraftCosts& costs, int max_drafts) {
  if (!costs.are_known()) return "steps are too small; each has as many drafts as there are";
  std::string text = fmt::format("ms of a step by sequences: {}; with drafts, by rows: {}",
                                 describe(costs.plain), describe(costs.checks));
  if (!costs.first_pass.points.empty())
    text += fmt::format("; of a first draft, by sequences: {}; of a further one: {}",
                        describe(costs.first_pass), describe(costs.next_pass));
  if (!costs.next_tree_pass.points.empty())
    text += fmt::format("; of a further level of a tree: {}", describe(costs.next_tree_pass));
  if (costs.plain_token_s > 0)
    text += fmt::format(
        "; us more for 1,000 tokens before a row: {:.1f}, of a further row {:.1f}, of a draft's "
        "{:.1f}",
        costs.plain_token_s * 1e9, costs.check_token_s * 1e9, costs.pass_token_s * 1e9);
  DraftController controller(costs);
  if (costs.tree_levels > 0) max_drafts = std::min(max_drafts, costs.tree_levels);
  std::vector<std::string> choices;
  for (const double chance : {0.25, 0.5, 0.75, 1.0}) {
    DraftController::Offer offer{chance, max_drafts};
    choices.push_back(fmt::format("{} where {:.0f} % are right",
                                  controller.choose({&offer, 1}, {.max_drafts = max_drafts}),
                                  100 * chance));
  }
  return text + fmt::format("; drafts of one sequence: {}", fmt::join(choices, ", "));
}

// On all ranks, with equally many rows in each data-parallel group.
DraftCosts measure_drafts(Executor& executor, const ServingPlan& plan, int vocab_size) {
  const SchedulerOptions& limits = plan.scheduler;
  const int rows = limits.max_running_requests * (1 + limits.max_drafts);
  return measure_draft_costs(
      executor.first(), plan.dp_size,
      {.vocab_size = vocab_size,
       .max_sequences = limits.max_running_requests,
       .max_rows = limits.max_draft_rows > 0 ? limits.max_draft_rows : rows,
       .max_own_rows = plan.runner.limits.max_draft_rows > 0 ? 1 + limits.max_drafts : 0,
       .max_drafts = plan.runner.max_drafts,
       .topk = plan.runner.draft_topk,
       .levels = plan.runner.draft_steps,
       .max_tokens = static_cast<int>(
           std::min<std::int64_t>(plan.runner.limits.max_step_tokens, plan.context_length()))},
      [&](const Step& step) {
        executor.launch(step);
        executor.sample(step.id);
        (void)executor.collect(step.id);
      });
}

// "4 processes of 1 threads; stages of layers 0 to 13, 14 to 27"
std::string describe_ranks(const ServingPlan& plan, const ModelConfig& config) {
  std::string text =
      fmt::format("{} processes of {} threads", plan.num_ranks, plan.runner.placement.num_threads);
  if (plan.num_nodes > 1) text += fmt::format(" on {} nodes", plan.num_nodes);
  if (plan.dp_size > 1) text += fmt::format(", attention in {} groups", plan.dp_size);
  if (plan.runner.model.ep_size > 1)
    text += fmt::format(", experts in {} groups", plan.runner.model.ep_size);
  for (int stage = 0; plan.num_stages > 1 && stage < plan.num_stages; ++stage) {
    const LayerRange layers = layers_of_stage(config.num_layers, stage, plan.num_stages);
    text += fmt::format("{}{} to {}", stage == 0 ? "; stages of layers " : ", ", layers.begin,
                        layers.end - 1);
  }
  return text;
}

void log_end_tokens(const EndTokens& ends) {
  for (const std::string& sentence : ends.ignored()) log_warning("{}: it is ignored", sentence);
  std::string list;
  for (const auto& [id, places] : ends.places())
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", id, fmt::join(places, "; "));
  log_info("end tokens: {}", list.empty() ? "none" : list);
}

// Of the start-up, once `step` is done. A start-up may leave steps out.
double share_done(std::string_view step) {
  constexpr std::string_view kSteps[] = {"resolve",    "read",          "meet nodes",
                                         "meet ranks", "load",          "plan memory",
                                         "warm up",    "record graphs", "measure drafts"};
  const auto* const at = std::ranges::find(kSteps, step);
  check(at != std::end(kSteps), "a step of the start-up without a place: {}", step);
  return static_cast<double>(at - kSteps + 1) / static_cast<double>(std::size(kSteps));
}

}  // namespace

std::unique_ptr<Engine> Engine::create(const Options& options, TextHooks text,
                                       std::function<void(const std::string&, double)> progress,
                                       std::shared_ptr<Trace> trace) {
  using Clock = std::chrono::steady_clock;
  auto parts = std::make_unique<EngineParts>();
  parts->options = options;
  if (!trace && !options.trace.empty()) trace = std::make_shared<Trace>(options.trace);
  parts->trace = std::move(trace);
  parts->stop_matchers = std::move(text.stop_matchers);
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
    if (progress) progress(step, share_done(step));
  };
  auto since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };

  isolate(options);
  std::unique_ptr<NodeLobby> lobby = open_lobby(options);
  // a missing GPU is said before anything is read
  const Device device = serving_device(options);
  auto start = Clock::now();
  const ResolvedModel model = obtain_model(model_request(options), hub_environment(options));
  parts->directory = model.directory;
  report("resolve", since(start),
         !model.repo_id.empty()               ? model.repo_id + "@" + model.commit
         : model.directory.ends_with(".gguf") ? "a file"
                                              : "a directory");

  start = Clock::now();
  parts->config = read_model_config(options, model.directory);
  parts->generation = load_generation_config(model.directory, parts->config);
  for (const EndToken& token : text.end_tokens) parts->generation.add_end(token);
  log_end_tokens(parts->generation.ends);
  const Machine machine = read_machine(device);
  parts->plan = resolve_or_throw(options, parts->config, machine);
  std::unique_ptr<RemoteRanks> others;
  std::unique_ptr<RankCommunicators> communicators;  // over the region of `others`
  if (parts->plan.num_ranks > 1) parts->plan.speculation.draft_model = obtain_draft(options);
  const ModelDirectories directories{model.directory, parts->plan.speculation.draft_model};
  if (parts->plan.num_ranks > 1 && !lobby) others = start_ranks(options, directories);
  WeightSource source = open_weights(parts->plan, parts->config, model.directory);
  parts->plan.runner.draft = read_draft(options, parts->plan, parts->config, model.directory);
  limit_drafts(parts->plan);
  if (parts->plan.speculation.is_on())
    log_info("speculation: {}", describe(parts->plan.speculation));
  report("read", since(start),
         fmt::format("{}, {} layers", parts->config.architecture, parts->config.num_layers));

  const RunnerOptions& wanted = parts->plan.runner;
  if (lobby) {
    start = Clock::now();
    others = start_ranks(options, directories, {}, std::move(lobby));
    report("meet nodes", since(start), fmt::format("{} nodes", parts->plan.num_nodes));
  }
  if (others) {
    start = Clock::now();
    communicators = std::make_unique<RankCommunicators>(others->region(), 0, machine, parts->plan);
    try {
      require_same_model(communicators->all_ranks(), parts->config, source, parts->plan,
                         model.directory);
    } catch (const Error& error) {
      others->region().fail(error.kind(), error.message());  // so that all nodes say the same
      throw;
    }
    if (parts->plan.outlives_ranks)
      communicators->share_experts(fcntl(others->processes().experts_fd(), F_DUPFD_CLOEXEC, 0));
    parts->plan.runner.model.shared_experts = communicators->shared_experts();
    report("meet ranks", since(start), describe_ranks(parts->plan, parts->config));
  }
  auto rank = std::make_unique<Rank>(wanted.placement, wanted.model.numerics.deterministic,
                                     others ? communicators->sharers() : nullptr);
  if (others) communicators->bind(rank->stream());
  std::unique_ptr<Model> weights = load_rank_model(*rank, wanted, parts->config, source, report);
  if (parts->plan.outlives_ranks) communicators->shared_experts()->seal();
  std::vector<std::unique_ptr<ModelRunner>> ranks;
  ranks.push_back(std::make_unique<ModelRunner>(wanted, parts->config, std::move(rank),
                                                std::move(weights), report,
                                                others ? communicators->links() : RankLinks{}));
  parts->plan.scheduler.groups = page_groups(*ranks.front());
  fit_context(options, parts->plan);
  const int dp_size = parts->plan.dp_size;
  auto executor = std::make_unique<Executor>(std::move(ranks), dp_size, std::move(others));
  if (parts->plan.speculation.is_on() && options.speculative_adaptive) {
    start = Clock::now();
    try {
      parts->plan.scheduler.draft_costs =
          measure_drafts(*executor, parts->plan, parts->config.vocab_size);
    } catch (...) {
      executor->end_runners();  // before their communicators, and these before the ranks' memory
      communicators.reset();
      throw;
    }
    report("measure drafts", since(start),
           describe(parts->plan.scheduler.draft_costs, parts->plan.scheduler.max_drafts));
  }
  parts->communicators = std::move(communicators);
  return std::make_unique<EngineLoop>(std::move(parts), std::move(executor));
}

}  // namespace sluice
