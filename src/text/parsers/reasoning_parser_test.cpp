#include "text/parsers/reasoning_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace sluice {
namespace {

ReasoningStart start_of(bool is_inside) {
  return is_inside ? ReasoningStart::kInside : ReasoningStart::kUnknown;
}

ReasoningDelta whole(std::string_view name, bool inside, std::string_view text,
                     std::size_t piece = std::string::npos) {
  ReasoningParser parser = ReasoningParser::create(name, start_of(inside));
  ReasoningDelta out;
  const auto add = [&](const ReasoningDelta& delta) {
    out.reasoning += delta.reasoning;
    out.content += delta.content;
  };
  for (std::size_t at = 0; at < text.size(); at += std::min(piece, text.size() - at))
    add(parser.push(text.substr(at, piece)));
  add(parser.finish());
  return out;
}

struct Row {
  const char* parser;
  bool inside;
  const char* text;
  const char* reasoning;
  const char* content;
};

const Row kRows[] = {
    {"glm45", false, "<think></think>\nThe answer.", "", "The answer."},
    {"glm45", false, "<think>\nhm\n\nso\n</think>\n\nA\nB\n", "hm\n\nso", "A\nB\n"},
    {"glm45", false, "\n <think>x</think>y", "x", "y"},
    {"glm45", true, "x</think>y", "x", "y"},
    {"glm45", true, "\n<think>x</think>y", "x", "y"},
    {"glm45", false, "No thoughts. <think>x</think>", "", "No thoughts. <think>x</think>"},
    {"glm45", false, "<thin", "", "<thin"},
    {"glm45", false, "<thinX", "", "<thinX"},
    {"glm45", false, "<</think>y", "", "<</think>y"},
    {"glm45", false, "<<think>x</think>y", "", "<<think>x</think>y"},
    {"glm45", false, "<think>never closed\n", "never closed", ""},
    {"glm45", false, "<think>a </thin b</think>c", "a </thin b", "c"},
    {"glm45", false, "<think>a<think>b</think>c</think>d", "a<think>b", "c</think>d"},
    {"glm45", true, "<thought></think>y", "<thought>", "y"},
    {"glm45", true, "a</thin", "a</thin", ""},
    {"glm45", false, "", "", ""},
    {"glm45", false, "  ", "", "  "},
    {"glm45", true, "<think>\n<think>x</think>y", "<think>x", "y"},
    {"kimi", false, "◁think▷问◁/think▷答", "问", "答"},
    {"mistral", false, "[THINK]a[/THINK]b", "a", "b"},
    {"deepseek_r1", true, "a\n</think>\n\nb", "a", "b"},
    {"qwen3", false, "plain </think> text", "", "plain </think> text"},
};

TEST(ReasoningParser, Rows) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.text);
    const ReasoningDelta out = whole(row.parser, row.inside, row.text);
    EXPECT_EQ(out.reasoning, row.reasoning);
    EXPECT_EQ(out.content, row.content);
  }
}

TEST(ReasoningParser, AnyCutGivesTheSame) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.text);
    const std::string_view text = row.text;
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      ReasoningParser parser = ReasoningParser::create(row.parser, start_of(row.inside));
      const ReasoningDelta a = parser.push(text.substr(0, cut)), b = parser.push(text.substr(cut)),
                           c = parser.finish();
      EXPECT_EQ(a.reasoning + b.reasoning + c.reasoning, row.reasoning) << cut;
      EXPECT_EQ(a.content + b.content + c.content, row.content) << cut;
    }
    EXPECT_EQ(whole(row.parser, row.inside, text, 1).content, row.content);
  }
}

TEST(ReasoningParser, ACutInsideTheOpeningMarkLeavesNoneOfIt) {
  for (const bool is_cut : {true, false}) {
    ReasoningParser parser = ReasoningParser::create("gemma4", ReasoningStart::kUnknown);
    EXPECT_EQ(parser.push("<|channel>tho").content, "");
    EXPECT_EQ(parser.finish(is_cut).content, is_cut ? "" : "<|channel>tho");
  }
  ReasoningParser words = ReasoningParser::create("qwen3", ReasoningStart::kUnknown);
  words.push("<thi");
  EXPECT_EQ(words.finish(true).content, "<thi");
}

// For any input, only marks and the newlines beside them are removed.
TEST(ReasoningParser, RandomTextKeepsItsLetters) {
  const std::string pieces[] = {"<think>", "</think>", "<", "think", ">", "/",
                                "\n",      " ",        "a", "世",    "</"};
  std::mt19937 random(3);
  for (int round = 0; round < 5'000; ++round) {
    std::string text;
    for (int i = static_cast<int>(random() % 12); i > 0; --i)
      text += pieces[random() % std::size(pieces)];
    const bool inside = random() % 2 == 0;
    const ReasoningDelta all = whole("qwen3", inside, text),
                         bytes = whole("qwen3", inside, text, 1);
    ASSERT_EQ(all.reasoning, bytes.reasoning) << text;
    ASSERT_EQ(all.content, bytes.content) << text;
    const auto letters = [](std::string_view t) { return std::count(t.begin(), t.end(), 'a'); };
    ASSERT_EQ(letters(text), letters(all.reasoning) + letters(all.content)) << text;
  }
}

TEST(ReasoningParser, PromptsSayWhereTheOutputBegins) {
  using enum ReasoningStart;
  EXPECT_EQ(reasoning_start("<|assistant|>\n<think>\n", "glm45"), kInside);
  EXPECT_EQ(reasoning_start("<|assistant|>\n", "glm45"), kUnknown);
  EXPECT_EQ(reasoning_start("<|assistant|>\n<think></think>\n", "glm45"), kBehind);
  EXPECT_EQ(reasoning_start("<｜Assistant｜>", "deepseek-r1"), kInside);
  EXPECT_EQ(reasoning_start("<｜Assistant｜>", "deepseek-r1", true), kUnknown);
  EXPECT_EQ(reasoning_start("<think>\n\n</think>\n\n", "qwen3-thinking"), kBehind);
  EXPECT_EQ(reasoning_start("◁think▷", "kimi"), kInside);
  EXPECT_EQ(reasoning_start("<|turn>model\n<|channel>thought\n", "gemma4"), kInside);
}

TEST(ReasoningParser, BehindAClosedBlockAllIsAnswer) {
  ReasoningParser parser = ReasoningParser::create("glm45", ReasoningStart::kBehind);
  EXPECT_EQ(parser.push("<think>x</think>y").content, "<think>x</think>y");
}

TEST(ReasoningParser, KindsWithoutMarks) {
  const ReasoningDelta same = whole("identity", true, "<think>x</think>y", 3);
  EXPECT_EQ(same.content, "<think>x</think>y");
  const ReasoningDelta appended = whole("minimax_append_think", true, "x</think>y", 2);
  EXPECT_EQ(appended.content, "<think>x</think>y");
  EXPECT_EQ(appended.reasoning, "");
  const ReasoningDelta spelled =
      whole("granite", false, "Here's my thought process: a Here is my response: b");
  EXPECT_EQ(spelled.reasoning, " a ");
  EXPECT_EQ(spelled.content, " b");
}

TEST(ReasoningParser, UnknownNameListsTheKnownOnes) {
  try {
    ReasoningParser::create("nosuch", ReasoningStart::kUnknown);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    for (const std::string& name : known_reasoning_parsers())
      EXPECT_NE(error.message().find(name), std::string::npos);
  }
  EXPECT_EQ(reasoning_parser_name("deepseek-r1"), "deepseek_r1");
  EXPECT_THROW(reasoning_parser_name(""), Error);
}

}  // namespace
}  // namespace sluice
