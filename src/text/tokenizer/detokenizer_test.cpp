#include "text/tokenizer/detokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "base/json.h"
#include "base/testing/source_dir.h"
#include "text/unicode.h"

namespace sluice {
namespace {

const std::string kFixtures = source_dir() + "/tests/golden/tokenizers/";

// Random ids, most of them bytes that make no character: the hardest input for a streaming decoder.
TEST(Detokenizer, PiecesOfAnyIdsJoinToTheDecodedText) {
  for (const char* name : {"gpt2-bytelevel", "added-token-flags", "llama2-prepend",
                           "mistral-metaspace", "gemma-split", "t5-unigram", "bert-wordpiece",
                           "spm-bpe-llama2", "spm-bpe-gemma", "spm-unigram-t5", "tiktoken-o200k"}) {
    const auto tokenizer = Tokenizer::load(kFixtures + name);
    std::mt19937 random(2);
    for (int round = 0; round < 5'000; ++round) {
      const bool skip_special = round % 2 == 0;
      std::vector<std::int32_t> ids;
      for (unsigned i = 0, count = random() % 30; i < count; ++i)
        ids.push_back(
            static_cast<std::int32_t>(random() % (round % 3 == 0 ? tokenizer->size() + 5 : 262)));
      Detokenizer detokenizer(*tokenizer, skip_special);
      std::string text;
      for (const std::int32_t id : ids) {
        const std::string piece = detokenizer.push(id);
        ASSERT_TRUE(is_valid_utf8(piece));
        text += piece;
      }
      text += detokenizer.finish();
      ASSERT_EQ(text, tokenizer->decode(ids, skip_special)) << name;
    }
  }
}

// tests/golden/decoders.json: every kind of decoder over the same tokens, by the reference. The
// reference's Strip fails (null) on a text shorter than what it strips.
TEST(Detokenizer, EveryDecoderGivesTheReferencesText) {
  std::ifstream stream(source_dir() + "/tests/golden/decoders.json");
  const Json golden =
      parse_json_or_throw(std::string(std::istreambuf_iterator<char>(stream), {}), "decoders.json");
  Json file = {{"model", {{"type", "WordLevel"}, {"unk_token", "[UNK]"}}}};
  for (std::size_t id = 0; id < golden["tokens"].size(); ++id)
    file["model"]["vocab"][golden["tokens"][id].get<std::string>()] = id;
  ASSERT_GE(golden["decoders"].size(), 12u);
  for (const Json& row : golden["decoders"]) {
    file["decoder"] = row["decoder"];
    const auto tokenizer = Tokenizer::from_json(dump_json(file), row["name"].get<std::string>());
    for (std::size_t i = 0; i < golden["sequences"].size(); ++i) {
      const auto ids = golden["sequences"][i].get<std::vector<std::int32_t>>();
      const std::string text = tokenizer->decode(ids, false);
      if (!row["texts"][i].is_null()) {
        EXPECT_EQ(text, row["texts"][i].get<std::string>()) << row["name"] << " sequence " << i;
      }
      Detokenizer detokenizer(*tokenizer, false);
      std::string streamed;
      for (const std::int32_t id : ids) {
        streamed += detokenizer.push(id);
        EXPECT_TRUE(text.starts_with(streamed))
            << row["name"] << " sequence " << i << ": " << streamed;
      }
      EXPECT_EQ(streamed + detokenizer.finish(), text) << row["name"] << " sequence " << i;
    }
  }
}

TEST(Detokenizer, SentencePieceBytesAreReadOneByOne) {
  const auto tokenizer = Tokenizer::load(kFixtures + "spm-bpe-llama2");
  const auto id = [&](const char* text) { return tokenizer->token_id(text).value(); };
  Detokenizer detokenizer(*tokenizer, true);
  EXPECT_EQ(detokenizer.push(id("\u2581")), "");  // the dummy prefix
  EXPECT_EQ(detokenizer.push(id("\u2581")), " ");
  EXPECT_EQ(detokenizer.push(id("<0xC3>")), "");
  // a whole character: no later byte changes it
  EXPECT_EQ(detokenizer.push(id("<0xA9>")), "\u00e9");
  EXPECT_EQ(detokenizer.push(id("<0xE4>")), "");
  EXPECT_EQ(detokenizer.push(id("<0xBD>")), "");
  EXPECT_EQ(detokenizer.push(id("a")), "\uFFFD\uFFFDa");
  EXPECT_EQ(detokenizer.push(id("<0xE4>")), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.push(id("a")), "a");
  EXPECT_EQ(detokenizer.push(id("<0xE4>")), "");
  EXPECT_EQ(detokenizer.finish_answer(), "");
}

TEST(Detokenizer, HoldsAnUnfinishedCharacterAndNoMore) {
  const auto tokenizer = Tokenizer::load(kFixtures + "gpt2-bytelevel");
  const auto byte = [&](unsigned char value) {
    std::string text;
    append_byte_alphabet(text, value);
    return tokenizer->token_id(text).value();
  };
  Detokenizer detokenizer(*tokenizer, true);
  EXPECT_EQ(detokenizer.push(byte('a')), "a");
  EXPECT_EQ(detokenizer.push(byte(0xF0)), "");
  EXPECT_EQ(detokenizer.push(byte(0x9F)), "");
  EXPECT_EQ(detokenizer.push(byte(0x98)), "");
  EXPECT_EQ(detokenizer.push(byte(0x80)), "\U0001F600");
  EXPECT_EQ(detokenizer.push(byte(0xE4)), "");
  // the held bytes can no longer become a character
  EXPECT_EQ(detokenizer.push(byte('b')), "\uFFFDb");
  EXPECT_EQ(detokenizer.push(byte(0xFF)), "\uFFFD");
  EXPECT_EQ(detokenizer.push(byte(0xE4)), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
  // Of an answer, only the bytes that a character could go on with are no text.
  EXPECT_EQ(detokenizer.push(byte(0xFF)), "\uFFFD");
  EXPECT_EQ(detokenizer.push(byte(0xF0)), "");
  EXPECT_EQ(detokenizer.push(byte(0x9F)), "");
  EXPECT_EQ(detokenizer.finish_answer(), "");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, ARunOfByteTokensIsReadAsAWhole) {
  const auto tokenizer = Tokenizer::load(kFixtures + "llama2-prepend");
  const auto byte = [&](const char* text) { return tokenizer->token_id(text).value(); };
  const std::int32_t a = tokenizer->token_id("a").value();
  Detokenizer detokenizer(*tokenizer, true);
  const auto push_all = [&](std::vector<std::int32_t> ids) {
    std::string text;
    for (const std::int32_t id : ids) text += detokenizer.push(id);
    return text;
  };
  EXPECT_EQ(push_all({byte("<0xC3>"), byte("<0xA9>")}), "");
  EXPECT_EQ(push_all({a}),
            "\u00e9"
            "a");
  EXPECT_EQ(push_all({byte("<0xC3>"), byte("<0xA9>"), byte("<0xFF>")}), "");
  EXPECT_EQ(push_all({a}), "\uFFFD\uFFFD\uFFFDa");
  EXPECT_EQ(push_all({byte("<0xC3>"), byte("<0xA9>"), byte("<0xF0>"), byte("<0x9F>")}), "");
  EXPECT_EQ(detokenizer.finish_answer(), "\u00e9");
  EXPECT_EQ(push_all({byte("<0xFF>"), byte("<0xC3>"), byte("<0xA9>"), byte("<0xF0>")}), "");
  EXPECT_EQ(detokenizer.finish_answer(), "\uFFFD\uFFFD\uFFFD");
}

}  // namespace
}  // namespace sluice
