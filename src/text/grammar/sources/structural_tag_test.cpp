// What is wrong in a structural tag, and where.
#include "text/grammar/sources/structural_tag.h"

#include <gtest/gtest.h>

#include "base/testing/source_dir.h"
#include "text/grammar/sources/grammar_source.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice::grammar {
namespace {

std::string fault_of(std::string tag) {
  static const auto tokenizer =
      Tokenizer::load(source_dir() + "/tests/golden/tokenizers/qwen2-nfc");
  static const auto words = std::make_shared<const Vocabulary>(*tokenizer, tokenizer->size());
  const auto compiled =
      compile({.kind = GrammarSource::kStructuralTag, .text = std::move(tag)}, words);
  return compiled ? "" : compiled.fault().message;
}

TEST(StructuralTag, NamesThePartThatIsWrong) {
  const auto tag = [](const std::string& content) {
    return R"({"format":{"type":"sequence","elements":[{"type":"const_string","value":"a"},
               {"type":"tag","begin":"<f>","end":"</f>","content":)" +
           content + "}]}}";
  };
  EXPECT_EQ(fault_of(tag(R"({"type":"json_schema","json_schema":{"type":"integer"}})")), "");
  const std::string place = "The structural tag, /format/elements/1/content";
  for (const auto& [content, begin] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type":"json_schema","json_schema":{"items":{"type":"int"}}})",
            "/json_schema: JSON schema, /items/type: \"int\" is no type"},
           {R"({"type":"regex","pattern":"a("})", "/pattern: The regular expression is wrong"},
           {R"({"type":"grammar","grammar":"root ::= ("})", "/grammar: The grammar is wrong"}}) {
    EXPECT_TRUE(fault_of(tag(content)).starts_with(place + begin)) << fault_of(tag(content));
  }
}

TEST(StructuralTag, TakesNoEmptyTrigger) {
  const auto triggered = [](const std::string& triggers, const std::string& more) {
    return R"({"format":{"type":"triggered_tags","triggers":)" + triggers + more +
           R"(,"tags":[{"begin":"<f>","end":"</f>","content":{"type":"any_text"}}]}})";
  };
  EXPECT_EQ(fault_of(triggered(R"(["<f"])", "")), "");
  EXPECT_EQ(fault_of(triggered(R"([""])", "")),
            "The structural tag is wrong at /format/triggers: a text of it is empty.");
  EXPECT_EQ(fault_of(triggered(R"(["<f"])", R"(,"excludes":["x",""])")),
            "The structural tag is wrong at /format/excludes: a text of it is empty.");
}

}  // namespace
}  // namespace sluice::grammar
