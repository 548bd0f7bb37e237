#include "server/api/answer_parts.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(ArgumentsObject, HalvesOfSurrogatePairsAreReplaced) {
  struct Row {
    const char* text;
    Json expected;
  };
  const Row rows[] = {
      {"", Json::object()},
      {R"({"a": "\ud83d\ude00"})", {{"a", "\U0001F600"}}},
      {R"({"a": "\ud83d"})", {{"a", "\uFFFD"}}},
      {R"({"a": "\ude00\ud83d", "b": 1})", {{"a", "\uFFFD\uFFFD"}, {"b", 1}}},
      {R"({"a": "\ud83d\ud83d\ude00"})", {{"a", "\uFFFD\U0001F600"}}},
      {R"({"a": "\\ud83d \ud83d"})", {{"a", "\\ud83d \uFFFD"}}},
      {R"({"a": "\ud83d)", {{"INVALID_JSON", R"({"a": "\ud83d)"}}},
      {R"({"a": "\ud8)", {{"INVALID_JSON", R"({"a": "\ud8)"}}},
      {R"([1])", {{"INVALID_JSON", "[1]"}}},
  };
  for (const Row& row : rows) EXPECT_EQ(arguments_object(row.text), row.expected) << row.text;
}

}  // namespace
}  // namespace sluice
