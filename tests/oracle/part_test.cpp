#include "part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace sluice::oracle {
namespace {

TEST(Part, EachGroupIsInExactlyOnePartAndPartsAreEqual) {
  constexpr int kGroups = 531;
  for (const int of : {1, 2, 3, 4, 7, 8, 600}) {
    std::vector<int> runs(kGroups, 0);
    std::int64_t least = kGroups, most = 0;
    for (int number = 1; number <= of; ++number) {
      Part part = Part::parse(std::to_string(number) + "/" + std::to_string(of));
      for (int& run : runs) run += part.next();
      EXPECT_EQ(part.seen, kGroups);
      least = std::min(least, part.taken);
      most = std::max(most, part.taken);
    }
    EXPECT_EQ(std::ranges::count(runs, 1), kGroups) << of;
    EXPECT_LE(most - least, 1) << of;
  }
}

// Families alternate between kinds of groups; no part has one kind alone.
TEST(Part, GroupsThatAlternateAreInAllParts) {
  for (const int number : {1, 2}) {
    Part part{.number = number, .of = 2};
    int even = 0, odd = 0;
    for (int i = 0; i < 100; ++i) (i % 2 == 0 ? even : odd) += part.next();
    EXPECT_EQ(even, 25);
    EXPECT_EQ(odd, 25);
  }
}

TEST(Part, OtherWordsAreRefused) {
  for (const char* text : {"", "1", "/", "1/", "/2", "0/2", "3/2", "-1/2", "1/0", "1/2/3", "1/2 ",
                           " 1/2", "a/2", "1/b", "1.0/2", "99999999999999999999/2"})
    EXPECT_THROW(Part::parse(text), Error) << text;
  const Part part = Part::parse("2/4");
  EXPECT_EQ(part.number, 2);
  EXPECT_EQ(part.of, 4);
}

}  // namespace
}  // namespace sluice::oracle
