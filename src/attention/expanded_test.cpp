#include "attention/expanded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;

// Two sequences: 3 cached and 2 new tokens, 1 cached and 3 new; pages 5 and 2.
class Expanded : public ::testing::Test {
 protected:
  std::vector<std::int32_t> seq_lens{5, 4}, prefix_lens{3, 1}, table{5, 2};
  ExtendSegment segment{seq_lens, prefix_lens, table.data(), 1};
};

TEST_F(Expanded, OneShotIsCausalOverPrefixAndNewTokens) {
  const auto passes = plan_one_shot(segment);
  ASSERT_EQ(passes.size(), 1u);
  EXPECT_THAT(passes[0].slots, ElementsAre(320, 321, 322, 323, 324, 128, 129, 130, 131));
  EXPECT_THAT(passes[0].begin, ElementsAre(0, 0, 5, 5, 5));
  EXPECT_THAT(passes[0].end, ElementsAre(4, 5, 7, 8, 9));
}

TEST_F(Expanded, ChunksCoverEveryPrefixOnceAndNoMoreThanTheCapacity) {
  const auto passes = plan_chunked_kv(segment, 4);
  ASSERT_EQ(passes.size(), 3u);
  // New tokens, causal among themselves.
  EXPECT_THAT(passes[0].slots, ElementsAre(323, 324, 129, 130, 131));
  EXPECT_THAT(passes[0].begin, ElementsAre(0, 0, 2, 2, 2));
  EXPECT_THAT(passes[0].end, ElementsAre(1, 2, 3, 4, 5));
  // Two tokens of each prefix at a time.
  EXPECT_THAT(passes[1].slots, ElementsAre(320, 321, 128));
  EXPECT_THAT(passes[1].begin, ElementsAre(0, 0, 2, 2, 2));
  EXPECT_THAT(passes[1].end, ElementsAre(2, 2, 3, 3, 3));
  // The second prefix has ended: its rows see nothing.
  EXPECT_THAT(passes[2].slots, ElementsAre(322));
  EXPECT_THAT(passes[2].begin, ElementsAre(0, 0, 1, 1, 1));
  EXPECT_THAT(passes[2].end, ElementsAre(1, 1, 1, 1, 1));
}

TEST_F(Expanded, ACapacityBelowTheNumberOfSequencesStillAdvances) {
  EXPECT_EQ(plan_chunked_kv(segment, 1).size(), 4u);
}

}  // namespace
}  // namespace sluice
