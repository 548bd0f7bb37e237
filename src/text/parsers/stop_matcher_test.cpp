#include "text/parsers/stop_matcher.h"
#include "base/testing/source_dir.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice {
namespace {

struct FilterCase {
  const char* name;
  std::vector<std::string> stops;
  std::vector<std::string> pieces;
  bool include_stop;
  std::vector<std::string> sent;  // by piece
  std::string flushed;
  std::string matched;
};

class StopFilterTable : public testing::TestWithParam<FilterCase> {};

TEST_P(StopFilterTable, SendsWhatCannotBeginAStopString) {
  const FilterCase& row = GetParam();
  StopFilter filter(row.stops, row.include_stop);
  std::vector<std::string> sent;
  for (const std::string& piece : row.pieces) sent.push_back(filter.push(piece));
  EXPECT_EQ(sent, row.sent);
  EXPECT_EQ(filter.flush(), row.flushed);
  EXPECT_EQ(filter.matched(), row.matched);
  EXPECT_EQ(filter.stopped(), !row.matched.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Rows, StopFilterTable,
    testing::Values(
        FilterCase{"inside_a_piece", {"END"}, {"abENDcd", "x"}, false, {"ab", ""}, "", "END"},
        FilterCase{"kept_on_request", {"END"}, {"abENDcd"}, true, {"abEND"}, "", "END"},
        FilterCase{"across_pieces", {"END"}, {"aE", "N", "D!"}, false, {"a", "", ""}, "", "END"},
        FilterCase{
            "across_pieces_kept", {"END"}, {"aE", "N", "D!"}, true, {"a", "", "END"}, "", "END"},
        FilterCase{"false_start_is_released", {"END"}, {"aE", "Nx"}, false, {"a", "ENx"}, "", ""},
        FilterCase{"held_text_is_flushed", {"END"}, {"aEN"}, false, {"a"}, "EN", ""},
        FilterCase{"overlapping_start", {"aab"}, {"aa", "ab"}, false, {"", "a"}, "", "aab"},
        FilterCase{"first_to_end_wins", {"bcd", "c"}, {"abcd"}, false, {"ab"}, "", "c"},
        FilterCase{"longest_of_equal_ends", {"b", "ab"}, {"xab"}, false, {"x"}, "", "ab"},
        FilterCase{
            "whole_characters_are_held", {"\u00e9\u00e8"}, {"x\u00e9"}, false, {"x"}, "\u00e9", ""},
        FilterCase{"same_lead_byte_is_released",
                   {"\u00e9"},
                   {"\u00e8", "\u00e9"},
                   false,
                   {"\u00e8", ""},
                   "",
                   "\u00e9"},
        FilterCase{"no_strings", {}, {"abc"}, false, {"abc"}, "", ""}),
    [](const auto& info) { return info.param.name; });

TEST(StopFilter, AMatchBeforeMinTokensIsText) {
  StopFilter filter({"\n\n"}, false);
  EXPECT_EQ(filter.push("a\n\n", false), "a\n");  // the second newline may begin the next match
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.push("b\n", true), "\nb");
  EXPECT_EQ(filter.push("\nc", true), "");
  EXPECT_EQ(filter.matched(), "\n\n");
}

// Compares with the definition: the earliest end of any stop string, and the longest of the strings
// that end there.
TEST(StopFilter, AgreesWithASearchOnRandomText) {
  std::mt19937 random(7);
  int stopped = 0;
  for (int round = 0; round < 20'000; ++round) {
    const auto word = [&](int length) {
      std::string text;
      for (int i = 0; i < length; ++i) text += static_cast<char>('a' + random() % 2);
      return text;
    };
    std::vector<std::string> stops;
    for (unsigned i = 0; i < 1 + random() % 4; ++i)
      stops.push_back(word(1 + static_cast<int>(random() % 8)));
    const std::string text = word(static_cast<int>(random() % 40));

    std::size_t best_end = std::string::npos, best_start = 0;
    for (std::size_t end = 1; end <= text.size() && best_end == std::string::npos; ++end)
      for (const std::string& stop : stops)
        if (std::string_view(text).substr(0, end).ends_with(stop) &&
            (best_end == std::string::npos || end - stop.size() < best_start)) {
          best_end = end;
          best_start = end - stop.size();
        }

    StopFilter filter(stops, false);
    std::string sent;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = std::min<std::size_t>(1 + random() % 5, text.size() - at);
      sent += filter.push(std::string_view(text).substr(at, size));
      at += size;
    }
    sent += filter.flush();
    ASSERT_EQ(filter.stopped(), best_end != std::string::npos) << text;
    ASSERT_EQ(sent, filter.stopped() ? text.substr(0, best_start) : text);
    if (filter.stopped()) {
      ASSERT_EQ(filter.matched(), text.substr(best_start, best_end - best_start));
    }
    stopped += filter.stopped();
  }
  EXPECT_GT(stopped, 5'000);
  EXPECT_LT(stopped, 19'500);
}

TEST(StopStringMatcher, FindsTheTokenThatCompletesAString) {
  const auto tokenizer = Tokenizer::load(source_dir() + "/models/sluice-tiny");
  const std::string text = "The answer is \xE4\xBD\xA0\xE5\xA5\xBD. Stop here, please.";
  const std::vector<std::string> stops = {"\xE5\xA5\xBD", "Stop here", "answer", "zzz"};
  const auto ids = tokenizer->encode(text, {.add_special_tokens = false});
  for (const std::string& stop : stops) {
    StopStringMatcher matcher(*tokenizer, {stop}, true);
    StopFilter filter({stop}, false);
    Detokenizer detokenizer(*tokenizer, true);
    int by_token = -1, by_text = -1;
    for (int i = 0; i < static_cast<int>(ids.size()); ++i) {
      if (matcher.push(ids[i]) && by_token < 0) by_token = i;
      filter.push(detokenizer.push(ids[i]));
      if (filter.stopped() && by_text < 0) by_text = i;
    }
    EXPECT_EQ(by_token, by_text) << stop;
    EXPECT_EQ(by_token >= 0, text.find(stop) != std::string::npos) << stop;
  }
}

TEST(StopStringMatcher, SeesSpecialTokensOnlyWhereTheTextHasThem) {
  const auto tokenizer = Tokenizer::load(source_dir() + "/models/sluice-tiny");
  const std::int32_t user = tokenizer->token_id("<|user|>").value();
  EXPECT_TRUE(StopStringMatcher(*tokenizer, {"<|user|>"}, false).push(user));
  EXPECT_FALSE(StopStringMatcher(*tokenizer, {"<|user|>"}, true).push(user));
}

}  // namespace
}  // namespace sluice
