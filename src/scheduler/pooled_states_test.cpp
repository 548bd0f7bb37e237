#include "scheduler/pooled_states.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice {
namespace {

QueuedRequest request_of(std::uint64_t id, Pooling pooling, int tokens, int from = 0) {
  QueuedRequest request;
  request.id = id;
  request.pooling = pooling;
  request.pooled_from = from;
  request.prompt_ids.assign(static_cast<std::size_t>(tokens), 1);
  return request;
}

// A step with the rows [first, first + count) of one request; states are {position, -position}.
void take(PooledStates& pooled, std::uint64_t id, int first, int count) {
  Step step;
  Batch& batch = step.dp.emplace_back();
  batch.items.push_back({.sequence = sequence_id(77, 0), .slot = 1, .first = 0, .count = 3});
  batch.items.push_back(
      {.sequence = sequence_id(id, 0), .slot = 0, .first = first, .count = count});
  batch.pooled_rows.push_back({.item = 1, .row = 3, .count = count});
  StepResult result;
  BatchResult& part = result.dp.emplace_back();
  for (int i = 0; i < count; ++i) {
    part.pooled_states.push_back(static_cast<float>(first + i));
    part.pooled_states.push_back(-static_cast<float>(first + i));
  }
  pooled.take(step, result);
}

std::vector<float> finish(PooledStates& pooled, std::uint64_t id) {
  std::vector<Event> events(1);
  events[0].request = id;
  events[0].finish = FinishReason::kLength;
  pooled.finish(events);
  EXPECT_EQ(events[0].finish, FinishReason::kLength);
  return events[0].pooled;
}

TEST(PooledStates, EveryPoolingIsWhatItsNameSays) {
  const struct {
    Pooling pooling;
    std::vector<float> wanted;
  } rows[] = {
      {Pooling::kMean, {2, -2}},
      {Pooling::kMax, {3, -1}},
      {Pooling::kMeanSqrt, {6 / std::sqrt(3.0f), -6 / std::sqrt(3.0f)}},
      {Pooling::kWeightedMean, {20.0f / 9, -20.0f / 9}},  // (2 1 + 3 2 + 4 3) / (2 + 3 + 4)
      {Pooling::kFirst, {1, -1}},
      {Pooling::kAll, {1, -1, 2, -2, 3, -3}},
  };
  for (const auto& row : rows) {
    PooledStates pooled;
    pooled.add(request_of(5, row.pooling, 4, 1));
    take(pooled, 5, 1, row.pooling == Pooling::kFirst ? 1 : 3);
    const std::vector<float> vector = finish(pooled, 5);
    ASSERT_EQ(vector.size(), row.wanted.size());
    for (std::size_t i = 0; i < vector.size(); ++i) EXPECT_FLOAT_EQ(vector[i], row.wanted[i]);
  }
}

TEST(PooledStates, ARetractedRequestsStatesCountOnce) {
  PooledStates pooled;
  pooled.add(request_of(5, Pooling::kMean, 6));
  take(pooled, 5, 0, 2);
  take(pooled, 5, 2, 2);
  take(pooled, 5, 0, 3);  // it begins anew
  take(pooled, 5, 3, 3);
  EXPECT_EQ(finish(pooled, 5), (std::vector<float>{2.5f, -2.5f}));
}

TEST(PooledStates, OtherRequestsChangeNothing) {
  PooledStates pooled;
  pooled.add(request_of(5, Pooling::kLast, 3));
  pooled.add(request_of(6, Pooling::kLast, 1));
  take(pooled, 6, 0, 1);
  take(pooled, 9, 2, 1);  // over already
  take(pooled, 5, 2, 1);
  EXPECT_EQ(finish(pooled, 5), (std::vector<float>{2, -2}));
  pooled.remove(6);
  EXPECT_TRUE(finish(pooled, 6).empty());
}

TEST(PooledStates, AVectorThatIsNotFiniteIsAnError) {
  Event event;
  event.finish = FinishReason::kLength;
  set_pooled(event, {1, std::numeric_limits<float>::quiet_NaN()});
  EXPECT_EQ(event.finish, FinishReason::kError);
  EXPECT_EQ(event.error.code, "numerics_error");
  EXPECT_TRUE(event.pooled.empty());
}

}  // namespace
}  // namespace sluice
