#include "scheduler/pooled_states.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace sluice {

void StatePool::take(std::span<const float> state) {
  const double weight = pooling_ == Pooling::kWeightedMean ? next_ + 1 : 1;
  ++next_;
  switch (pooling_) {
    case Pooling::kNone:
    case Pooling::kScores:
      fail(ErrorKind::kBug, "states of a request that pools none");
    case Pooling::kLast:
    case Pooling::kFirst:
    case Pooling::kAll:
      states_.insert(states_.end(), state.begin(), state.end());
      return;
    case Pooling::kMax:
      if (states_.empty()) states_.assign(state.begin(), state.end());
      for (std::size_t i = 0; i < state.size(); ++i)
        if (!(states_[i] >= state[i])) states_[i] = state[i];
      return;
    case Pooling::kMean:
    case Pooling::kMeanSqrt:
    case Pooling::kWeightedMean:
      sum_.resize(state.size());
      weight_ += weight;
      for (std::size_t i = 0; i < state.size(); ++i) sum_[i] += weight * state[i];
      return;
  }
}

std::vector<float> StatePool::vector() {
  if (sum_.empty()) return std::move(states_);
  const double divisor = pooling_ == Pooling::kMeanSqrt ? std::sqrt(weight_) : weight_;
  std::vector<float> out;
  out.reserve(sum_.size());
  for (const double sum : sum_) out.push_back(static_cast<float>(sum / divisor));
  return out;
}

void PooledStates::add(const QueuedRequest& request) {
  if (request.pooling == Pooling::kNone) return;
  pools_.emplace(request.id, StatePool::of(request.pooling, request.pooled_from,
                                           static_cast<int>(request.prompt_ids.size())));
}

void PooledStates::take(const Step& step, const StepResult& result) {
  for (std::size_t group = 0; group < step.dp.size(); ++group) {
    const Batch& batch = step.dp[group];
    const std::vector<float>& states = result.dp[group].pooled_states;
    std::int64_t total = 0;
    for (const PooledRows& rows : batch.pooled_rows) total += rows.count;
    // A step that failed brings none; its requests end.
    if (total == 0 || states.empty()) continue;
    check(static_cast<std::int64_t>(states.size()) % total == 0, "{} values of {} states",
          states.size(), total);
    const auto width = states.size() / static_cast<std::size_t>(total);
    std::size_t at = 0;           // in `states`
    std::size_t item = 0;         // whose first row is item_begin
    std::int32_t item_begin = 0;  // in the batch's flat tokens
    for (const PooledRows& rows : batch.pooled_rows) {
      for (; item < static_cast<std::size_t>(rows.item); ++item)
        item_begin += batch.items[item].count;
      const auto found = pools_.find(batch.items[item].sequence >> 8);
      for (std::int32_t i = 0; i < rows.count; ++i, at += width) {
        const int position = batch.items[item].first + rows.row - item_begin + i;
        if (found != pools_.end() && position == found->second.next())
          found->second.take(std::span(states).subspan(at, width));
      }
    }
  }
}

void PooledStates::finish(std::span<Event> events) {
  if (pools_.empty()) return;
  for (Event& event : events) {
    if (event.finish != FinishReason::kLength) continue;
    const auto found = pools_.find(event.request);
    if (found != pools_.end()) set_pooled(event, found->second.vector());
  }
}

void set_pooled(Event& event, std::vector<float> vector) {
  const bool is_finite = !vector.empty() && std::ranges::all_of(vector, [](float value) {
    return std::isfinite(value);
  });
  if (is_finite) {
    event.pooled = std::move(vector);
    return;
  }
  event.finish = FinishReason::kError;
  event.error = {500, "numerics_error", "", "the states of this request are not finite"};
}

}  // namespace sluice
