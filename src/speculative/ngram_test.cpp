#include "speculative/ngram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/json.h"
#include "base/testing/source_dir.h"

namespace sluice {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens drafts_of(NgramDrafter& drafter, const Tokens& tokens, int max_drafts) {
  Tokens drafts;
  drafter.draft(tokens, max_drafts, drafts);
  return drafts;
}

// The rule of the header, by comparing every place.
NgramMatch plain_match(const Tokens& tokens, const NgramOptions& options) {
  const int size = static_cast<int>(tokens.size());
  for (int length = std::min(options.max_match, size - 1); length >= options.min_match; --length)
    for (int start = 0; start + length < size; ++start)
      if (std::equal(tokens.begin() + start, tokens.begin() + start + length,
                     tokens.end() - length))
        return {length, start};
  return {};
}

TEST(Ngram, TheLongestSuffixCountsAndOfItsPlacesTheFirst) {
  struct Case {
    Tokens tokens;
    int min_match, max_match, max_drafts;
    NgramMatch match;
    Tokens drafts;
  };
  const Case cases[] = {
      {{}, 1, 3, 4, {}, {}},
      {{7}, 1, 3, 4, {}, {}},
      {{7, 7}, 1, 3, 4, {1, 0}, {7}},
      {{1, 2, 3, 1, 2}, 2, 3, 4, {2, 0}, {3, 1, 2}},
      {{1, 2, 3, 1, 2}, 2, 3, 2, {2, 0}, {3, 1}},
      {{1, 2, 3, 1, 2}, 3, 3, 4, {}, {}},
      // two places of [2]: the first; but [9, 2] is longer
      {{2, 5, 9, 2, 6, 1, 2}, 1, 1, 1, {1, 0}, {5}},
      {{2, 5, 9, 2, 6, 9, 2}, 1, 4, 1, {2, 2}, {6}},
      // the place overlaps the suffix
      {{4, 4, 4, 4}, 1, 3, 5, {3, 0}, {4}},
      // longer matches than max_match are not told apart
      {{1, 2, 3, 8, 5, 2, 3, 9, 5, 2, 3}, 1, 2, 1, {2, 1}, {8}},
      {{1, 2, 3, 8, 5, 2, 3, 9, 5, 2, 3}, 1, 3, 1, {3, 4}, {9}},
      {{1, 2, 3, 1, 2}, 1, 2, 0, {2, 0}, {}},
  };
  for (const Case& c : cases) {
    NgramDrafter drafter({c.min_match, c.max_match}, 17);
    const NgramMatch match = drafter.find(c.tokens);
    EXPECT_EQ(match.length, c.match.length);
    EXPECT_EQ(match.start, c.match.start);
    EXPECT_EQ(drafts_of(drafter, c.tokens, c.max_drafts), c.drafts);
  }
}

TEST(Ngram, AGrowingTextFindsWhatComparingEveryPlaceFinds) {
  std::mt19937 random(5);
  int found = 0;
  for (int round = 0; round < 60; ++round) {
    const auto draw = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const int min_match = draw(1, 4);
    const NgramOptions options{min_match, draw(min_match, 9)};
    const int vocabulary = draw(1, 12);
    NgramDrafter drafter(options, random());
    Tokens tokens;
    // Several tokens may come between two calls, as with accepted drafts.
    while (tokens.size() < 400) {
      for (int more = draw(1, 6); more > 0; --more) tokens.push_back(draw(0, vocabulary - 1));
      const NgramMatch wanted = plain_match(tokens, options), match = drafter.find(tokens);
      ASSERT_EQ(match.length, wanted.length) << tokens.size() << " tokens";
      ASSERT_EQ(match.start, wanted.start) << tokens.size() << " tokens";
      found += match.length > 0;
    }
  }
  EXPECT_GT(found, 2000);
}

// Reference look-ups that lie beside the repository on machines of developers.
TEST(Ngram, EqualsReferenceLookUps) {
  const std::filesystem::path file =
      std::filesystem::path(source_dir()).parent_path() / "shared/golden/speculation/ngram.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  const Json cases = parse_json_or_throw(text.str(), file.string())["cases"];
  for (const Json& c : cases) {
    const Tokens tokens = c["tokens"];
    NgramDrafter drafter({c["min_n"], c["max_n"]}, 3);
    int most = c["k"];
    // The scheduler cuts drafts to what may still be generated, and then asks for none.
    if (!c["max_model_len"].is_null())
      most = std::min(most, c["max_model_len"].get<int>() - static_cast<int>(tokens.size()));
    const NgramMatch match = most > 0 ? drafter.find(tokens) : NgramMatch{};
    EXPECT_EQ(match.length, c["matched"].get<int>()) << c["number"];
    EXPECT_EQ(match.start, c["match_start"].get<int>()) << c["number"];
    if (most > 0) {
      EXPECT_EQ(drafts_of(drafter, tokens, most), c["draft"].get<Tokens>()) << c["number"];
    }
  }
  EXPECT_GE(cases.size(), 200u);
}

}  // namespace
}  // namespace sluice
