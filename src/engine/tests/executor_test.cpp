// Steps on several ranks: shares of the matrices, and data-parallel groups; in one process, and in
// several.
#include "engine/executor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <optional>
#include <thread>
#include <tuple>

#include "base/log.h"
#include "base/testing/source_dir.h"
#include "checkpoint/load_config.h"
#include "distributed/testing/in_process.h"
#include "engine/draft_choice.h"
#include "engine/rank_process.h"
#include "scheduler/scheduler.h"

namespace sluice {
namespace {

using testing::InProcessCommunicator;
using testing::InProcessGroup;

const std::vector<std::vector<std::int32_t>> kPrompts = {{5, 17, 3, 90, 41}, {8, 8, 70}, {64, 2}};

// What repeats itself, so that look-ups find something.
const std::vector<std::vector<std::int32_t>> kLongPrompts = {
    {5, 17, 3, 90, 41, 5, 17, 3, 90, 41, 5, 17, 3, 90, 41, 5, 17, 3},
    {8, 8, 70, 8, 8, 70, 8, 8, 70, 8},
    {64, 2, 64, 2, 64, 2, 64, 2, 64}};

// Of a fixture, or a path.
std::string directory_of(const std::string& model) {
  if (model.starts_with('/')) return model;
  return source_dir() + "/tests/golden/models/" + model;
}

struct RanksOfModel {
  int sharers = 1, stages = 1;
  int groups = 1;           // of data-parallel attention, each of `sharers` ranks
  int expert_groups = 1;    // of all ranks
  int redundant = 0;        // places of experts beyond one each
  int rebalance_after = 0;  // steps; 0: experts stay
  std::string drafts = {};  // an algorithm of speculation
  std::string draft_model = {};
  bool drafts_as_rows = false;   // as GPUs compute them
  int topk = 1;                  // drafts behind each token
  bool drafts_that_pay = false;  // not all that there are
};

// A world of dp_size groups of tp_size ranks each, with a scheduler in front.
class World {
 public:
  // Each rank in a process of its own.
  World(const std::string& model, const RanksOfModel& wanted)
      : config_(load_model_config(directory_of(model))) {
    Options options;
    options.model = directory_of(model);
    options.dtype = "float32";
    options.context_length = 256;
    options.max_running_requests = 4;
    options.chunked_prefill_size = 16;
    options.max_total_tokens = 1024;
    options.threads = 1;
    options.tp_size = wanted.sharers * wanted.groups;
    options.dp_size = wanted.groups;
    options.enable_dp_attention = wanted.groups > 1;
    options.ep_size = wanted.expert_groups;
    options.pp_size = wanted.stages;
    options.ep_num_redundant_experts = wanted.redundant;
    options.enable_eplb = wanted.rebalance_after > 0;
    if (options.enable_eplb) options.eplb_rebalance_num_iterations = wanted.rebalance_after;
    if (!wanted.drafts.empty()) options.speculative_algorithm = wanted.drafts;
    options.drafts_as_rows = wanted.drafts_as_rows;
    options.speculative_eagle_topk = wanted.topk;
    if (wanted.drafts == "NGRAM") options.speculative_ngram_min_match = 1;
    if (!wanted.draft_model.empty())
      options.speculative_draft_model_path = directory_of(wanted.draft_model);
    const Machine machine = read_machine(Device{});
    ServingPlan plan = resolve_or_throw(options, config_, machine);
    plan.speculation.draft_model = obtain_draft(options);
    auto others = start_ranks(options, {options.model, plan.speculation.draft_model}, run_rank);
    processes_ = &others->processes();
    shared_ = std::make_unique<RankCommunicators>(others->region(), 0, machine, plan);
    const WeightSource source = open_weights(plan, config_, options.model);
    plan.runner.draft = read_draft(options, plan, config_, options.model);
    limit_drafts(plan);
    require_same_model(shared_->all_ranks(), config_, source, plan);
    const StartupReport quiet = [](const std::string&, double, const std::string&) {};
    auto rank = std::make_unique<Rank>(plan.runner.placement, false, shared_->sharers());
    auto loaded = load_rank_model(*rank, plan.runner, config_, source, quiet);
    std::vector<std::unique_ptr<ModelRunner>> ranks;
    ranks.push_back(std::make_unique<ModelRunner>(plan.runner, config_, std::move(rank),
                                                  std::move(loaded), quiet, shared_->links()));
    scheduling_ = plan.scheduler;
    // A few steps are left without drafts, until a probe tells whether they pay again.
    const CostLine row{{{1, 1}, {2, 1.5}, {64, 32.5}}}, run{{{1, 0.001}, {64, 0.002}}};
    if (wanted.drafts_that_pay)
      scheduling_.draft_costs = {.plain = row, .checks = row, .first_pass = run, .next_pass = run};
    start(std::move(ranks), wanted.groups, std::move(others));
    balancer_.emplace(plan.balancer, executor_->first().expert_layers());
  }
  World(const std::string& model, int dp_size, int tp_size)
      : config_(load_model_config(directory_of(model))) {
    const WeightSource source = WeightSource::checkpoint(directory_of(model));
    for (int g = 0; g < dp_size; ++g) groups_.push_back(std::make_unique<InProcessGroup>(tp_size));
    std::vector<std::unique_ptr<ModelRunner>> ranks(static_cast<std::size_t>(dp_size * tp_size));
    communicators_.resize(ranks.size());
    std::vector<std::thread> threads;  // ranks warm up together, as they run
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto group = i / static_cast<std::size_t>(tp_size);
      communicators_[i] = std::make_unique<InProcessCommunicator>(
          *groups_[group], static_cast<int>(i % static_cast<std::size_t>(tp_size)));
      threads.emplace_back([&, i] { ranks[i] = rank_of(source, *communicators_[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    start(std::move(ranks), dp_size);
  }

  void start(std::vector<std::unique_ptr<ModelRunner>> ranks, int dp_size,
             std::unique_ptr<RemoteRanks> others = nullptr) {
    SchedulerOptions options = scheduling_;
    options.dp_size = dp_size;
    options.max_running_requests = 4;
    options.chunked_prefill_tokens = 4;
    options.max_context = 256;
    options.hash_steps = others != nullptr;
    options.pipelined = others && others->are_stages();
    for (std::size_t g = 0; g < ranks.front()->groups().size(); ++g) {
      PageGroup group = ranks.front()->groups()[g];
      group.num_pages = ranks.front()->memory_plan().pages[g];
      options.groups.push_back(group);
    }
    scheduler_ = std::make_unique<Scheduler>(options);
    executor_ = std::make_unique<Executor>(std::move(ranks), dp_size, std::move(others));
  }

  // Greedy tokens of each prompt.
  std::vector<std::vector<std::int32_t>> run(
      const std::vector<std::vector<std::int32_t>>& prompts) {
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      QueuedRequest request;
      request.id = i + 1;
      request.prompt_ids = prompts[i];
      request.params.temperature = 0;
      request.max_new_tokens = 8 + 6 * static_cast<int>(i);
      EXPECT_TRUE(scheduler_->add(std::move(request)).ok());
    }
    std::vector<std::vector<std::int32_t>> tokens(prompts.size());
    std::vector<Event> events;
    std::deque<std::unique_ptr<Step>> flights;
    while (scheduler_->has_work()) {
      auto step = std::make_unique<Step>();
      if (std::ssize(flights) < scheduling_.max_steps_in_flight &&
          scheduler_->next(*step, events)) {
        for (const Batch& batch : step->dp) num_idle += batch.mode == ForwardMode::kIdle;
        if (balancer_) balancer_->plan(*step);
        executor_->launch(*step);
        executor_->sample(step->id);
        flights.push_back(std::move(step));
        max_seen_in_flight = std::max(max_seen_in_flight, static_cast<int>(flights.size()));
        continue;
      }
      if (flights.empty()) break;
      const Step& oldest = *flights.front();
      scheduler_->commit(oldest, executor_->collect(oldest.id), events);
      flights.pop_front();
    }
    EXPECT_FALSE(scheduler_->has_work());
    for (const Event& event : events)
      tokens[event.request - 1].insert(tokens[event.request - 1].end(), event.tokens.begin(),
                                       event.tokens.end());
    return tokens;
  }
  // A step in which no group has work.
  void run_idle() {
    Step step;
    step.id = 1 << 20;
    step.dp.resize(groups_.size());
    for (Batch& batch : step.dp) batch.groups.resize(config_.num_layers > 0 ? 1 : 0);
    executor_->launch(step);
    executor_->sample(step.id);
    for (const BatchResult& result : executor_->collect(step.id).dp)
      EXPECT_TRUE(result.tokens.empty());
  }

  RankProcesses& processes() { return *processes_; }
  std::string failure() const { return executor_->failure(); }
  int num_sums(std::size_t rank) const { return communicators_[rank]->num_sums; }
  SchedulerStats stats() const { return scheduler_->stats(); }
  const ExpertReport& experts() const { return balancer_->report(); }
  int num_idle = 0, max_seen_in_flight = 0;

 private:
  std::unique_ptr<ModelRunner> rank_of(const WeightSource& source, Communicator& communicator) {
    RunnerOptions options;
    options.model.context_length = 256;
    options.limits = {.max_running_requests = 4, .max_step_tokens = 16};
    options.kv.max_total_tokens = 1024;
    const StartupReport quiet = [](const std::string&, double, const std::string&) {};
    auto rank = std::make_unique<Rank>(options.placement, false, &communicator);
    std::unique_ptr<Model> model = load_rank_model(*rank, options, config_, source, quiet);
    return std::make_unique<ModelRunner>(options, config_, std::move(rank), std::move(model),
                                         quiet);
  }

  const ModelConfig config_;
  SchedulerOptions scheduling_;
  std::vector<std::unique_ptr<InProcessGroup>> groups_;
  std::vector<std::unique_ptr<InProcessCommunicator>> communicators_;
  std::unique_ptr<RankCommunicators> shared_;
  RankProcesses* processes_ = nullptr;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Executor> executor_;
  std::optional<ExpertBalancer> balancer_;  // of ranks in processes of their own
};

// The logs of many starts say nothing here.
class Ranks : public ::testing::TestWithParam<std::string> {
 protected:
  Ranks() { set_log_level(LogLevel::kWarning); }
  ~Ranks() override { set_log_level(LogLevel::kInfo); }
};
INSTANTIATE_TEST_SUITE_P(Executor, Ranks,
                         ::testing::Values("qwen3", "mixtral", "deepseek-v2-lite"));

TEST_P(Ranks, SharesOfTheMatricesGiveTheTokensOfOneRank) {
  World one(GetParam(), 1, 1), two(GetParam(), 1, 2);
  EXPECT_EQ(two.run(kPrompts), one.run(kPrompts));
  EXPECT_GT(two.num_sums(0), 0);
  EXPECT_EQ(two.num_sums(0), two.num_sums(1));
}

TEST_P(Ranks, DataParallelGroupsGiveTheTokensOfOneAlsoWhereSomeAreIdle) {
  World one(GetParam(), 1, 1), groups(GetParam(), 2, 1);
  EXPECT_EQ(groups.run(kPrompts), one.run(kPrompts));
  EXPECT_GT(groups.num_idle, 0) << "two groups and three prompts end at different steps";
}

TEST_P(Ranks, GroupsOfRanksGiveTheTokensOfOne) {
  World one(GetParam(), 1, 1), four(GetParam(), 2, 2);
  EXPECT_EQ(four.run(kPrompts), one.run(kPrompts));
}

TEST_P(Ranks, InProcessesOfTheirOwnGiveTheTokensOfOne) {
  World one(GetParam(), 1, 1), two(GetParam(), {.sharers = 2});
  EXPECT_EQ(two.run(kPrompts), one.run(kPrompts));
  EXPECT_EQ(two.failure(), "");
}

TEST_P(Ranks, StagesGiveTheTokensOfOneRankWithSeveralStepsInFlight) {
  World one(GetParam(), 1, 1), two(GetParam(), {.stages = 2});
  EXPECT_EQ(two.run(kPrompts), one.run(kPrompts));
  EXPECT_EQ(two.max_seen_in_flight, 2);
  EXPECT_EQ(two.failure(), "");
}

TEST_P(Ranks, StagesOfSeveralRanksGiveTheTokensOfOne) {
  World one(GetParam(), 1, 1), four(GetParam(), {.sharers = 2, .stages = 2});
  EXPECT_EQ(four.run(kPrompts), one.run(kPrompts));
  EXPECT_EQ(four.failure(), "");
}

TEST_P(Ranks, DataParallelAttentionGivesTheTokensOfOneAlsoWhereGroupsAreIdle) {
  World one(GetParam(), 1, 1), two(GetParam(), {.groups = 2});
  EXPECT_EQ(two.run(kPrompts), one.run(kPrompts));
  EXPECT_GT(two.num_idle, 0) << "two groups and three prompts end at different steps";
  EXPECT_EQ(two.failure(), "");
}

TEST_P(Ranks, GroupsOfAttentionAreOfSeveralRanks) {
  World one(GetParam(), 1, 1), four(GetParam(), {.sharers = 2, .groups = 2});
  EXPECT_EQ(four.run(kPrompts), one.run(kPrompts));
  EXPECT_EQ(four.failure(), "");
}

TEST_P(Ranks, GroupsOfAttentionShareWholeExperts) {
  if (GetParam() == "qwen3") return;  // has no experts
  World one(GetParam(), 1, 1), two(GetParam(), {.groups = 2, .expert_groups = 2});
  EXPECT_EQ(two.run(kPrompts), one.run(kPrompts));
}

TEST_P(Ranks, ExpertsInSeveralPlacesGiveTheTokensOfOne) {
  if (GetParam() == "qwen3") return;  // has no experts
  World one(GetParam(), 1, 1), two(GetParam(), {.sharers = 2, .expert_groups = 2, .redundant = 2});
  EXPECT_EQ(two.run(kPrompts), one.run(kPrompts));
}

TEST_P(Ranks, ExpertsThatMoveInEveryFewStepsGiveTheTokensOfOne) {
  if (GetParam() == "qwen3") return;
  World one(GetParam(), 1, 1);
  const auto tokens = one.run(kPrompts);
  for (const RanksOfModel& wanted :
       {RanksOfModel{.sharers = 2, .expert_groups = 2, .redundant = 2, .rebalance_after = 2},
        RanksOfModel{.sharers = 4, .expert_groups = 2, .redundant = 2, .rebalance_after = 1},
        RanksOfModel{.groups = 2, .expert_groups = 2, .redundant = 2, .rebalance_after = 2}}) {
    World world(GetParam(), wanted);
    EXPECT_EQ(world.run(kPrompts), tokens);
    EXPECT_GT(world.experts().changes, 0u);
    EXPECT_EQ(world.failure(), "");
  }
}

// Of a draft layer, and of a draft model that ranks share or, in another number, have whole.
TEST(DraftsOfRanks, GiveTheTokensOfOneAlsoInGroupsOfWhichSomeAreIdle) {
  set_log_level(LogLevel::kWarning);
  for (const auto& [model, drafts, draft_model] :
       {std::tuple{"deepseek-v3", "NEXTN", ""}, std::tuple{"glm-moe-dsa", "NEXTN", ""},
        std::tuple{"mixtral", "STANDALONE", "llama-llama3-tied"}}) {
    SCOPED_TRACE(model);
    const auto tokens = World(model, 1, 1).run(kPrompts);
    for (RanksOfModel wanted :
         {RanksOfModel{.sharers = 2}, RanksOfModel{.groups = 2},
          RanksOfModel{.groups = 2, .expert_groups = 2}, RanksOfModel{.sharers = 2, .groups = 2},
          RanksOfModel{.sharers = 2, .groups = 2, .expert_groups = 4}}) {
      wanted.drafts = drafts;
      wanted.draft_model = draft_model;
      World world(model, wanted);
      EXPECT_EQ(world.run(kPrompts), tokens);
      EXPECT_GT(world.stats().drafted_tokens, 20);
      if (wanted.groups > 1) {
        EXPECT_GT(world.num_idle, 0) << "two groups and three prompts end at different steps";
      }
      EXPECT_EQ(world.failure(), "");
    }
  }
  set_log_level(LogLevel::kInfo);
}

// As GPUs compute them, with steps of which the draft leaves rows out. Heads and blocks lie beside
// the repository on machines of developers.
TEST(DraftsOfRanks, AsRowsGiveTheTokensOfOne) {
  set_log_level(LogLevel::kWarning);
  const std::string recorded =
      (std::filesystem::path(source_dir()).parent_path() / "shared/golden/speculation/").string();
  struct Case {
    std::string model, drafts, draft_model;
    bool may_be_trees = true, has_experts = false;
  };
  const std::string tiny = source_dir() + "/models/sluice-tiny";
  std::int64_t num_steps_without = 0;
  for (const Case& one :
       {Case{tiny, "NGRAM", "", false}, Case{tiny, "NEXTN", "", true, true},
        Case{"mimo", "NEXTN", ""}, Case{"qwen3-moe", "STANDALONE", "llama-llama3-tied", true, true},
        Case{tiny, "EAGLE3", recorded + "sluice-tiny-eagle3", true, true},
        Case{"llama-plain", "EAGLE", recorded + "families/eagle-llama"},
        Case{recorded + "targets/qwen3-7l", "DFLASH", recorded + "families/dflash-qwen3", false}}) {
    if (one.draft_model.starts_with(recorded) && !std::filesystem::exists(recorded)) continue;
    SCOPED_TRACE(one.model + " " + one.drafts);
    const auto tokens = World(one.model, 1, 1).run(kLongPrompts);
    RanksOfModel plain{
        .sharers = 2, .drafts = one.drafts, .draft_model = one.draft_model, .drafts_as_rows = true};
    std::vector<RanksOfModel> all;
    for (const int topk : {1, 3})
      for (const bool that_pay : {false, true}) {
        if (topk > 1 && !one.may_be_trees) continue;
        RanksOfModel& wanted = all.emplace_back(plain);
        wanted.topk = topk;
        wanted.drafts_that_pay = that_pay;
        wanted.expert_groups = one.has_experts && that_pay ? 2 : 1;
      }
    for (const RanksOfModel& wanted : all) {
      SCOPED_TRACE(fmt::format("{} drafts behind a token, {}", wanted.topk,
                               wanted.drafts_that_pay ? "that pay" : "all"));
      World world(one.model, wanted);
      EXPECT_EQ(world.run(kLongPrompts), tokens);
      EXPECT_EQ(world.failure(), "");
      const SchedulerStats stats = world.stats();
      EXPECT_GT(stats.drafted_tokens, wanted.drafts_that_pay ? 2 : 10);
      if (wanted.drafts_that_pay) num_steps_without += stats.steps_by_drafts.at(0);
    }
  }
  EXPECT_GT(num_steps_without, 20);
  set_log_level(LogLevel::kInfo);
}

TEST_P(Ranks, AKilledGroupEndsTheStepsOfAll) {
  World two(GetParam(), {.groups = 2});
  ASSERT_EQ(kill(two.processes().pid(1), SIGKILL), 0);
  EXPECT_THROW(two.run(kPrompts), Error);
  EXPECT_NE(two.failure().find("rank 1 (process "), std::string::npos) << two.failure();
}

TEST_P(Ranks, AKilledStageEndsTheStepsOfAll) {
  World two(GetParam(), {.stages = 2});
  ASSERT_EQ(kill(two.processes().pid(1), SIGKILL), 0);
  EXPECT_THROW(two.run(kPrompts), Error);
  EXPECT_NE(two.failure().find("rank 1 (process "), std::string::npos) << two.failure();
}

TEST_P(Ranks, AKilledProcessEndsTheStepsOfAll) {
  World two(GetParam(), {.sharers = 2});
  ASSERT_EQ(kill(two.processes().pid(1), SIGKILL), 0);
  const auto start = std::chrono::steady_clock::now();
  try {
    two.run(kPrompts);
    FAIL() << "a rank was dead";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFatal) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_NE(two.failure().find("rank 1 (process "), std::string::npos) << two.failure();
}

TEST_P(Ranks, AnIdleStepMakesTheCollectivesOfAModel) {
  World two(GetParam(), 1, 2);
  const int before = two.num_sums(0);
  two.run_idle();
  EXPECT_GT(two.num_sums(0), before);
  EXPECT_EQ(two.num_sums(0), two.num_sums(1));
}

}  // namespace
}  // namespace sluice
