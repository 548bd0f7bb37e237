#include "base/nearest_name.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

TEST(NearestName, EditsAreCounted) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("temprature", "temperature"), 1u);
  EXPECT_EQ(edit_distance("ab", "ba"), 1u);  // neighbours swapped
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(NearestName, AtMostAThirdOfTheLettersIsWrong) {
  const std::string_view known[] = {"serve", "show", "plan"};
  EXPECT_EQ(nearest_name("serv", known), "serve");
  EXPECT_EQ(nearest_name("shwo", known), "show");
  EXPECT_EQ(nearest_name("zebra", known), "");
  EXPECT_EQ(nearest_name("", known), "");
  EXPECT_EQ(nearest_name(std::string(65, 's'), known), "");
}

}  // namespace
}  // namespace sluice
