#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Pair;

// A model directory with a vocabulary of the letters a to h, 8 tokens, and <x> as an added token.
class SideFiles : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(testing::TempDir()) /
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(directory_);
    write("tokenizer.json",
          R"({"added_tokens": [{"id": 8, "content": "<x>", "special": true, "normalized": false}],)"
          R"("normalizer": {"type": "Lowercase"}, "pre_tokenizer": null, "post_processor": null,)"
          R"("decoder": {"type": "Fuse"}, "model": {"type": "BPE", "merges": [], "vocab":)"
          R"({"a":0,"b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"h":7}}})");
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const char* name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
  }
  std::vector<std::int32_t> ids(const char* text) {
    return Tokenizer::load(directory_)->encode(text);
  }

  std::filesystem::path directory_;
};

TEST_F(SideFiles, RowsOfAddedTokensDecoder) {
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"10": {"content": "<Two>", "normalized": true},)"
        R"("9": {"content": "<one>", "special": true}}})");
  EXPECT_THAT(ids("a<one>b<TWO>"), ElementsAre(0, 9, 1, 10));
  const auto tokenizer = Tokenizer::load(directory_);
  EXPECT_EQ(tokenizer->size(), 11);
  EXPECT_EQ(tokenizer->size_in_file(), 9);
  EXPECT_TRUE(tokenizer->is_special(9));
  EXPECT_FALSE(tokenizer->is_special(10));
}

TEST_F(SideFiles, NumbersFollowTheLastTokenAsInTransformers) {
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"20": {"content": "<one>"}, "30": {"content": "<two>"},)"
        R"("31": {"content": "h", "special": true}}})");
  EXPECT_THAT(ids("a<one><two>h"), ElementsAre(0, 9, 10, 7));
}

TEST_F(SideFiles, FlagsOfTheSideFileCount) {
  write("tokenizer_config.json",
        R"({"added_tokens_decoder": {"8": {"content": "<x>", "special": true, "lstrip": true,)"
        R"("rstrip": true, "normalized": false}}})");
  EXPECT_THAT(ids("a <x> b"), ElementsAre(0, 8, 1));
}

TEST_F(SideFiles, NamedAndAdditionalTokens) {
  write("tokenizer_config.json",
        R"({"pad_token": "<pad>", "bos_token": {"content": "<s>"}, "image_token": "<img>",)"
        R"("additional_special_tokens": ["<more>", {"content": "<x>"}, "h"]})");
  EXPECT_THAT(ids("<s><pad><img><more><x>h"), ElementsAre(9, 10, 11, 12, 8, 7));
  EXPECT_EQ(Tokenizer::load(directory_)->bos_id(), 9);
  EXPECT_TRUE(Tokenizer::load(directory_)->is_special(7));
}

TEST_F(SideFiles, AddedTokensJsonCountsWithoutADecoder) {
  write("added_tokens.json", R"({"<two>": 10, "<one>": 9})");
  EXPECT_THAT(ids("<two><one>"), ElementsAre(10, 9));
  write("special_tokens_map.json", R"({"eos_token": "<one>", "pad_token": "<p>"})");
  EXPECT_THAT(ids("<two><one><p>"), ElementsAre(10, 9, 11));
  EXPECT_TRUE(Tokenizer::load(directory_)->is_special(9));
  write("tokenizer_config.json", R"({"added_tokens_decoder": {}})");
  EXPECT_FALSE(Tokenizer::load(directory_)->is_added_token("<two>"));
}

TEST_F(SideFiles, SplitSpecialTokens) {
  EXPECT_THAT(ids("a<x>"), ElementsAre(0, 8));
  write("tokenizer_config.json", R"({"split_special_tokens": true})");
  EXPECT_THAT(ids("a<x>"), ElementsAre(0));
}

TEST_F(SideFiles, ThePadTokenOfThePaddingCounts) {
  Json file = parse_json_or_throw(
      R"({"added_tokens": [], "decoder": null, "padding": {"pad_token": "<p>"},)"
      R"("model": {"type": "BPE", "merges": [], "vocab": {"a": 0}}})",
      "");
  write("tokenizer.json", dump_json(file));
  EXPECT_THAT(ids("a<p>"), ElementsAre(0, 1));
}

// Metaspace puts its mark before the first character of the input, not of what is left of it.
TEST_F(SideFiles, NoMarkWhereTheBeginningWasDropped) {
  for (const char* normalizer :
       {R"({"type": "Strip", "strip_left": true, "strip_right": false})",
        R"({"type": "Replace", "pattern": {"String": " "}, "content": ""})",
        R"({"type": "Replace", "pattern": {"Regex": "^ "}, "content": ""})"}) {
    write("tokenizer.json",
          std::string(R"({"added_tokens": [], "decoder": null, "normalizer": )") + normalizer +
              R"(, "pre_tokenizer": {"type": "Metaspace", "replacement": "_",)"
              R"("prepend_scheme": "first", "split": false},)"
              R"("model": {"type": "BPE", "merges": [], "vocab": {"a": 0, "_": 1}}})");
    EXPECT_THAT(ids("a"), ElementsAre(1, 0)) << normalizer;
    EXPECT_THAT(ids(" a"), ElementsAre(0)) << normalizer;
  }
}

TEST_F(SideFiles, BadRowsAreErrors) {
  for (const char* bad :
       {R"({"added_tokens_decoder": {"x": {"content": "a"}}})", R"({"added_tokens_decoder": []})",
        R"({"added_tokens_decoder": {"9": "a"}})", R"({"pad_token": {"text": "a"}})",
        R"({"additional_special_tokens": "<a>"})", R"({"additional_special_tokens": [1]})",
        R"({"split_special_tokens": 1})"}) {
    write("tokenizer_config.json", bad);
    EXPECT_THROW(Tokenizer::load(directory_), Error) << bad;
  }
}

TEST_F(SideFiles, KeysWithoutEffectAreListed) {
  write("tokenizer_config.json",
        R"({"eos_token": "a", "add_bos_token": true, "model_max_length": 4, "unk_token": null,)"
        R"("chat_template": "x"})");
  EXPECT_THAT(
      Tokenizer::ignored_keys(directory_),
      ElementsAre(Pair("tokenizer_config.json", ElementsAre("add_bos_token", "model_max_length"))));
  write("special_tokens_map.json", R"({"eos_token": "a", "no_such": 1})");
  EXPECT_THAT(Tokenizer::ignored_keys(directory_),
              Contains(Pair("special_tokens_map.json", ElementsAre("no_such"))));
}

}  // namespace
}  // namespace sluice
