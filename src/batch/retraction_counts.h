// How often the sequences that ended had been sent back to the queue for want of KV memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

namespace sluice {

// counts[i] sequences had at most kBounds[i] retractions (the last: more than all of them).
struct RetractionCounts {
  static constexpr int kBounds[] = {1, 2, 3, 4, 5, 10, 20};  // those of vLLM's histogram
  std::array<std::uint64_t, std::size(kBounds) + 1> counts{};
  std::uint64_t sum = 0;

  void add(int retractions) {
    const auto bound = std::lower_bound(std::begin(kBounds), std::end(kBounds), retractions);
    ++counts[static_cast<std::size_t>(bound - std::begin(kBounds))];
    sum += static_cast<std::uint64_t>(retractions);
  }
};

}  // namespace sluice
