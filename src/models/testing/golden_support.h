// Comparing logits with the recorded ones of tests/golden/models (see tests/golden/README.md).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "models/testing/driver.h"

namespace sluice::testing {

inline double log_sum_exp(const std::vector<float>& logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - top);
  return top + std::log(sum);
}

inline int argmax(const std::vector<float>& logits) {
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Largest error of the five best of every position; argmax must be equal.
inline double worst_error(const Json& prompt, const Rows& rows) {
  double worst = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(argmax(rows[i]), prompt["argmax"][i].get<int>()) << "position " << i;
    const double normaliser = log_sum_exp(rows[i]);
    for (std::size_t j = 0; j < prompt["top5_ids"][i].size(); ++j) {
      const auto id = prompt["top5_ids"][i][j].get<std::size_t>();
      const double error =
          std::abs(rows[i][id] - normaliser - prompt["top5_logprobs"][i][j].get<double>());
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
  }
  return worst;
}

inline std::vector<int> ids_of(const Json& prompt) {
  return prompt["ids"].get<std::vector<int>>();
}

inline std::vector<int> slice(const std::vector<int>& ids, std::size_t begin, std::size_t count) {
  const auto from = ids.begin() + static_cast<std::ptrdiff_t>(std::min(begin, ids.size()));
  return {from, from + static_cast<std::ptrdiff_t>(
                           std::min(count, ids.size() - std::min(begin, ids.size())))};
}

inline Rows chunked(TestDriver& driver, int sequence, const std::vector<int>& ids,
                    std::size_t chunk) {
  Rows rows;
  for (std::size_t begin = 0; begin < ids.size(); begin += chunk)
    for (std::vector<float>& row : driver.step({{sequence, slice(ids, begin, chunk)}}))
      rows.push_back(std::move(row));
  return rows;
}

}  // namespace sluice::testing
