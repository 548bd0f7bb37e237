#include "text/parsers/thought_calls.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

const Json kTools =
    Json::parse(R"([{"type": "function", "function": {"name": "ping", "parameters": {}}}])");
const std::string kPing = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";

// What belongs to the thought, a bar, and the calls.
std::string divided(const std::string& text, bool is_cut = false) {
  ThoughtCalls calls("hermes", kTools, "</think>");
  std::string out;
  for (const char c : text) out += calls.push(c);
  const ThoughtCalls::End end = calls.finish(is_cut);
  return out + end.thought + "|" + end.calls;
}

TEST(ThoughtCalls, ACallAtTheEndIsMade) {
  EXPECT_EQ(divided("I call\n" + kPing), "I call\n|" + kPing);
  EXPECT_EQ(divided("a" + kPing + "\n" + kPing + "\n"), "a|" + kPing + "\n" + kPing + "\n");
  EXPECT_EQ(divided("a" + kPing + "\n</think>\n"), "a|" + kPing + "\n");
  // The mark in a string is part of the call.
  const std::string call =
      "<tool_call>{\"name\": \"ping\", \"arguments\": {\"s\": \"</think> "
      "<tool_call>\"}}</tool_call>";
  EXPECT_EQ(divided("a" + call), "a|" + call);
  EXPECT_EQ(divided("a<tool_call>{\"name\": \"ping\"}"), "a|<tool_call>{\"name\": \"ping\"}");
}

TEST(ThoughtCalls, ACallThatTheThoughtGoesOnBehindIsNot) {
  const std::string mused = "I could " + kPing + " here, but no.\n</think>\nWhich?";
  EXPECT_EQ(divided(mused), mused + "|");
  const std::string closed = "Maybe " + kPing + "</think>" + kPing;
  EXPECT_EQ(divided(closed), closed + "|");
  EXPECT_EQ(divided("Not " + kPing + " but " + kPing), "Not " + kPing + " but |" + kPing);
  const std::string lengthy = "So " + kPing + std::string(300, 'x');
  EXPECT_EQ(divided(lengthy), lengthy + "|");
}

TEST(ThoughtCalls, TextBehindTheLastCallIsTheAnswerIfTheThoughtIsNeverClosed) {
  EXPECT_EQ(divided("a" + kPing + "\nDone."), "a|" + kPing + "\nDone.");
  // Cut there, the thought may have gone on.
  EXPECT_EQ(divided("a" + kPing + "\nDone.", true), "a" + kPing + "\nDone.|");
}

TEST(ThoughtCalls, MarksWithoutACallAreText) {
  for (const char* text : {"the <tool_call> mark", "a < b <tool_",
                           "<tool_call>{\"x\": 1}</tool_call>", "<tool_call>", "x </tool_call>"}) {
    EXPECT_EQ(divided(text), std::string(text) + "|");
  }
}

TEST(ThoughtCalls, ACutCallEndsTheThought) {
  const std::string cut = "<tool_call>{\"name\": \"ping\", \"argu";
  EXPECT_EQ(divided("a" + cut, true), "a|" + cut);
}

}  // namespace
}  // namespace sluice
