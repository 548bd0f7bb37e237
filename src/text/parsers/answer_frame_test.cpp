#include "text/parsers/answer_frame.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

// The same for the whole text and for single bytes.
std::string taken(std::string_view text) {
  AnswerFrame whole("<answer>", "</answer>"), bytes("<answer>", "</answer>");
  std::string out = whole.push(text);
  out += whole.finish();
  std::string again;
  for (std::size_t i = 0; i < text.size(); ++i) again += bytes.push(text.substr(i, 1));
  again += bytes.finish();
  EXPECT_EQ(out, again) << text;
  return out;
}

TEST(AnswerFrame, IsTakenOff) {
  EXPECT_EQ(taken("\n<answer>\nRome.\n\nOr not.\n</answer>\n"), "Rome.\n\nOr not.");
  EXPECT_EQ(taken("<answer></answer>"), "");
  EXPECT_EQ(taken("<answer>Rome."), "Rome.");
}

TEST(AnswerFrame, MarksElsewhereAreText) {
  EXPECT_EQ(taken("Use <answer> and </answer>."), "Use <answer> and </answer>.");
  EXPECT_EQ(taken("<answer>a </answer> b</answer>"), "a </answer> b");
  EXPECT_EQ(taken("  x"), "  x");
  EXPECT_EQ(taken("<ans"), "<ans");
  EXPECT_EQ(taken("<<answer>x</answer>"), "<<answer>x</answer>");
  EXPECT_EQ(taken("<answer>a</ans"), "a</ans");
}

}  // namespace
}  // namespace sluice
