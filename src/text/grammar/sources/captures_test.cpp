// Captures of grammars: spans of named groups, rules and tags, of whole texts and of beginnings.
#include "text/grammar/captures/captures.h"

#include <gtest/gtest.h>

#include "base/testing/source_dir.h"
#include "text/grammar/sources/grammar_source.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice::grammar {
namespace {

std::shared_ptr<const Vocabulary> vocabulary() {
  static const auto tokenizer = Tokenizer::load(source_dir() + "/models/sluice-tiny");
  static const auto made = std::make_shared<const Vocabulary>(*tokenizer, tokenizer->size() + 1);
  return made;
}

GrammarSource regex(std::string text) {
  return {.kind = GrammarSource::kRegex, .text = std::move(text)};
}
GrammarSource rules(std::string text) {
  return {.kind = GrammarSource::kEbnf, .text = std::move(text)};
}
GrammarSource tag(std::string text) {
  return {.kind = GrammarSource::kStructuralTag, .text = std::move(text), .max_white_space = 64};
}

// "name=text" of each capture, with blanks between; "?" where the text is none of the grammar.
std::string read(const GrammarSource& source, std::string_view text, bool is_whole = true) {
  const auto reader = compile_captures(source, *vocabulary());
  if (!reader) return reader.fault().code + ": " + reader.fault().message;
  const auto found = (*reader)->read(text, is_whole);
  if (!found) return "?";
  std::string out;
  for (const Capture& one : found->captures)
    out +=
        (*reader)->name(one) + "=" + std::string(text.substr(one.begin, one.end - one.begin)) + " ";
  return out;
}

TEST(Captures, OfNamedGroups) {
  EXPECT_EQ(read(regex(R"((?P<year>\d{4})-(?<month>\d\d))"), "2026-11"), "year=2026 month=11 ");
  EXPECT_EQ(read(regex(R"(^(?P<all>(?P<in>a+)b)$)"), "aab"), "in=aa all=aab ");
  EXPECT_EQ(read(regex(R"((?:(?P<x>[a-z]+),?)*)"), "ab,c,d"), "x=ab x=c x=d ");
  EXPECT_EQ(read(regex(R"((?P<x>ä|€)+!)"), "€ä!"), "x=€ x=ä ");
  EXPECT_EQ(read(regex(R"((?P<a>x)|(?P<b>y))"), "y"), "b=y ");
  EXPECT_EQ(read(regex(R"((?P<a>x)?y)"), "y"), "");
  EXPECT_EQ(read(regex(R"((?P<a>)y)"), "y"), "a= ");
  EXPECT_EQ(read(regex(R"((?i)(?P<a>ab)C)"), "AbC"), "a=Ab ");
}

TEST(Captures, OfTheFirstWayThroughAPattern) {
  EXPECT_EQ(read(regex(R"((?P<a>x*)(?P<b>x*))"), "xxx"), "a=xxx b= ");
  EXPECT_EQ(read(regex(R"((?P<a>x*?)(?P<b>x*))"), "xxx"), "a= b=xxx ");
  EXPECT_EQ(read(regex(R"((?P<a>x+?)(?P<b>x{1,2}))"), "xxx"), "a=x b=xx ");
  EXPECT_EQ(read(regex(R"((?P<a>a|ab)(?P<b>c|bcd)(?P<c>d*))"), "abcd"), "a=a b=bcd c= ");
  EXPECT_EQ(read(regex(R"((a|ab)(?P<b>c|bcd)(?P<c>d*))"), "abcd"), "b=bcd c= ");
  EXPECT_EQ(read(regex(R"((?P<a>x{0,2})(?P<b>x{2,3}))"), "xxx"), "a=x b=xx ");
  EXPECT_EQ(read(regex(R"((?P<a>x{0,2}?)(?P<b>x{1,2}))"), "xxx"), "a=x b=xx ");
  EXPECT_EQ(read(regex(R"((?P<a>.*)(?P<b>\d+)(?P<c>.*))"), "in 2026."), "a=in 202 b=6 c=. ");
  EXPECT_EQ(read(regex(R"((?P<a>.*?)(?P<b>\d+)(?P<c>.*))"), "in 2026."), "a=in  b=2026 c=. ");
  EXPECT_EQ(read(regex(R"((?P<a>x??)(?P<b>x?))"), "x"), "a= b=x ");
}

TEST(Captures, OfRoundsWithoutText) {
  EXPECT_EQ(read(regex(R"((?P<a>x*)*y)"), "xxy"), "a=xx a= ");
  EXPECT_EQ(read(regex(R"((?:|(?P<a>x))*y)"), "xxy"), "a=x a=x ");
  EXPECT_EQ(read(regex(R"((?P<a>x?){3,5}y)"), "xy"), "a=x a= ");
}

TEST(Captures, OfRulesThatAskForThem) {
  const std::string grammar = R"lark(start: key "=" value ("," key "=" value)*
key[capture]: /[a-z]+/
value[capture="v"]: NUMBER | "(" start ")"
%import common.NUMBER
)lark";
  EXPECT_EQ(read(rules(grammar), "a=1,b=2.5"), "key=a v=1 key=b v=2.5 ");
  EXPECT_EQ(read(rules(grammar), "a=(b=1)"), "key=a key=b v=1 v=(b=1) ");
  EXPECT_EQ(read(rules("root ::= \"<\" name \">\"\nname[capture] ::= [a-z]+ | \"(\" name \")\""),
                 "<(ab)>"),
            "name=ab name=(ab) ");
  EXPECT_EQ(read(rules("root[ capture = \"all\" ] ::= [a-z]+"), "ab"), "all=ab ");
}

TEST(Captures, LeaveWhatIsIgnoredAside) {
  EXPECT_EQ(read(rules("start: word+\nword[capture]: /[a-z]+/ mark?\nmark: \"!\"\n%ignore / +/"),
                 "  ab  cd !  e"),
            "word=ab word=cd ! word=e ");
}

TEST(Captures, OfLeftRecursion) {
  const std::string list = "start: list\nlist: list \",\" item | item\nitem[capture]: /[a-z]/\n";
  EXPECT_EQ(read(rules(list), "a,b,c"), "item=a item=b item=c ");
  // What is empty where such a rule begins has no capture.
  EXPECT_EQ(read(rules("start: list\nlist: list list \",\" item | item\nitem[capture]: /[a-z]/?\n"),
                 "a,b,,c"),
            "item=a item=b item= item=c ");
  EXPECT_EQ(read(rules("start: list\nlist[capture]: list \",\" /[a-z]/ | /[a-z]/\n"), "a,b"),
            "unsupported_captures: The part 'list' cannot be captured: it begins with the rule "
            "'list', which begins with that part again. Capture a part that uses it.");
}

// Many ways to nest: a matcher that only goes back would need 2^n steps.
TEST(Captures, OfNestedAlternatives) {
  const std::string grammar = "start: n\nn: \"a\" n \"b\" | \"a\" n \"c\" | m\nm[capture]: \"m\"\n";
  const std::string text = std::string(60, 'a') + "m" + std::string(60, 'c');
  EXPECT_EQ(read(rules(grammar), text), "m=m ");
}

TEST(Captures, OfTags) {
  EXPECT_EQ(read(tag(R"({"type":"structural_tag","format":{"type":"sequence","elements":[
      {"type":"tag","begin":"<a>","content":{"type":"any_text"},"end":"</a>","capture":"inner"},
      {"type":"regex","pattern":"(?P<n>\\d)+"},
      {"type":"json_schema","json_schema":{"type":"object"},"capture":"json"}]}})"),
                 R"(<a>x < y</a>12{"k": [1]})"),
            "inner=x < y n=1 n=2 json={\"k\": [1]} ");
  const std::string calls = R"({"type":"structural_tag","format":{"type":"triggered_tags",
      "triggers":["<f="],"tags":[
      {"begin":"<f=a>","content":{"type":"json_schema","json_schema":{"type":"integer"}},
       "end":"</f>","capture":"a"},
      {"begin":"<f=b>","content":{"type":"grammar","grammar":"start: w\nw[capture]: /[a-z]+/"},
       "end":"</f>"}]}})";
  EXPECT_EQ(read(tag(calls), "So <f=a>12</f> and <f=b>xy</f>.\n<f=a>3</f>"), "a=12 w=xy a=3 ");
}

TEST(Captures, OfABeginningAreThoseThatAreCertain) {
  const GrammarSource date = regex(R"((?P<year>\d{4})-(?P<month>\d\d?))");
  EXPECT_EQ(read(date, "", false), "");
  EXPECT_EQ(read(date, "20", false), "");
  EXPECT_EQ(read(date, "2026-", false), "year=2026 ");
  EXPECT_EQ(read(date, "2026-1", false), "year=2026 ");
  EXPECT_EQ(read(regex(R"((?P<a>ab)(?P<b>c*))"), "ab", false), "a=ab ");
  EXPECT_EQ(read(regex(R"((?P<a>ab)(?P<b>c*))"), "ac", false), "?");
  EXPECT_EQ(read(date, "2026-", true), "?");
}

TEST(Captures, OfAnswersBehindThoughts) {
  GrammarSource source = regex(R"((?P<x>\d+))");
  source.think_open = "<think>";
  source.think_close = "</think>";
  const auto reader = compile_captures(source, *vocabulary());
  ASSERT_TRUE(reader.ok());
  const std::string text = "<think>is it 7?</think>\n\n42";
  const auto found = (*reader)->read(text, true);
  ASSERT_TRUE(found && found->captures.size() == 1);
  EXPECT_EQ(found->answer_begin, text.size() - 2);
  EXPECT_EQ(found->captures[0].begin, text.size() - 2);
}

TEST(Captures, AreRefusedByName) {
  EXPECT_TRUE(read(regex("[a-z]+"), "a").starts_with("no_captures: "));
  EXPECT_TRUE(
      read(regex(R"((?P<a>x)\b.*)"), "x")
          .starts_with(
              "unsupported_captures: The regular expression has a word boundary at character 9"));
  EXPECT_TRUE(read(regex(R"((?=x)(?P<a>x))"), "x").starts_with("unsupported_captures: "));
  EXPECT_TRUE(read(regex(R"((?P<a>x|^y))"), "x").starts_with("a=x"));
  EXPECT_TRUE(
      read(regex(R"((?P<a>x$)?y?)"), "x")
          .starts_with(
              "unsupported_captures: The regular expression has an anchor inside at character "));
  EXPECT_TRUE(read(rules("start[max_tokens=3]: /x/\n"), "x")
                  .starts_with("unsupported_grammar: The grammar has the attribute 'max_tokens'"));
  EXPECT_TRUE(read(rules("start[capture=x]: /x/\n"), "x").starts_with("invalid_grammar: "));
  EXPECT_TRUE(read(rules("start: A\nA[capture]: /x/\n"), "x").starts_with("unsupported_grammar: "));
  EXPECT_TRUE(read(tag(R"({"format":{"type":"any_text","capture":3}})"), "x")
                  .starts_with("invalid_structural_tag: "));
}

// The masks are those of the grammar without captures, and captures follow a rollback.
TEST(Captures, FollowTheConstraint) {
  const GrammarSource source = rules("start: a b\na[capture]: /x+/\nb[capture]: /[xy]+/\n");
  const auto compiled = compile(source, vocabulary());
  ASSERT_TRUE(compiled.ok());
  const auto reader = compile_captures(source, *vocabulary());
  ASSERT_TRUE(reader.ok());
  const std::int32_t stop = vocabulary()->size() - 1;
  Constraint constraint(*compiled, {stop});
  const auto put = [&](std::string_view text) {
    for (const char c : text) {
      std::int32_t token = 0;
      while (vocabulary()->bytes(token) != std::string_view(&c, 1)) ++token;
      ASSERT_TRUE(constraint.accept(token));
    }
  };
  const auto now = [&] {
    std::string out;
    const auto found = (*reader)->read(constraint);
    for (const Capture& one : found->captures)
      out += (*reader)->name(one) + "=" + constraint.text().substr(one.begin, one.end - one.begin) +
             " ";
    return out;
  };
  put("xxyx");
  EXPECT_EQ(now(), "a=xx ");
  EXPECT_TRUE(constraint.accept(stop));
  EXPECT_EQ(now(), "a=xx b=yx ");
  constraint.rollback(3);
  put("x");
  EXPECT_TRUE(constraint.accept(stop));
  EXPECT_EQ(now(), "a=xx b=x ");
}

}  // namespace
}  // namespace sluice::grammar
