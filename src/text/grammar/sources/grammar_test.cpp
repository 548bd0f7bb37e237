#include "text/grammar/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/grammar/left_recursion.h"
#include "text/grammar/machine.h"
#include "text/grammar/sources/ebnf.h"

namespace sluice::grammar {
namespace {

using testing::HasSubstr;

// A program and its machine, byte by byte.
class Runner {
 public:
  Runner(Grammar grammar, NodeId root) {
    EXPECT_TRUE(remove_left_recursion(grammar).ok());
    Result<Program> made = make_program(grammar, root);
    if (!made) {
      ADD_FAILURE() << made.fault().message;
      return;
    }
    program_ = std::make_unique<Program>(std::move(*made));
    machine_ = std::make_unique<Machine>(*program_, grammar.languages().store(), Budget{});
  }
  bool accepts(std::string_view text) {
    StateId at = machine_->begin({{}, true});
    for (std::size_t i = 0; i < text.size(); ++i) {
      at = machine_->step(at, static_cast<unsigned char>(text[i]), {text.substr(0, i + 1), true});
      if (at == Machine::kDead) return false;
    }
    return machine_->can_end(at);
  }
  // Whether `text` is the beginning of some text.
  bool begins(std::string_view text) {
    StateId at = machine_->begin({{}, true});
    for (std::size_t i = 0; i < text.size(); ++i)
      at = machine_->step(at, static_cast<unsigned char>(text[i]), {text.substr(0, i + 1), true});
    return at != Machine::kDead;
  }
  Machine& machine() { return *machine_; }

 private:
  std::unique_ptr<Program> program_;
  std::unique_ptr<Machine> machine_;
};

Runner ebnf(std::string_view text) {
  Grammar grammar;
  const Result<NodeId> root = parse_ebnf(grammar, text);
  EXPECT_TRUE(root.ok()) << (root.ok() ? "" : root.fault().message);
  return Runner(std::move(grammar), root.ok() ? root.value() : grammar.empty());
}

TEST(Grammar, CountsOfAnySizeAreExact) {
  Grammar grammar;
  const NodeId pair = grammar.sequence({grammar.bytes("x"), grammar.bytes("y")});
  const NodeId root = grammar.repeat(pair, 3, 5);
  Runner runner(std::move(grammar), root);
  for (int count = 0; count < 8; ++count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "xy";
    EXPECT_EQ(runner.accepts(text), count >= 3 && count <= 5) << count;
  }
}

TEST(Grammar, RecursionNests) {
  Runner runner = ebnf("root ::= \"(\" root \")\" | \"x\"");
  EXPECT_TRUE(runner.accepts("x"));
  EXPECT_TRUE(runner.accepts("((x))"));
  EXPECT_FALSE(runner.accepts("((x)"));
  EXPECT_FALSE(runner.accepts("(x))"));
}

TEST(Grammar, LeftRecursionIsTheSameLanguage) {
  Runner sum = ebnf("root ::= root \"+\" item | item\nitem ::= [0-9]+");
  EXPECT_TRUE(sum.accepts("1+22+3"));
  EXPECT_FALSE(sum.accepts("+1"));
  EXPECT_FALSE(sum.accepts("1+"));
  Runner mixed = ebnf("root ::= a\na ::= b \"x\" | \"s\"\nb ::= a \"y\" | \"t\"");
  EXPECT_TRUE(mixed.accepts("syxyx"));
  EXPECT_TRUE(mixed.accepts("tx"));
  EXPECT_FALSE(mixed.accepts("tyx"));
  Runner hidden = ebnf("root ::= opt root \",\" | \"i\"\nopt ::= \"!\"?");
  EXPECT_TRUE(hidden.accepts("i"));
  EXPECT_TRUE(hidden.accepts("!i,,"));
  EXPECT_TRUE(hidden.accepts("!!i,,"));
  EXPECT_FALSE(hidden.accepts("!i"));
  Runner empty = ebnf("root ::= root root | \"a\" | \"\"");
  EXPECT_TRUE(empty.accepts(""));
  EXPECT_TRUE(empty.accepts("aaaa"));
  EXPECT_FALSE(empty.accepts("ab"));
}

TEST(Grammar, AmbiguityThatDoublesWithDepthStaysSmall) {
  // Without factoring, each '(' begins a pair and a group.
  Runner runner = ebnf("root ::= \"(\" root \")\" | \"(\" root \",\" root \")\" | \"x\"");
  const std::string open(400, '('), close(400, ')');
  EXPECT_TRUE(runner.accepts(open + "x" + close));
  EXPECT_FALSE(runner.accepts(open + "x" + close + ")"));
  EXPECT_LT(runner.machine().bytes(), 4u << 20);
}

TEST(Grammar, RuleWithoutAnEndIsRefused) {
  Grammar grammar;
  const NodeId root = parse_ebnf(grammar, "root ::= \"a\" root").value();
  EXPECT_EQ(make_program(grammar, root).fault().code, "unsatisfiable_grammar");
}

TEST(Grammar, DeadAlternativesAreLeftOut) {
  Runner runner = ebnf("root ::= \"a\" dead | \"b\"\ndead ::= \"x\" dead");
  EXPECT_TRUE(runner.accepts("b"));
  EXPECT_FALSE(runner.begins("a"));
}

TEST(Grammar, StringsTakeEverySpellingOfJson) {
  Grammar grammar;
  const NodeId root = grammar.json_string(grammar.languages().literal("\u00e9/\U0001F600"));
  Runner runner(std::move(grammar), root);
  EXPECT_TRUE(runner.accepts("\"\u00e9/\U0001F600\""));
  EXPECT_TRUE(runner.accepts("\"\\u00e9\\/\\ud83d\\uDE00\""));
  EXPECT_FALSE(runner.begins("\"\\u00e8"));
  EXPECT_FALSE(runner.begins("\"\u00e9/\\ud83e"));
  EXPECT_FALSE(runner.begins("\"\\n"));
}

TEST(Grammar, LengthsCountCharacters) {
  Grammar grammar;
  const NodeId root = grammar.json_string(grammar.languages().any_text(), 2, 3);
  Runner runner(std::move(grammar), root);
  EXPECT_FALSE(runner.accepts("\"a\""));
  EXPECT_TRUE(runner.accepts("\"a\\u00e9\""));
  EXPECT_TRUE(runner.accepts("\"\U0001F600\U0001F600\U0001F600\""));
  EXPECT_FALSE(runner.begins("\"abcd"));
  EXPECT_FALSE(runner.begins("\"abc\\"));
}

TEST(Grammar, PatternAndLengthLeaveNoDeadEnd) {
  Grammar grammar;
  const LanguageId pairs = grammar.languages().regex("(ab)+c?").value();
  const NodeId root = grammar.json_string(pairs, 5, 6);
  Runner runner(std::move(grammar), root);
  EXPECT_TRUE(runner.accepts("\"ababc\""));
  EXPECT_TRUE(runner.accepts("\"ababab\""));
  EXPECT_FALSE(runner.accepts("\"abab\""));
  EXPECT_FALSE(runner.begins("\"abc"));
  EXPECT_FALSE(runner.begins("\"abababc"));
}

NodeId number(Grammar& grammar) {
  return grammar.any_json_number();
}

TEST(Grammar, ObjectsInDeclaredOrder) {
  Grammar grammar;
  const NodeId space = grammar.white_space(4);
  ObjectSpec spec;
  spec.members = {
      {"a", number(grammar), false}, {"ab", number(grammar), true}, {"c", number(grammar), false}};
  spec.extras = {{grammar.languages().any_text(), grammar.bytes("true")}};
  spec.space = space;
  const NodeId root = grammar.object(std::move(spec));
  Runner runner(std::move(grammar), root);
  EXPECT_TRUE(runner.accepts("{\"ab\":1}"));
  EXPECT_TRUE(runner.accepts("{ \"a\" : 1, \"ab\": 2 , \"c\": 3, \"x\": true }"));
  EXPECT_TRUE(runner.accepts("{\"\\u0061b\":1}"));
  EXPECT_FALSE(runner.accepts("{}"));
  EXPECT_FALSE(runner.begins("{\"c"));
  EXPECT_FALSE(runner.begins("{\"ab\":1,\"a\""));
  EXPECT_FALSE(runner.begins("{\"ab\":1,\"c\":1,\"\\u0063\":"));
  EXPECT_FALSE(runner.begins("{\"ab\":1,\"x\":1"));
  EXPECT_TRUE(runner.accepts("{\"ab\":1,\"cc\":true}"));
}

TEST(Grammar, ObjectsInAnyOrder) {
  Grammar grammar;
  ObjectSpec spec;
  spec.members = {
      {"a", number(grammar), false}, {"b", number(grammar), true}, {"c", number(grammar), false}};
  spec.dependent = {{0, 2}};
  spec.any_order = true;
  spec.max_keys = 3;
  spec.space = grammar.empty();
  const NodeId root = grammar.object(std::move(spec));
  Runner runner(std::move(grammar), root);
  EXPECT_TRUE(runner.accepts("{\"c\":1,\"a\":1,\"b\":1}"));
  EXPECT_TRUE(runner.accepts("{\"b\":1}"));
  EXPECT_FALSE(runner.accepts("{\"b\":1,\"a\":1}"));
  EXPECT_FALSE(runner.begins("{\"b\":1,\"b"));
  EXPECT_FALSE(runner.accepts("{\"a\":1}"));
}

TEST(Grammar, BoundsOnKeysHold) {
  Grammar grammar;
  ObjectSpec spec;
  spec.extras = {{grammar.languages().any_text(), number(grammar)}};
  spec.min_keys = 2;
  spec.max_keys = 3;
  spec.distinct_extras = true;
  spec.space = grammar.empty();
  const NodeId root = grammar.object(std::move(spec));
  Runner runner(std::move(grammar), root);
  EXPECT_FALSE(runner.accepts("{\"a\":1}"));
  EXPECT_TRUE(runner.accepts("{\"a\":1,\"b\":1}"));
  EXPECT_FALSE(runner.begins("{\"a\":1,\"\\u0061\""));
  EXPECT_TRUE(runner.accepts("{\"a\":1,\"b\":1,\"c\":1}"));
  EXPECT_FALSE(runner.begins("{\"a\":1,\"b\":1,\"c\":1,"));
}

class EvenLength : public ValueCheck {
 public:
  bool passes(std::string_view value) const override { return value.size() % 2 == 0; }
  bool is_viable(std::string_view prefix) const override { return prefix.size() < 6; }
};

TEST(Grammar, CheckedValuesEndOnlyWhereTheyPass) {
  Grammar grammar;
  const NodeId digits = grammar.text(grammar.languages().regex("[0-9]+").value());
  const NodeId value = grammar.checked(digits, std::make_shared<EvenLength>());
  const NodeId root = grammar.separated(value, grammar.bytes(","), 1, kUnbounded);
  Runner runner(std::move(grammar), root);
  EXPECT_TRUE(runner.accepts("12"));
  EXPECT_TRUE(runner.accepts("12,3456"));
  EXPECT_FALSE(runner.accepts("1"));
  EXPECT_FALSE(runner.begins("123,"));
}

TEST(Grammar, GuardsAskTheValueAround) {
  Grammar grammar;
  const NodeId item = grammar.sequence({grammar.bytes("ab"), grammar.guard()});
  const NodeId list = grammar.sequence(
      {grammar.bytes("["), grammar.repeat(item, 0, kUnbounded), grammar.bytes("].")});
  const NodeId root = grammar.checked(list, std::make_shared<EvenLength>());
  Runner runner(std::move(grammar), root);
  EXPECT_TRUE(runner.begins("[abab"));
  EXPECT_FALSE(runner.begins("[ababab"));
}

TEST(Grammar, AnyJsonIsJson) {
  Grammar grammar;
  const NodeId root = grammar.any_json(grammar.white_space(kUnbounded));
  Runner runner(std::move(grammar), root);
  for (const char* text : {"1", "-0.5e+7", "[]", "[ 1 , [2] ]", "{}", "{ \"a\" : { } }", "null",
                           "\"\\ud83d\\ude00\"", "[\"\", true]"})
    EXPECT_TRUE(runner.accepts(text)) << text;
  for (const char* text : {"01", "+1", "1.", ".5", "[1,]", "{\"a\":}", "{a:1}", "nul",
                           "\"\\ud83d\"", "\"\x01\"", "[1 2]", "{\"a\":1,}"})
    EXPECT_FALSE(runner.accepts(text)) << text;
}

TEST(Ebnf, ErrorsNameLineAndColumn) {
  Grammar grammar;
  const Result<NodeId> root = parse_ebnf(grammar, "root ::= \"a\" | )\n");
  ASSERT_FALSE(root.ok());
  EXPECT_THAT(root.fault().message, HasSubstr("line 1, column 16"));
  Grammar other;
  EXPECT_EQ(parse_ebnf(other, "a ::= \"x\"").fault().code, "undefined_rule");
}

}  // namespace
}  // namespace sluice::grammar
