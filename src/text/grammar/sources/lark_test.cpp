#include "text/grammar/sources/lark.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/grammar/left_recursion.h"
#include "text/grammar/machine.h"

namespace sluice::grammar {
namespace {

using testing::HasSubstr;

class Lark {
 public:
  explicit Lark(std::string_view text) {
    Grammar grammar;
    const Result<NodeId> root = parse_lark(grammar, text);
    if (!root) {
      ADD_FAILURE() << root.fault().message;
      return;
    }
    EXPECT_TRUE(remove_left_recursion(grammar).ok());
    Result<Program> made = make_program(grammar, *root);
    if (!made) {
      ADD_FAILURE() << made.fault().message;
      return;
    }
    program_ = std::make_unique<Program>(std::move(*made));
    machine_ = std::make_unique<Machine>(*program_, grammar.languages().store(), Budget{});
  }
  bool accepts(std::string_view text) {
    if (machine_ == nullptr) return false;
    StateId at = machine_->begin({{}, true});
    for (std::size_t i = 0; i < text.size() && at != Machine::kDead; ++i)
      at = machine_->step(at, static_cast<unsigned char>(text[i]), {text.substr(0, i + 1), true});
    return at != Machine::kDead && machine_->can_end(at);
  }

 private:
  std::unique_ptr<Program> program_;
  std::unique_ptr<Machine> machine_;
};

Fault fault_of(std::string_view text) {
  Grammar grammar;
  const Result<NodeId> root = parse_lark(grammar, text);
  EXPECT_FALSE(root.ok()) << text;
  return root.ok() ? Fault{} : root.fault();
}

TEST(LarkGrammar, RulesTerminalsAndWhatIsIgnored) {
  Lark sums(
      "?start: sum\n"
      "// a comment\n"
      "?sum: product          # another\n"
      "    | sum \"+\" product -> add\n"
      "\n"
      "    | sum \"-\" product -> sub\n"
      "?product: atom (\"*\" atom)*\n"
      "atom: NUMBER | \"(\" sum \")\"\n"
      "NUMBER.2: DIGIT+\n"
      "DIGIT: \"0\"..\"9\"\n"
      "%ignore \" \"\n");
  EXPECT_TRUE(sums.accepts("1+23*4"));
  EXPECT_TRUE(sums.accepts("  1 + ( 2 - 3 )  * 4 "));
  EXPECT_TRUE(sums.accepts("1-2"));
  EXPECT_FALSE(sums.accepts("1+"));
  EXPECT_FALSE(sums.accepts("(1"));
  EXPECT_FALSE(sums.accepts("1\t+2"));
  // nothing is ignored inside a terminal, but two of them may touch
  EXPECT_FALSE(sums.accepts("1 2"));
}

TEST(LarkGrammar, OperatorsAreThoseOfLark) {
  Lark counts(
      "start: \"a\"~2 \"b\"~1..3 [\"c\" \"d\"] (\"e\" | \"f\")+ \"g\"? \"h\"{2,} \"i\"{,1}");
  EXPECT_TRUE(counts.accepts("aabbcdefehhhi"));
  EXPECT_TRUE(counts.accepts("aabfghh"));
  EXPECT_FALSE(counts.accepts("abfghh"));
  EXPECT_FALSE(counts.accepts("aabbbbfghh"));
  EXPECT_FALSE(counts.accepts("aabcfghh"));
  EXPECT_FALSE(counts.accepts("aabfgh"));
  EXPECT_FALSE(counts.accepts("aabfghhii"));
}

TEST(LarkGrammar, StringsAndPatternsHaveEscapesAndFlags) {
  Lark texts("start: \"Sel.\"i /[xy]\\/\\d/i \"\\\"\\n\\x41\\u00e9\" \"/*\" /#/ ");
  EXPECT_TRUE(texts.accepts("sEL.X/7\"\nA\u00e9/*#"));
  EXPECT_FALSE(texts.accepts("selsx/7\"\nA\u00e9/*#"));
  EXPECT_FALSE(texts.accepts("sel.x/7\"\na\u00e9/*#"));
}

TEST(LarkGrammar, TheLibraryOfTerminalsIsKnown) {
  Lark json(
      "?value: dict | list | string | SIGNED_NUMBER -> number | \"true\" | \"null\"\n"
      "list : \"[\" [value (\",\" value)*] \"]\"\n"
      "dict : \"{\" [pair (\",\" pair)*] \"}\"\n"
      "pair : string \":\" value\n"
      "string : ESCAPED_STRING\n"
      "%import common.ESCAPED_STRING\n"
      "%import common (SIGNED_NUMBER, INT)\n"
      "%import common.WS -> SPACE\n"
      "%ignore SPACE\n");
  EXPECT_TRUE(json.accepts(" {\"a\\\"\" : [1, -2.5e3, \"x\"], \"b\":{}}\n"));
  EXPECT_FALSE(json.accepts("{\"a\" 1}"));
  EXPECT_FALSE(json.accepts("[1,]"));
}

TEST(LarkGrammar, TheFirstRuleBeginsWhereThereIsNoStart) {
  Lark first("greeting: \"hi\" other\nother: \"!\"");
  EXPECT_TRUE(first.accepts("hi!"));
  EXPECT_FALSE(first.accepts("!"));
}

TEST(LarkGrammar, EmptyAlternativesAreTheEmptyText) {
  Lark empty("start: \"a\" (| \"b\") tail\ntail:\n    | \"c\" tail\n");
  EXPECT_TRUE(empty.accepts("abc"));
  EXPECT_TRUE(empty.accepts("a"));
  EXPECT_FALSE(empty.accepts("ba"));
  Lark ends("start: \"a\" (\"b\" |)");
  EXPECT_TRUE(ends.accepts("a"));
}

TEST(LarkGrammar, MistakesNameTheirPlace) {
  EXPECT_THAT(fault_of("start: \"a\" )\n").message, HasSubstr("line 1, column 12: ')' closes no"));
  EXPECT_THAT(fault_of("start: (\"a\"\n").message, HasSubstr("this '(' is not closed"));
  EXPECT_THAT(fault_of("start: \"a\n").message, HasSubstr("this string is not closed"));
  EXPECT_THAT(fault_of("start: \"a\"\nstart: \"b\"").message,
              HasSubstr("'start' is defined twice"));
  EXPECT_THAT(fault_of("start: A\nA: B\nB: \"x\" A").message, HasSubstr("'A' needs itself"));
  EXPECT_THAT(fault_of("start: A\nA: b\nb: \"x\"").message, HasSubstr("uses the rule 'b'"));
  EXPECT_THAT(fault_of("start: /(a/").message, HasSubstr("The pattern stands at line 1, column 8"));
  EXPECT_THAT(fault_of("start: \"a\"~3..2").message, HasSubstr("a repetition is"));
  EXPECT_THAT(fault_of("start: \"b\"..\"a\"").message, HasSubstr("two characters in order"));
  EXPECT_THAT(fault_of("start \"a\"").message, HasSubstr("':' must follow the name"));
  EXPECT_EQ(fault_of("start: other").code, "undefined_rule");
  EXPECT_EQ(fault_of("start: OTHER").code, "undefined_rule");
  EXPECT_EQ(fault_of("// nothing").code, "undefined_rule");
  std::string deep = "start: ";
  for (int i = 0; i < 100; ++i) deep += "(";
  EXPECT_THAT(fault_of(deep).message, HasSubstr("nested more than 64 deep"));
  std::string chain = "start: A0\n";
  for (int i = 0; i < 100; ++i) chain += fmt::format("A{}: A{} \"x\"\n", i, i + 1);
  EXPECT_THAT(fault_of(chain).message, HasSubstr("nested more than 64 deep"));
}

TEST(LarkGrammar, WhatIsNotSupportedIsNamed) {
  for (const auto& [text, what] : std::vector<std::pair<std::string, std::string>>{
           {"start: pair{\"a\"}", "a template"},
           {"pair{x}: x x", "a template"},
           {"start[max_tokens=3]: \"a\"", "the attribute 'max_tokens'"},
           {"start: A\nA[capture]: \"a\"", "attributes of a terminal"},
           {"start: <|end|>", "'<', an addition of llguidance"},
           {"start: %json {}", "'%', an addition of llguidance"},
           {"%declare A\nstart: A", "'%declare'"},
           {"%import python.NAME\nstart: NAME", "an import beyond 'common'"},
           {"%import common.C_COMMENT\nstart: \"a\"", "the import 'common.C_COMMENT'"},
           {"start: /a/s", "the flag 's' of a pattern"}}) {
    const Fault fault = fault_of(text);
    EXPECT_EQ(fault.code, "unsupported_grammar") << text;
    EXPECT_THAT(fault.message, HasSubstr(what));
  }
}

TEST(LarkGrammar, IsToldFromGbnfAsVllmDoes) {
  EXPECT_TRUE(is_lark("start: \"a\""));
  EXPECT_TRUE(is_lark("# root ::= x\nstart: \"a\""));
  EXPECT_FALSE(is_lark("root ::= \"a\""));
  EXPECT_FALSE(is_lark("// lines\n\nroot ::= start\nstart ::= \":\""));
  EXPECT_FALSE(is_lark(""));
}

}  // namespace
}  // namespace sluice::grammar
