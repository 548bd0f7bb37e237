// Masks against the matcher: at each step of a text, every token of a vocabulary is tried.
#include "text/grammar/constraint.h"

#include <gtest/gtest.h>

#include "base/testing/source_dir.h"
#include "text/grammar/sources/grammar_source.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice::grammar {
namespace {

struct Case {
  GrammarSource source;
  std::string text;
};

GrammarSource schema(std::string text) {
  return {.kind = GrammarSource::kJsonSchema, .text = std::move(text), .max_white_space = 64};
}

std::vector<Case> cases() {
  const std::string long_text(30, 'x');
  return {
      {schema(R"({"type":"string"})"), R"("Hello (world). \"q\" \u00e9\n")"},
      {schema(R"({"type":"object"})"), R"({"a.": "b).", "c": [1, "d"], "e":{"f":null}})"},
      {schema(R"({"properties":{"name":{"type":"string"},"age":{"type":"integer"}},
                  "required":["name"],"additionalProperties":{"type":"boolean"}})"),
       R"({"name": "Ann.", "age": 30, "agent": true})"},
      {schema(R"({"type":"string","minLength":3,"maxLength":33})"), '"' + long_text + ".\""},
      {schema(R"({"type":"string","pattern":"^[a-z0-9-]+$","maxLength":9})"), "\"some-name\""},
      {schema(R"({"type":"string","pattern":"^[A-Z][a-z0-9_]*$"})"), "\"Identifier_1\""},
      {schema(R"({"type":"string","pattern":"[0-9]{4}-[0-9]{2}","minLength":9})"),
       "\"On 2024-10 a\""},
      {schema(R"({"type":"array","items":{"type":"string"},"uniqueItems":true})"),
       R"(["a", "b", "ab"])"},
      {schema(R"({"type":"array","items":{"enum":["one","two",3]},"uniqueItems":true})"),
       R"(["one",3])"},
      {schema(R"({"type":"number","minimum":-3.5,"maximum":120})"), "112.25"},
      {schema(R"({"type":"integer","multipleOf":7})"), "147"},
      {schema(R"({"type":"integer","multipleOf":7,"minimum":1,"not":{"multipleOf":2}})"),
       "1470007"},
      {schema(R"({"items":{"type":"number","multipleOf":0.3}})"), "[150.0, 12e3, 1.20]"},
      {schema(R"({"minProperties":2,"maxProperties":3,"additionalProperties":{"type":"string"}})"),
       R"({"a":"b.","c":"d"})"},
      {schema(R"({"enum":["red","green.",{"a":[1]}]})"), R"({"a": [1.0]})"},
      {schema(R"({"type":"string","format":"date-time"})"), "\"2024-02-29T12:00:00Z\""},
      {{.kind = GrammarSource::kRegex, .text = "[A-Za-z_]\\w{0,20}(, [a-z]+)*"}, "Name_1, other"},
      {{.kind = GrammarSource::kRegex, .text = "(?:.*)end\\.?"}, "at the end."},
      {{.kind = GrammarSource::kEbnf,
        .text = "root ::= item (\", \" item)* \".\"\nitem ::= [a-z]+ | \"(\" root \")\""},
       "ab, (cd, e.)."},
  };
}

class Masks : public testing::TestWithParam<const char*> {};

TEST_P(Masks, AllowWhatTheMatcherTakesAndNothingElse) {
  const std::string root = source_dir() + "/";
  const auto tokenizer = Tokenizer::load(root + GetParam());
  const std::int32_t stop = tokenizer->size();
  const auto vocabulary = std::make_shared<const Vocabulary>(*tokenizer, stop + 1);
  for (const auto& [source, text] : cases()) {
    const auto compiled = compile(source, vocabulary);
    ASSERT_TRUE(compiled.ok()) << source.text << ": " << compiled.fault().message;
    Constraint constraint(*compiled, {stop});
    // byte by byte where a token has that byte alone: the states between longer tokens
    std::vector<std::int32_t> byte_tokens(256, -1);
    for (std::int32_t token = 0; token < stop; ++token)
      if (vocabulary->bytes(token).size() == 1)
        byte_tokens[static_cast<unsigned char>(vocabulary->bytes(token)[0])] = token;
    std::vector<std::uint32_t> bits(vocabulary->num_words());
    for (std::size_t at = 0; at <= text.size(); ++at) {
      ASSERT_TRUE(constraint.fill(bits));
      for (std::int32_t token = 0; token <= stop; ++token) {
        const bool is_taken = constraint.accept(token);
        if (is_taken) constraint.rollback(1);
        ASSERT_EQ(has_bit(bits, token), is_taken) << source.text << " behind " << constraint.text()
                                                  << ": token " << vocabulary->bytes(token);
      }
      if (at == text.size()) break;
      const std::int32_t token = byte_tokens[static_cast<unsigned char>(text[at])];
      ASSERT_GE(token, 0);
      ASSERT_TRUE(constraint.accept(token)) << source.text << " behind " << constraint.text();
    }
    EXPECT_TRUE(constraint.can_end()) << source.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, Masks,
                         testing::Values("models/sluice-tiny", "tests/golden/tokenizers/o200k",
                                         "tests/golden/tokenizers/qwen2-nfc",
                                         "tests/golden/tokenizers/llama2-prepend"));

class Likely : public testing::Test {
 protected:
  Likely()
      : tokenizer_(Tokenizer::load(source_dir() + "/models/sluice-tiny")),
        vocabulary_(std::make_shared<const Vocabulary>(*tokenizer_, tokenizer_->size())) {}

  Constraint behind(const GrammarSource& source, std::string_view text) {
    const auto compiled = compile(source, vocabulary_);
    EXPECT_TRUE(compiled.ok()) << source.text;
    Constraint constraint(*compiled, {});
    for (const std::int32_t token : tokenizer_->encode(text, {.add_special_tokens = false}))
      EXPECT_TRUE(constraint.accept(token)) << source.text << " behind " << constraint.text();
    return constraint;
  }
  std::string likely(const GrammarSource& source, std::string_view text) {
    return behind(source, text).likely(200);
  }

  const std::unique_ptr<Tokenizer> tokenizer_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
};

const char* const kThree =
    R"({"type":"object","properties":{"first":{"type":"string"},"age":{"type":"integer"},
        "last_one":{"type":"string"}},"required":["first","age","last_one"],
        "additionalProperties":false})";

TEST_F(Likely, IsTheOneWayOnButForWhiteSpaceAndEscapes) {
  const GrammarSource source = schema(kThree);
  EXPECT_EQ(likely(source, ""), R"({"first": ")");
  EXPECT_EQ(likely(source, "{"), R"("first": ")");
  EXPECT_EQ(likely(source, R"({"fi)"), R"(rst": ")");
  EXPECT_EQ(likely(source, R"({"first":)"), R"( ")");
  EXPECT_EQ(likely(source, R"({"first": )"), R"(")");
  EXPECT_EQ(likely(source, R"({"first": "A)"), "");
  EXPECT_EQ(likely(source, R"({"first": "A")"), R"(, "age":)");
  EXPECT_EQ(likely(source, R"({"first": "A", "age": 3)"), "");
  EXPECT_EQ(likely(source, R"({"first": "A", "age": 3, "last_one": "B")"), "}");
  EXPECT_EQ(likely(source, R"({"first": "A", "age": 3, "last_one": "B"})"), "");
  EXPECT_EQ(likely(schema(R"({"enum":["red","blue"]})"), R"("r)"), R"(ed")");
  EXPECT_EQ(likely({.kind = GrammarSource::kRegex, .text = "ab c[0-9]"}, "a"), "b c");
  EXPECT_EQ(likely({.kind = GrammarSource::kRegex, .text = "ab (c|d)"}, ""), "ab");
}

TEST_F(Likely, HasTheWhiteSpaceThatTheTextHadBefore) {
  GrammarSource source = schema(kThree);
  EXPECT_EQ(likely(source, R"({"first":"A")"), R"(,"age":)");
  EXPECT_EQ(likely(source, R"({"first":"A","age":3,)"), R"("last_one":")");
  EXPECT_EQ(likely(source, R"({"first" : "A")"), R"(, "age" :)");
  EXPECT_EQ(likely(source, "{\n  \"first\": \"A\",\n  \"age\": 3,"), "\n  \"last_one\": \"");
  EXPECT_EQ(likely(source, "{\n  \"first\": \"A\",\n  \"age\": 3,\n"), "  \"last_one\": \"");
  source.max_white_space = 0;
  EXPECT_EQ(likely(source, "{"), R"("first":")");
  EXPECT_EQ(likely(source, R"({"first":"A")"), R"(,"age":)");
}

TEST_F(Likely, IsCutAndChangesNothing) {
  Constraint constraint = behind(schema(kThree), "{");
  EXPECT_EQ(constraint.likely(3), "\"fi");
  EXPECT_EQ(constraint.text(), "{");
  std::vector<std::uint32_t> bits(vocabulary_->num_words());
  EXPECT_TRUE(constraint.fill(bits));
  EXPECT_TRUE(constraint.accept(tokenizer_->encode("\"fi", {.add_special_tokens = false})[0]));
  constraint.rollback(1);
  EXPECT_EQ(constraint.likely(200), R"("first": ")");
}

}  // namespace
}  // namespace sluice::grammar
