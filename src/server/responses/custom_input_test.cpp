#include "server/responses/custom_input.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(CustomInput, IsTheTextSoFar) {
  struct Row {
    const char* arguments;
    const char* expected;
  };
  const Row rows[] = {
      {R"({"input": "ls -l"})", "ls -l"},
      {R"({"input": "ls -l")", "ls -l"},
      {R"({"input": "ls -l)", "ls -l"},
      {R"( { "input" : "ls)", "ls"},
      {R"({"input": ")", ""},
      {R"({"input": )", ""},
      {R"({"input")", ""},
      {R"({"inp)", ""},
      {"{", ""},
      {"", ""},
      {"{}", ""},
      {R"({"input": "a\n\"b\"\\)", "a\n\"b\"\\"},
      {R"({"input": "a\)", "a"},
      {R"({"input": "a\u00)", "a"},
      {R"({"input": "a\u00e9)", "a\u00e9"},
      {R"({"input": "a\ud83d)", "a"},
      {R"({"input": "a\ud83d\ude)", "a"},
      {R"({"input": "a\ud83d\ude00)", "a\U0001F600"},
      {R"({"input": "a\ud83d b)", "a\uFFFD b"},
      {R"({"input": "a\\ud83d)", "a\\ud83d"},
      {R"({"input": 5})", "5"},
      {R"({"input": 5)", "5"},
      {R"({"code": "ls"})", R"({"code": "ls"})"},
      {"print(1)", "print(1)"},
  };
  for (const Row& row : rows) EXPECT_EQ(custom_input(row.arguments), row.expected) << row.arguments;
}

}  // namespace
}  // namespace sluice
