// Steps on several ranks of one process: shares of the matrices, and data-parallel groups.
#include "engine/executor.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/log.h"
#include "checkpoint/load_config.h"
#include "distributed/testing/in_process.h"
#include "engine/testing/collector.h"
#include "scheduler/scheduler.h"

namespace sluice {
namespace {

using testing::InProcessCommunicator;
using testing::InProcessGroup;

const std::vector<std::vector<std::int32_t>> kPrompts = {{5, 17, 3, 90, 41}, {8, 8, 70}, {64, 2}};

// A world of dp_size groups of tp_size ranks each, with a scheduler in front.
class World {
 public:
  World(const std::string& model, int dp_size, int tp_size)
      : config_(
            load_model_config(std::string(SLUICE_SOURCE_DIR) + "/tests/golden/models/" + model)) {
    const WeightSource source =
        WeightSource::checkpoint(std::string(SLUICE_SOURCE_DIR) + "/tests/golden/models/" + model);
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

    SchedulerOptions options;
    options.dp_size = dp_size;
    options.max_running_requests = 4;
    options.chunked_prefill_tokens = 4;
    options.max_context = 256;
    for (std::size_t g = 0; g < ranks.front()->groups().size(); ++g) {
      PageGroup group = ranks.front()->groups()[g];
      group.num_pages = ranks.front()->memory_plan().pages[g];
      options.groups.push_back(group);
    }
    scheduler_ = std::make_unique<Scheduler>(options);
    executor_ = std::make_unique<Executor>(std::move(ranks), dp_size);
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
    while (scheduler_->has_work()) {
      Step step;
      EXPECT_TRUE(scheduler_->next(step, events));
      for (const Batch& batch : step.dp) num_idle += batch.mode == ForwardMode::kIdle;
      executor_->launch(step);
      executor_->sample(step.id);
      scheduler_->commit(step, executor_->collect(step.id), events);
    }
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

  int num_sums(std::size_t rank) const { return communicators_[rank]->num_sums; }
  int num_idle = 0;

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
  std::vector<std::unique_ptr<InProcessGroup>> groups_;
  std::vector<std::unique_ptr<InProcessCommunicator>> communicators_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Executor> executor_;
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

TEST_P(Ranks, AnIdleStepMakesTheCollectivesOfAModel) {
  World two(GetParam(), 1, 2);
  const int before = two.num_sums(0);
  two.run_idle();
  EXPECT_GT(two.num_sums(0), before);
  EXPECT_EQ(two.num_sums(0), two.num_sums(1));
}

}  // namespace
}  // namespace sluice
