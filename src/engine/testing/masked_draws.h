// Draws under a mask, against the model's own distribution.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/testing/collector.h"

namespace sluice {

// Where eight tokens from `first_token` on may come as token `place` of an answer: Pearson's test
// of so many draws against the model's log-probabilities, renormalised over the eight.
// `request_of(seed)` asks for them with its log-probabilities; `batch` requests run at once.
inline void expect_renormalised_draws(Engine& engine, int num_draws, int batch, std::size_t place,
                                      std::int32_t first_token,
                                      const std::function<Request(std::uint64_t)>& request_of) {
  std::vector<int> counts(8);
  std::vector<double> probabilities(8);
  std::size_t num_tokens = 0;
  for (int begin = 0; begin < num_draws; begin += batch) {
    std::vector<std::unique_ptr<Collector>> collectors;
    for (int i = 0; i < batch; ++i) {
      Request request = request_of(static_cast<std::uint64_t>(begin + i));
      num_tokens = static_cast<std::size_t>(request.max_new_tokens);
      collectors.push_back(std::make_unique<Collector>());
      ASSERT_TRUE(engine.submit(std::move(request), collectors.back()->sink()).ok());
    }
    for (const auto& collector : collectors) {
      collector->wait();
      ASSERT_EQ(collector->tokens[0].size(), num_tokens);
      const auto token = static_cast<std::size_t>(collector->tokens[0][place] - first_token);
      ASSERT_LT(token, 8u);
      ++counts[token];
      probabilities[token] = std::exp(collector->logprobs[place].logprob);
    }
  }
  const double all = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  EXPECT_LT(all, 0.9);  // the mask takes something away
  double statistic = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    const double expected = num_draws * probabilities[i] / all;
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(statistic, 24.3);  // 7 degrees of freedom, p = 0.001; the seeds are fixed
}

}  // namespace sluice
