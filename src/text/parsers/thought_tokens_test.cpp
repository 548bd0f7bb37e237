#include "text/parsers/thought_tokens.h"

#include <gtest/gtest.h>

#include "text/parsers/chat_output.h"

namespace sluice {
namespace {

struct Row {
  const char* name;
  const char* reasoning_parser;
  const char* tool_parser;
  const char* prompt;
  std::vector<const char*> tokens;
  int expected;         // of the whole answer
  bool is_cut = false;  // the answer ends where the engine cut it
};

const Row kRows[] = {
    {"marks are none", "glm45", "", "", {"<think>", "a", " b", "</think>", "\n", "c"}, 2},
    {"an empty thought", "glm45", "", "", {"<think>", "</think>", "c"}, 0},
    {"line breaks beside marks", "glm45", "", "", {"<think>", "\n", "a", "\n", "</think>", "c"}, 3},
    {"no thought", "glm45", "", "", {"c", " <think>", "d"}, 0},
    {"opened by the prompt", "glm45", "", "<think>", {"a", " b", "</think>", "c"}, 2},
    {"opened twice", "glm45", "", "<think>", {"<think>", "a", "</think>", "c"}, 1},
    {"closed by the prompt", "glm45", "", "<think></think>", {"a", "b"}, 0},
    {"marks of several tokens",
     "granite",
     "",
     "",
     {"Here", " is my", " thought process:", " a", " b.", " Here", " is my", " response:", " c"},
     // The space before the closing mark begins in the thought.
     3},
    {"a beginning of a mark is thought",
     "kimi",
     "",
     "◁think▷",
     {"a", "◁/", "thin", "g", "◁/think▷"},
     4},
    {"open at the end", "glm45", "", "", {"<think>", "a", " b", "</th"}, 3, true},
    {"a token without text", "glm45", "", "", {"<think>", "", "a", "", "</think>", "", "c"}, 2},
    {"channels",
     "openai_gptoss",
     "",
     "<|start|>assistant",
     {"<|channel|>", "analysis",    "<|message|>", "a",           " b", "<|end|>", "<|start|>",
      "assistant",   "<|channel|>", "analysis",    "<|message|>", "c",  "<|end|>", "<|start|>",
      "assistant",   "<|channel|>", "final",       "<|message|>", "d",  " e"},
     3},
    {"a channel of the prompt",
     "openai_gptoss",
     "",
     "<|start|>assistant<|channel|>analysis<|message|>a",
     {" b", "<|end|>", "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "c"},
     1},
    {"a call ends the thought",
     "qwen3",
     "hermes",
     "<think>",
     {"a", " b", "<tool_call>", "{\"name\": \"f\",", " \"arguments\": {}}", "</tool_call>"},
     2},
    {"a call that was only thought of",
     "qwen3",
     "hermes",
     "<think>",
     {"a", "<tool_call>", "{\"name\": \"f\",", " \"arguments\": {}}", "</tool_call>", " b",
      "</think>", "c"},
     6},
};

// The count after the tokens, `size` in each piece. The text comes `lag` bytes late, as a stop
// string holds it.
int count(const Row& row, std::size_t size, std::size_t lag) {
  ChatOutputSettings settings;
  settings.reasoning_parser = row.reasoning_parser;
  settings.tool_parser = row.tool_parser;
  settings.prompt = row.prompt;
  settings.tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  ChatOutput output(settings);
  ChatDelta delta;
  std::string text;
  std::size_t sent = 0;
  for (std::size_t i = 0; i < row.tokens.size(); i += size) {
    std::vector<std::size_t> starts;
    for (std::size_t k = i; k < std::min(i + size, row.tokens.size()); ++k) {
      starts.push_back(text.size());
      text += row.tokens[k];
    }
    const std::size_t end = std::max(sent, text.size() - std::min(lag, text.size()));
    const int before = output.reasoning_tokens();
    output.push(std::string_view(text).substr(sent, end - sent), delta, starts);
    EXPECT_GE(output.reasoning_tokens(), before);
    sent = end;
  }
  output.push(std::string_view(text).substr(sent), delta);
  output.finish(delta, row.is_cut);
  return output.reasoning_tokens();
}

TEST(ThoughtTokens, AreThoseBetweenTheMarksHoweverTheyArrive) {
  for (const Row& row : kRows)
    for (std::size_t size = 1; size <= row.tokens.size(); ++size)
      for (const std::size_t lag : {0, 1, 5, 1000})
        EXPECT_EQ(count(row, size, lag), row.expected) << row.name << ", " << size << ", " << lag;
}

TEST(ThoughtTokens, WaitUntilTheTextIsDivided) {
  ThoughtTokens tokens;
  const std::vector<std::size_t> starts = {0, 2, 4, 6};
  tokens.add(starts);
  tokens.settle({}, 2);
  EXPECT_EQ(tokens.count(), 0);
  const std::vector<ThoughtRange> ranges = {{.begin = 2}};
  tokens.settle(ranges, 5);
  EXPECT_EQ(tokens.count(), 2);
  tokens.settle(ranges, kTextEnd);
  EXPECT_EQ(tokens.count(), 3);
}

}  // namespace
}  // namespace sluice
