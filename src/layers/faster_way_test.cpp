#include "layers/faster_way.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

// Does `count` pieces, of which a byte takes so long in the first way and in the second; returns how many went the second.
int second_of(int count, double first, double second) {
  FasterWay way;
  int seconds = 0;
  for (int i = 0; i < count; ++i) {
    const bool goes_second = way.second();
    // Larger pieces take longer, and now and then one is held up.
    const double bytes = 1e6 * (1 + i % 3), held_up = i % 4 == 1 ? 10 : 1;
    way.took(goes_second, (goes_second ? second : first) * bytes * held_up, bytes);
    seconds += goes_second;
  }
  return seconds;
}

TEST(FasterWay, TriesBothAndTakesTheFaster) {
  EXPECT_EQ(second_of(2 * FasterWay::kTrials, 1, 2), FasterWay::kTrials);
  EXPECT_EQ(second_of(100, 1, 2), FasterWay::kTrials);
  EXPECT_EQ(second_of(100, 2, 1), 100 - FasterWay::kTrials);
}

}  // namespace
}  // namespace sluice
