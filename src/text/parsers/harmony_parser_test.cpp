#include "text/parsers/harmony_parser.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

struct Parsed {
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;
  bool incomplete = false;
  bool operator==(const Parsed&) const = default;
};

Parsed parse(std::string_view text, std::size_t piece, bool reads_calls, bool is_cut,
             std::string_view prompt) {
  HarmonyParser parser(reads_calls);
  parser.start_behind(prompt);
  Parsed out;
  const auto take = [&](const std::vector<ToolEvent>& events) {
    for (const ToolEvent& event : events) {
      if (event.kind == ToolEvent::Kind::kContent) out.content += event.text;
      if (event.kind == ToolEvent::Kind::kReasoning) out.reasoning += event.text;
      if (event.kind == ToolEvent::Kind::kBegin) out.calls.emplace_back(event.name, "");
      if (event.kind == ToolEvent::Kind::kArguments) out.calls.back().second += event.text;
    }
  };
  for (std::size_t at = 0; at < text.size(); at += piece) take(parser.push(text.substr(at, piece)));
  take(parser.finish(is_cut));
  out.incomplete = parser.incomplete();
  return out;
}

Parsed whole(std::string_view text, bool reads_calls = true, bool is_cut = false,
             std::string_view prompt = {}) {
  const Parsed out = parse(text, text.size() + 1, reads_calls, is_cut, prompt);
  for (const std::size_t piece : {1u, 2u, 7u})
    EXPECT_EQ(parse(text, piece, reads_calls, is_cut, prompt), out) << text;
  return out;
}

const std::string kCall = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>";

TEST(HarmonyParser, ChannelsDivideTheOutput) {
  const Parsed out = whole(
      "<|channel|>analysis<|message|>hm <|end|><|start|>assistant<|channel|>commentary<|message|>I "
      "look.<|end|><|start|>assistant" +
      kCall + "{\"a\": \"<|call|> <|end|>\"}<|call|>");
  EXPECT_EQ(out.reasoning, "hm ");
  EXPECT_EQ(out.content, "I look.");
  ASSERT_EQ(out.calls.size(), 1u);
  EXPECT_EQ(out.calls[0].first, "f");
  EXPECT_EQ(out.calls[0].second, "{\"a\": \"<|call|> <|end|>\"}");
  EXPECT_EQ(whole("<|channel|>final<|message|>Rome.<|return|>").content, "Rome.");
}

TEST(HarmonyParser, TheRecipientMakesACallWhereverItStands) {
  for (const char* header : {" to=functions.f<|channel|>commentary <|constrain|>json<|message|>",
                             "<|channel|>analysis to=functions.f code<|message|>",
                             "<|channel|>commentary to=functions.f json<|message|>",
                             "<|start|>assistant to=functions.f<|channel|>commentary<|message|>"}) {
    const Parsed out = whole(std::string(header) + "{}");
    ASSERT_EQ(out.calls.size(), 1u) << header;
    EXPECT_EQ(out.calls[0], std::make_pair(std::string("f"), std::string("{}")));
    EXPECT_EQ(out.content, "");
  }
}

TEST(HarmonyParser, FaultsInArguments) {
  EXPECT_EQ(whole(kCall + "<|call|>").calls[0].second, "{}");
  EXPECT_EQ(whole(kCall + "{'a': None,}<|call|>").calls[0].second, "{\"a\": null}");
  EXPECT_EQ(whole(kCall + "{\"a\": 1").calls[0].second, "{\"a\": 1}");
  const Parsed broken = whole(kCall + "{\"a\": }<|call|>");
  EXPECT_EQ(broken.calls[0].second, "{\"a\": }");
  EXPECT_TRUE(broken.incomplete);
}

// The marks end a message whose string stays open. In a string that is closed they are text.
TEST(HarmonyParser, MarksInAnOpenString) {
  const std::string answer =
      "<|start|>assistant<|channel|>final<|message|>Sorry, \"so\".<|return|>";
  for (const std::size_t size : {2u, 600u}) {
    const std::string city(size, 'R');
    for (const char* end : {"<|end|>", "<|call|>", "<|call|>\n"}) {
      const Parsed out = whole(kCall + "{\"city\": \"" + city + end + answer);
      ASSERT_EQ(out.calls.size(), 1u);
      EXPECT_EQ(out.calls[0].second, "{\"city\": \"" + city);
      EXPECT_EQ(out.content, "Sorry, \"so\".");
      EXPECT_TRUE(out.incomplete);
    }
    const Parsed two = whole(kCall + "{\"a\": \"" + city + "<|call|><|start|>assistant" + kCall +
                             "{\"b\": 1}<|call|>");
    ASSERT_EQ(two.calls.size(), 2u);
    EXPECT_EQ(two.calls[0].second, "{\"a\": \"" + city);
    EXPECT_EQ(two.calls[1].second, "{\"b\": 1}");
    const Parsed last = whole(kCall + "{\"a\": \"" + city + "<|call|>");
    EXPECT_EQ(last.calls[0].second, "{\"a\": \"" + city);
    for (const std::string& text :
         {city + "<|call|> x", city + "<|end|><|start|>assistant<|channel|>final",
          city + "<|start|>", city + "<|end|><|end|>", "<|call|>" + city + "<|cal",
          city + "<|end|>" + std::string(5000, 'y')}) {
      const Parsed out = whole(kCall + "{\"a\": \"" + text + "\"}<|call|>");
      ASSERT_EQ(out.calls.size(), 1u) << text;
      EXPECT_EQ(out.calls[0].second, "{\"a\": \"" + text + "\"}");
      EXPECT_EQ(out.content, "");
      EXPECT_FALSE(out.incomplete);
    }
  }
}

TEST(HarmonyParser, LongArgumentsAreMended) {
  const std::string x(600, 'x');
  const Parsed out = whole(kCall + "{\"a\": \"" + x + "\", \"b\": [True, 'c',],}<|call|>");
  EXPECT_EQ(out.calls[0].second, "{\"a\": \"" + x + "\", \"b\": [true, \"c\"]}");
  EXPECT_FALSE(out.incomplete);
  const Parsed broken = whole(kCall + "{\"a\": \"" + x + "\", , \"b\": 1}<|call|>");
  EXPECT_EQ(broken.calls[0].second, "{\"a\": \"" + x + "\", , \"b\": 1}");
  EXPECT_TRUE(broken.incomplete);
}

// The recipients of other tools take text.
TEST(HarmonyParser, ArgumentsThatAreNoJson) {
  const Parsed out = whole("<|channel|>analysis to=python code<|message|>print(1)<|call|>");
  EXPECT_EQ(out.calls[0], std::make_pair(std::string("python"), std::string("print(1)")));
  EXPECT_TRUE(out.incomplete);
}

// Such a message is text, so no piece of arguments comes without a call.
TEST(HarmonyParser, ACallWithoutAName) {
  const std::string second =
      "<|start|>assistant<|channel|>commentary to=functions.<|constrain|>json<|message|>{\"a\": 1}";
  const Parsed out = whole(kCall + "{}<|call|>" + second + "<|call|>");
  EXPECT_EQ(out.calls.size(), 1U);
  EXPECT_EQ(out.calls[0], std::make_pair(std::string("f"), std::string("{}")));
  EXPECT_EQ(out.content, "{\"a\": 1}");
}

TEST(HarmonyParser, CutTexts) {
  EXPECT_EQ(whole(kCall + "{\"a\": \"x", true, true).calls[0].second, "{\"a\": \"x");
  EXPECT_EQ(whole("<|channel|>commentary to=functions.f", true, true), Parsed{});
  EXPECT_EQ(whole("<|channel|>analysis<|message|>hm", true, true).reasoning, "hm");
}

TEST(HarmonyParser, TextWithoutHeadersIsContent) {
  EXPECT_EQ(whole("Plain text.").content, "Plain text.");
  EXPECT_EQ(whole("a").content, "a");
  EXPECT_EQ(whole("to be or not").content, "to be or not");
}

TEST(HarmonyParser, WithoutToolsCallsAreText) {
  EXPECT_EQ(whole(kCall + "{}<|call|>", false).content, kCall + "{}<|call|>");
}

TEST(HarmonyParser, GoesOnBehindThePrompt) {
  const std::string prompt = "<|start|>user<|message|>Hi<|end|><|start|>assistant";
  EXPECT_EQ(whole("<|channel|>final<|message|>A", true, false, prompt).content, "A");
  EXPECT_EQ(whole("B", true, false, prompt + "<|channel|>final<|message|>A").content, "B");
  EXPECT_EQ(whole("x", true, false, prompt + "<|channel|>analysis<|message|>").reasoning, "x");
}

TEST(HarmonyParser, LongArgumentsStream) {
  HarmonyParser parser(true);
  const std::vector<ToolEvent> events = parser.push(kCall + "{\"a\": \"" + std::string(600, 'x'));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "f");
  EXPECT_GE(events[1].text.size(), 600u);
}

}  // namespace
}  // namespace sluice
