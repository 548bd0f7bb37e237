// Compiles whose budget ends anywhere: each ends too, with the grammar or with its refusal.
#include "text/grammar/budget.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/testing/source_dir.h"
#include "text/grammar/sources/grammar_source.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice::grammar {
namespace {

GrammarSource schema(std::string text) {
  return {.kind = GrammarSource::kJsonSchema, .text = std::move(text), .max_white_space = 64};
}

std::vector<GrammarSource> sources() {
  std::vector<GrammarSource> all = {
      {.kind = GrammarSource::kJson},
      schema(R"({"patternProperties":{"a.*b":{"maximum":3},"b.*c":{"minLength":2},"d":{}}})"),
      schema(R"({"type":"object","properties":{"n":{"type":"number","minimum":0.5,"multipleOf":0.1},
                 "i":{"type":"integer","minimum":-3,"maximum":1200},"d":{"format":"date-time"},
                 "m":{"format":"email","maxLength":9},"p":{"pattern":"x+y"},"e":{"enum":[1,"a"]}},
                 "required":["n","m"],"propertyNames":{"pattern":"[a-z]"},"minProperties":3})"),
      schema(R"({"oneOf":[{"type":"integer","multipleOf":3},{"type":"integer","multipleOf":5}]})"),
      schema(R"({"not":{"type":"object","required":["a"]},"if":{"minItems":2},
                 "then":{"uniqueItems":true},"else":{"contains":{"const":7}}})"),
      schema(R"({"$ref":"#/$defs/n","$defs":{"n":{"properties":{"l":{"$ref":"#/$defs/n"}},
                 "unevaluatedProperties":false}}})"),
      {.kind = GrammarSource::kRegex, .text = "(?=.*[0-9])(a|bc){2,9}[^d]*(x|$)"},
      {.kind = GrammarSource::kEbnf, .text = "root ::= root \"+\" t | t\nt ::= [0-9]{1,3} | \"\""},
      {.kind = GrammarSource::kEbnf, .text = "start: WORD (\",\" WORD)*\nWORD: /[a-z]+(?=[0-9])./"},
      {.kind = GrammarSource::kChoice, .choices = {"red", "green", "grey"}},
      {.kind = GrammarSource::kStructuralTag, .text = R"({"type":"structural_tag","triggers":["<f"],
                   "structures":[{"begin":"<f>","schema":{"type":"number"},"end":"</f>"}]})"},
  };
  all.push_back(all[2]);
  all.back().think_open = "<think>";
  all.back().think_close = "</think>";
  return all;
}

std::shared_ptr<const Vocabulary> vocabulary() {
  const auto tokenizer = Tokenizer::load(source_dir() + "/tests/golden/tokenizers/qwen2-nfc");
  return std::make_shared<const Vocabulary>(*tokenizer, tokenizer->size());
}

bool is_refusal(const Fault& fault) {
  return fault.status == 400 && (fault.message.find("budget") != std::string::npos ||
                                 fault.message.find("more work or memory") != std::string::npos ||
                                 fault.message.find("too many") != std::string::npos);
}

TEST(Budget, EachCompileEndsWithTheGrammarOrItsRefusal) {
  const auto words = vocabulary();
  for (const GrammarSource& source : sources()) {
    const auto whole = compile(source, words);
    ASSERT_TRUE(whole.ok()) << source.text << ": " << whole.fault().message;
    const auto compiles = [&](const Budget& budget) {
      const auto compiled = compile(source, words, budget);
      if (compiled.ok()) return true;
      EXPECT_TRUE(is_refusal(compiled.fault()))
          << source.text << " with " << budget.max_work << " steps and " << budget.max_bytes
          << " bytes: " << compiled.fault().message;
      return false;
    };
    for (std::uint64_t work = 0; !compiles({.max_work = work}); work += 1 + work / 8) {
    }
    for (std::uint64_t bytes = 0; !compiles({.max_bytes = bytes}); bytes += 1024 + bytes / 8) {
    }
  }
}

TEST(Budget, ACancelledCompileEnds) {
  const auto words = vocabulary();
  const auto cancelled = std::make_shared<const std::atomic<bool>>(true);
  for (const GrammarSource& source : sources())
    EXPECT_FALSE(compile(source, words, {.cancelled = cancelled}).ok()) << source.text;
}

}  // namespace
}  // namespace sluice::grammar
