// Tokens of the text that a grammar leaves little choice about, beside the tokens of a whole text.
#include "server/core/grammar_drafts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/testing/source_dir.h"
#include "text/grammar/constraint.h"
#include "text/grammar/sources/grammar_source.h"

namespace sluice {
namespace {

const char* const kSchema = R"({"type": "object", "properties": {
  "population_density": {"type": "number"},
  "administrative_region": {"type": "string"},
  "officialLanguages": {"type": "array", "items": {"type": "string"}, "minItems": 1},
  "head of government": {"type": "object", "properties": {"firstName": {"type": "string"}},
                         "required": ["firstName"], "additionalProperties": false},
  "größe": {"type": "boolean"}},
  "required": ["population_density", "administrative_region", "officialLanguages",
               "head of government", "größe"], "additionalProperties": false})";
const char* const kText =
    R"({"population_density": 12.5, "administrative_region": "Upper Austria", )"
    R"("officialLanguages": ["German", "Slovene"], "head of government": {"firstName": "Ada"}, )"
    R"("größe": true})";

struct Counts {
  int tokens = 0, steps = 0, drafted = 0, accepted = 0;
};

// Walks the text as a server does that takes up to 15 drafts a step.
Counts walk(const std::string& folder, const std::string& text) {
  const auto tokenizer = Tokenizer::load(source_dir() + "/" + folder);
  const auto vocabulary =
      std::make_shared<const grammar::Vocabulary>(*tokenizer, tokenizer->size() + 1);
  const auto compiled = grammar::compile(
      {.kind = grammar::GrammarSource::kJsonSchema, .text = kSchema, .max_white_space = 64},
      vocabulary);
  EXPECT_TRUE(compiled.ok());
  grammar::Constraint constraint(*compiled, {tokenizer->size()});
  std::vector<std::int32_t> wanted =
      tokenizer->encode("\n" + text, {.add_special_tokens = false, .parse_special = false});
  // The first tokens are those of the line feed.
  std::size_t bytes = 0, at = wanted.size();
  while (bytes < text.size()) bytes += tokenizer->token_bytes_view(wanted[--at]).size();
  EXPECT_EQ(bytes, text.size()) << folder;
  Counts counts{.tokens = static_cast<int>(wanted.size() - at)};
  while (at < wanted.size()) {
    std::vector<std::int32_t> drafts;
    append_drafts(*tokenizer, *vocabulary, constraint.likely(120), 15, drafts);
    EXPECT_LE(drafts.size(), 15u);
    counts.drafted += static_cast<int>(drafts.size());
    ++counts.steps;
    std::size_t right = 0;
    while (right < drafts.size() && at + right < wanted.size() &&
           drafts[right] == wanted[at + right])
      ++right;
    counts.accepted += static_cast<int>(std::min(right, wanted.size() - at - 1));
    for (std::size_t end = std::min(wanted.size(), at + right + 1); at < end; ++at)
      EXPECT_TRUE(constraint.accept(wanted[at])) << folder << " behind " << constraint.text();
  }
  EXPECT_TRUE(constraint.can_end());
  EXPECT_EQ(counts.steps + counts.accepted, counts.tokens);
  return counts;
}

TEST(GrammarDrafts, AreTheTokensOfTheWholeText) {
  for (const char* name :
       {"models/sluice-tiny", "tests/golden/tokenizers/o200k", "tests/golden/tokenizers/qwen2-nfc",
        "tests/golden/tokenizers/llama3-with-merges", "tests/golden/tokenizers/mistral-metaspace",
        "tests/golden/tokenizers/gemma-split", "tests/golden/tokenizers/tekken"}) {
    const Counts counts = walk(name, kText);
    EXPECT_GE(counts.accepted, 0.9 * counts.drafted)
        << name << ": " << counts.accepted << " of " << counts.drafted;
    EXPECT_GE(counts.accepted, 0.5 * counts.tokens)
        << name << ": " << counts.accepted << " of " << counts.tokens << " tokens";
  }
}

TEST(GrammarDrafts, OfSpecialTokensAreTheTokensThemselves) {
  const auto tokenizer = Tokenizer::load(source_dir() + "/models/sluice-tiny");
  const grammar::Vocabulary vocabulary(*tokenizer, tokenizer->size());
  const std::string mark = vocabulary.special_tokens().front();
  std::vector<std::int32_t> drafts, wanted = {*tokenizer->token_id(mark)};
  append_drafts(*tokenizer, vocabulary, grammar::special(mark) + "\n{\"name\"", 15, drafts);
  for (const std::int32_t id : tokenizer->encode("\n{\"name\"", {.add_special_tokens = false}))
    wanted.push_back(id);
  EXPECT_EQ(drafts, wanted);
  drafts.clear();
  append_drafts(*tokenizer, vocabulary, grammar::special(mark).substr(0, 3), 15, drafts);
  EXPECT_TRUE(drafts.empty()) << "a part of a special token";
  append_drafts(*tokenizer, vocabulary, "\n{\"name\"", 1, drafts);
  EXPECT_EQ(drafts.size(), 1u);
}

}  // namespace
}  // namespace sluice
