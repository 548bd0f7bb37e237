#include "runtime/agreement.h"

#include <gtest/gtest.h>

#include <thread>

#include "distributed/testing/in_process.h"

namespace sluice {
namespace {

using testing::InProcessCommunicator;
using testing::InProcessGroup;

PlaneSpec plane(std::int64_t elements, std::vector<int> layers) {
  return {.name = "k", .dtype = DType::kF32, .row_elements = elements, .layers = std::move(layers)};
}

// A group of pages, of a window, and of states, with layers of a stage.
std::vector<PageGroupSpec> groups_of(std::vector<int> full, std::vector<int> window,
                                     std::vector<int> recurrent) {
  return {{{.name = "full", .retention = Retention::kFull, .span = 0}, {plane(64, full)}},
          {{.name = "window", .retention = Retention::kWindow, .span = 128}, {plane(64, window)}},
          {{.name = "state", .retention = Retention::kState, .span = 0}, {plane(4096, recurrent)}}};
}

MemoryRequest request_of(std::int64_t available) {
  MemoryRequest request;
  request.available_bytes = available;
  request.context_length = 4096;
  request.limits = {.max_running_requests = 8, .max_step_tokens = 256};
  return request;
}

// The plans of stages that plan together.
std::vector<MemoryPlan> plan_stages(const std::vector<std::vector<PageGroupSpec>>& stages,
                                    const std::vector<std::int64_t>& available) {
  InProcessGroup group(static_cast<int>(stages.size()));
  std::vector<MemoryPlan> plans(stages.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < stages.size(); ++i)
    threads.emplace_back([&, i] {
      InProcessCommunicator communicator(group, static_cast<int>(i));
      plans[i] = agreed_plan(communicator, request_of(available[i]), stages[i]);
    });
  for (std::thread& thread : threads) thread.join();
  return plans;
}

TEST(Agreement, StagesHaveThePagesThatTheTightestHasRoomFor) {
  const auto one = groups_of({0, 1}, {2, 3}, {4}), two = groups_of({5}, {6}, {7});
  const auto plans = plan_stages({one, two}, {std::int64_t{8} << 20, std::int64_t{1} << 30});
  const MemoryPlan tight = plan_memory(request_of(std::int64_t{8} << 20), one);
  EXPECT_EQ(plans[0].pages, tight.pages);
  EXPECT_EQ(plans[1].pages, tight.pages);
  EXPECT_EQ(plans[1].max_total_tokens, tight.max_total_tokens);
  EXPECT_EQ(plans[1].num_states, tight.num_states);
  EXPECT_LT(plans[1].kv_bytes, plans[0].kv_bytes) << "it has half of the layers";
}

TEST(Agreement, AStageWithoutAKindOfLayersDoesNotLimitIt) {
  const auto states = groups_of({}, {}, {0, 1}), pages = groups_of({2}, {3}, {});
  const auto plans = plan_stages({states, pages}, {std::int64_t{16} << 20, std::int64_t{16} << 20});
  EXPECT_EQ(plans[0].pages, plans[1].pages);
  EXPECT_EQ(plans[0].num_states, plans[1].num_states);
  EXPECT_GE(plans[0].num_states, 8);
  EXPECT_GT(plans[0].max_total_tokens, 4096);
  EXPECT_EQ(plans[0].kv_bytes_per_token, 0);
  EXPECT_EQ(plans[1].state_bytes, 0);
}

}  // namespace
}  // namespace sluice
