#include "text/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <thread>

#include "base/build.h"
#include "base/error.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "text/unicode.h"

namespace sluice {
namespace {

using testing::HasSubstr;

const std::string kFixtures = source_dir() + "/tests/golden/tokenizers/";

std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

const std::string& gpt2_text() {
  static const std::string text = read_text(kFixtures + "gpt2-bytelevel/tokenizer.json");
  return text;
}

// A text of random characters from all planes, with runs of ASCII as in real text.
std::string random_text(std::mt19937& random) {
  std::string text;
  for (unsigned i = 0, count = random() % 40; i < count; ++i) {
    switch (random() % 4) {
      case 0:
        text += static_cast<char>(random() % 128);
        break;
      case 1:
        append_utf8(text, 0x80 + random() % 0x780);
        break;
      case 2:
        append_utf8(text, 0x3000 + random() % 0x7000);
        break;
      default: {
        char32_t code = random() % 0x110000;
        if (code >= 0xD800 && code <= 0xDFFF) code = ' ';
        append_utf8(text, code);
      }
    }
  }
  return text;
}

TEST(Tokenizer, RandomTextsSurviveARoundTrip) {
  for (const char* name : {"gpt2-bytelevel", "llama3-ignore-merges", "o200k", "deepseek-v3-3step",
                           "glm4-gmask", "kimi-han", "starcoder-digits", "falcon-punct"}) {
    const auto tokenizer = Tokenizer::load(kFixtures + name);
    std::mt19937 random(11);
    for (int round = 0; round < 20'000; ++round) {
      const std::string text = random_text(random);
      const auto ids = tokenizer->encode(text, {.add_special_tokens = false});
      ASSERT_EQ(tokenizer->decode(ids, false), text) << name;
      std::string bytes;
      for (const std::int32_t id : ids) bytes += tokenizer->token_bytes(id);
      ASSERT_EQ(bytes, text) << name;
      ASSERT_GE(ids.size() * tokenizer->max_bytes_per_token(), text.size());
    }
  }
}

// Texts of `size` bytes that are hard in some way: runs of one unit, and noise.
std::vector<std::string> long_texts(std::size_t size) {
  std::mt19937 random(3);
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(random());
  const auto run = [&](std::string_view unit) {
    std::string text;
    while (text.size() < size) text += unit;
    return text;
  };
  return {run("_"),
          run("a"),
          run("A"),
          run("ab"),
          run(" "),
          run(" ") + "x",
          run("\n"),
          run("\r\n "),
          run("1"),
          run("\u4F60"),
          run("aA"),
          run("\u0301"),
          run(std::string_view("\0", 1)),
          run("<|"),
          run("'s"),
          run("e\u0301"),
          run("\U0001F600"),
          run("\u2581"),
          run("a "),
          bytes};
}

TEST(Tokenizer, LongInputsTakeNoQuadraticTime) {
  // A megabyte through one tokenizer of every model type, an eighth of that through the others.
  const std::vector<std::string> full = long_texts(1'000'000), eighth = long_texts(125'000);
  for (const char* name :
       {"gpt2-bytelevel", "llama3-ignore-merges", "qwen2-nfc", "o200k", "deepseek-v3-3step",
        "kimi-han", "falcon-punct", "added-token-flags", "llama2-prepend", "mistral-metaspace",
        "gemma-split", "t5-unigram", "xlmr-unigram", "bert-wordpiece", "spm-bpe-llama2",
        "spm-bpe-gemma", "spm-unigram-t5", "tiktoken-o200k"}) {
    const auto tokenizer = Tokenizer::load(kFixtures + name);
    const std::string_view of_each[] = {"gpt2-bytelevel", "llama2-prepend", "t5-unigram",
                                        "bert-wordpiece"};
    const bool whole = std::find(std::begin(of_each), std::end(of_each), std::string_view(name)) !=
                       std::end(of_each);
    const std::vector<std::string>& texts = whole ? full : eighth;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      // time of this process, so that a busy machine does not count
      const std::clock_t begun = std::clock();
      const auto ids = tokenizer->encode(texts[i]);
      EXPECT_LT(std::clock() - begun, (kTimedBuild ? 2 : 20) * CLOCKS_PER_SEC)
          << name << " text " << i;
      if (std::string_view(name) == "gpt2-bytelevel") {
        EXPECT_EQ(tokenizer->decode(ids, false), to_valid_utf8(texts[i])) << i;
      }
    }
  }
}

// The counted work of the merge loop and of the trie: four times the text is at most five times the
// work.
TEST(Tokenizer, WorkGrowsInProportionToTheText) {
  const auto runs = [](std::size_t size) {
    std::vector<std::string> texts;
    for (const char* unit :
         {"a", "ab", "_", " ", "\u2581", "\u0301", "\U0001F600", "\u4F60", "aA1 ", "e\u0301"}) {
      texts.emplace_back();
      while (texts.back().size() < size) texts.back() += unit;
    }
    return texts;
  };
  const std::vector<std::string> small = runs(50'000), large = runs(200'000);
  for (const char* name :
       {"spm-bpe-llama2", "spm-unigram-t5", "llama2-prepend", "t5-unigram", "gpt2-bytelevel"}) {
    const auto tokenizer = Tokenizer::load(kFixtures + name);
    for (std::size_t i = 0; i < small.size(); ++i) {
      const std::uint64_t few = tokenizer->encode_work(small[i]),
                          many = tokenizer->encode_work(large[i]);
      EXPECT_LE(many, 5 * few + 5'000) << name << " text " << i;
      EXPECT_LE(many, 64 * large[i].size()) << name << " text " << i;
    }
  }
}

TEST(Tokenizer, HostileTextIsOrdinaryText) {
  const auto tokenizer = Tokenizer::load(kFixtures + "glm4-gmask");
  EXPECT_EQ(tokenizer->encode("", {.add_special_tokens = false}), std::vector<std::int32_t>{});
  const std::string spelt = "[gMASK]<sop><|user|>";
  const auto as_special = tokenizer->encode(spelt, {.add_special_tokens = false});
  const auto as_text =
      tokenizer->encode(spelt, {.add_special_tokens = false, .parse_special = false});
  EXPECT_EQ(as_special.size(), 3u);
  EXPECT_GT(as_text.size(), 3u);
  for (const std::int32_t id : as_text) EXPECT_FALSE(tokenizer->is_special(id));
  EXPECT_EQ(tokenizer->decode(as_text, true), spelt);
  EXPECT_EQ(tokenizer->decode(as_special, true), "");
  EXPECT_EQ(tokenizer->encode("a\xFF"
                              "b"),
            tokenizer->encode("a\uFFFD"
                              "b"));
  const std::vector<std::int32_t> strange = {-1, 1 << 30, tokenizer->size(), 64, -2147483647 - 1};
  EXPECT_EQ(tokenizer->decode(strange, false), "a");
  EXPECT_EQ(tokenizer->token_bytes(-1), "");
  EXPECT_EQ(tokenizer->token_text(tokenizer->size()), "");
  EXPECT_FALSE(tokenizer->is_special(-1));
}

TEST(Tokenizer, ManyThreadsGetTheSameIds) {
  const auto tokenizer = Tokenizer::load(kFixtures + "o200k");
  std::mt19937 random(5);
  std::string text;
  for (int i = 0; i < 500; ++i) text += random_text(random);
  const auto expected = tokenizer->encode(text);
  std::vector<std::thread> threads;
  std::atomic<int> equal = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) equal += tokenizer->encode(text) == expected;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 20);
}

TEST(Tokenizer, AnswersAboutTokens) {
  const auto tokenizer = Tokenizer::load(source_dir() + "/models/sluice-tiny");
  EXPECT_EQ(tokenizer->token_id("<|user|>"), 4);
  EXPECT_EQ(tokenizer->token_text(4), "<|user|>");
  EXPECT_TRUE(tokenizer->is_special(4));
  EXPECT_EQ(tokenizer->token_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->eos_id(), 0);
  EXPECT_EQ(tokenizer->bos_token(), "");
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  const std::int32_t space = tokenizer->token_id("\u0120").value();
  EXPECT_EQ(tokenizer->token_bytes(space), " ");
}

struct FileCase {
  const char* name;
  std::function<void(Json&)> change;
  const char* message;  // the error must contain it
};

TEST(TokenizerFile, EveryFaultIsNamed) {
  const FileCase rows[] = {
      {"merge of a missing token", [](Json& j) { j["model"]["merges"][3] = {"zz", "qq"}; },
       "model.merges[3]"},
      {"merge into a missing token", [](Json& j) { j["model"]["merges"][3] = {"!", "\""}; },
       "\"!\"\""},
      {"merge of three", [](Json& j) { j["model"]["merges"][0] = "a b c"; }, "model.merges[0]"},
      {"merge that is a number", [](Json& j) { j["model"]["merges"][0] = 7; }, "model.merges[0]"},
      {"duplicate id", [](Json& j) { j["model"]["vocab"]["!"] = 1; }, "same id 1"},
      {"id 2^31", [](Json& j) { j["model"]["vocab"]["!"] = 2147483648ll; }, "2147483648"},
      {"id 2^24 - 1 of a small vocabulary",
       [](Json& j) { j["model"]["vocab"]["!"] = (1 << 24) - 1; }, "has id 16777215; at most"},
      {"negative id", [](Json& j) { j["model"]["vocab"]["!"] = -1; }, "has id -1"},
      {"id 2^64", [](Json& j) { j["model"]["vocab"]["!"] = 1.8446744073709552e19; },
       "must be an integer"},
      {"id as a string", [](Json& j) { j["model"]["vocab"]["!"] = "0"; }, "must be an integer"},
      {"empty vocabulary", [](Json& j) { j["model"]["vocab"] = Json::object(); },
       "model.vocab is empty"},
      {"no vocabulary", [](Json& j) { j["model"].erase("vocab"); }, "model.vocab is missing"},
      {"no merges", [](Json& j) { j["model"].erase("merges"); }, "model.merges is missing"},
      {"no model", [](Json& j) { j.erase("model"); }, ": model is missing"},
      {"model type", [](Json& j) { j["model"]["type"] = "Odd"; }, "\"Odd\" is not supported"},
      {"Unigram with the vocabulary of BPE", [](Json& j) { j["model"]["type"] = "Unigram"; },
       "vocab must be an array"},
      {"WordPiece without its unk",
       [](Json& j) { j["model"] = {{"type", "WordPiece"}, {"vocab", {{"a", 0}}}}; },
       "model.unk_token \"[UNK]\""},
      {"Unigram without pieces",
       [](Json& j) { j["model"] = {{"type", "Unigram"}, {"vocab", Json::array()}}; },
       "model.vocab is empty"},
      {"Unigram with a bad row",
       [](Json& j) {
         j["model"] = {{"type", "Unigram"}, {"vocab", Json::array({Json::array({"a", "b"})})}};
       },
       "model.vocab[0] must be a token and its score"},
      {"Unigram with an unk_id beyond",
       [](Json& j) {
         j["model"] = {
             {"type", "Unigram"}, {"unk_id", 7}, {"vocab", Json::array({Json::array({"a", 0.0})})}};
       },
       "model.unk_id is 7"},
      {"dropout", [](Json& j) { j["model"]["dropout"] = 0.1; }, "model.dropout"},
      {"unk that is no token", [](Json& j) { j["model"]["unk_token"] = "<unk>"; },
       "model.unk_token"},
      {"bad byte token",
       [](Json& j) {
         j["model"]["byte_fallback"] = true;
         j["model"]["vocab"]["<0x-1>"] = 5000;
       },
       "<0x-1>"},
      {"added token with a vocabulary id", [](Json& j) { j["added_tokens"][0]["id"] = 5; },
       "added_tokens[0]"},
      {"added token 2^24 - 1 of a small vocabulary",
       [](Json& j) { j["added_tokens"][0]["id"] = (1 << 24) - 1; }, "has id 16777215; with"},
      {"added token 2^31", [](Json& j) { j["added_tokens"][0]["id"] = 2147483648ll; },
       "added_tokens[0].id"},
      {"added token twice",
       [](Json& j) {
         Json copy = j["added_tokens"][0];
         copy["content"] = "<other>";
         j["added_tokens"].push_back(copy);
       },
       "same id"},
      {"added token of 1 MB",
       [](Json& j) { j["added_tokens"][0]["content"] = std::string(1 << 20, 'a'); },
       "added_tokens[0].content"},
      {"empty added token", [](Json& j) { j["added_tokens"][0]["content"] = ""; },
       "added_tokens[0].content"},
      {"added tokens as an object", [](Json& j) { j["added_tokens"] = Json::object(); },
       "added_tokens must be an array"},
      {"flag as a number", [](Json& j) { j["added_tokens"][0]["lstrip"] = 1; },
       "lstrip must be true or false"},
      {"normalizer", [](Json& j) { j["normalizer"] = {{"type", "Precompiled"}}; },
       "precompiled_charsmap is missing"},
      {"charsmap that is no base64",
       [](Json& j) { j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "!"}}; },
       "normalizer.precompiled_charsmap is not base64"},
      {"charsmap that ends early",
       [](Json& j) {
         j["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "ALwCAAAA"}};
       },
       "its trie has 179200 bytes"},
      {"normalizer of another name", [](Json& j) { j["normalizer"] = {{"type", "Odd"}}; },
       "normalizer.type \"Odd\""},
      {"pre-tokenizer", [](Json& j) { j["pre_tokenizer"] = {{"type", "UnicodeScripts"}}; },
       "\"UnicodeScripts\" is not supported"},
      {"delimiter of two characters",
       [](Json& j) { j["pre_tokenizer"] = {{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}}; },
       "pre_tokenizer.delimiter must be one character"},
      {"post-processor", [](Json& j) { j["post_processor"] = {{"type", "Odd"}}; },
       "post_processor"},
      {"decoder", [](Json& j) { j["decoder"] = {{"type", "Odd"}}; },
       "decoder.type \"Odd\" is not supported"},
      {"decoder behind Fuse",
       [](Json& j) {
         j["decoder"] = {{"type", "Sequence"},
                         {"decoders", Json::array({{{"type", "Fuse"}},
                                                   {{"type", "WordPiece"}, {"prefix", "##"}}})}};
       },
       "decoder.decoders[1]: a WordPiece decoder in this form or place"},
      {"strip of many",
       [](Json& j) {
         j["decoder"] = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 99999}};
       },
       "decoder.stop is 99999"},
      {"step without a type", [](Json& j) { j["normalizer"] = Json::object(); },
       "normalizer.type is missing"},
      {"catastrophic pattern",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Split"},
                               {"pattern", {{"Regex", "(a+)+$"}}},
                               {"behavior", "Isolated"},
                               {"invert", false}};
       },
       "pre_tokenizer.pattern.Regex: catastrophic"},
      {"invalid pattern",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Split"},
                               {"pattern", {{"Regex", "(a"}}},
                               {"behavior", "Isolated"},
                               {"invert", false}};
       },
       "pre_tokenizer.pattern.Regex: invalid"},
      {"behavior",
       [](Json& j) {
         j["pre_tokenizer"] = {
             {"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Odd"}};
       },
       "pre_tokenizer.behavior \"Odd\""},
      {"a thousand steps",
       [](Json& j) {
         j["normalizer"] = {{"type", "Sequence"},
                            {"normalizers", Json(1000, Json{{"type", "NFC"}})}};
       },
       "more than 256 steps"},
      {"a hundred patterns",
       [](Json& j) {
         Json steps = Json::array();
         for (int i = 0; i < 100; ++i)
           steps.push_back({{"type", "Split"},
                            {"pattern", {{"Regex", "a" + std::to_string(i)}}},
                            {"behavior", "Isolated"}});
         j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
       },
       "more than 64 different regular expressions"},
      {"a decoder that doubles its text thirty times",
       [](Json& j) {
         const Json step = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
         j["decoder"] = {{"type", "Sequence"}, {"decoders", Json(30, step)}};
       },
       "decoder.decoders[6]: with this Replace the decoder may make a text more than 64 times as "
       "long"},
      {"a decoder that puts much between all characters",
       [](Json& j) {
         j["decoder"] = {{"type", "Replace"},
                         {"pattern", {{"Regex", "x*"}}},
                         {"content", std::string(100, '-')}};
       },
       "more than 64 times as long"},
      {"an added token that normalisation makes gigabytes",
       [](Json& j) {
         const Json step = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
         j["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json(30, step)}};
         j["added_tokens"].push_back({{"id", 5000}, {"content", "banana"}, {"normalized", true}});
       },
       "added token \"banana\": the tokenizer's rules make more than"},
      {"deep sequences",
       [](Json& j) {
         Json inner = {{"type", "NFC"}};
         for (int i = 0; i < 40; ++i)
           inner = {{"type", "Sequence"}, {"normalizers", Json::array({inner})}};
         j["normalizer"] = inner;
       },
       "nested deeper"},
      {"template of a missing token",
       [](Json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", Json::array({{{"SpecialToken", {{"id", "<s>"}}}},
                                                        {{"Sequence", {{"id", "A"}}}}})},
                                {"special_tokens", {{"<s>", {{"ids", {99999}}}}}}};
       },
       "is no token"},
  };
  const Json good = parse_json_or_throw(gpt2_text(), "gpt2");
  EXPECT_NO_THROW(Tokenizer::from_json(dump_json(good), "gpt2"));
  for (const FileCase& row : rows) {
    Json json = good;
    row.change(json);
    try {
      Tokenizer::from_json(dump_json(json), "dir/tokenizer.json");
      ADD_FAILURE() << row.name << ": loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << row.name;
      EXPECT_THAT(error.message(), HasSubstr(row.message)) << row.name;
      EXPECT_THAT(error.message(), HasSubstr("dir/tokenizer.json")) << row.name;
    }
  }
}

TEST(TokenizerFile, APieceThatComesTwiceHasItsLastId) {
  const Json file = {{"model",
                      {{"type", "Unigram"},
                       {"unk_id", 0},
                       {"vocab", Json::array({Json::array({"a", 0.0}), Json::array({"b", -1.0}),
                                              Json::array({"a", -2.0})})}}}};
  const auto tokenizer = Tokenizer::from_json(dump_json(file), "t");
  EXPECT_EQ(tokenizer->encode("ab"), (std::vector<std::int32_t>{2, 1}));
  EXPECT_EQ(tokenizer->token_text(0), "a");
}

TEST(TokenizerFile, TextThatIsNoTokenizerIsRefused) {
  for (const std::string text :
       {"", "{", "[]", "null", "{\"model\": 3}", "\xFF\xFE", "{\"model\":{\"type\":\"BPE\"}}"})
    EXPECT_THROW(Tokenizer::from_json(text, "t"), Error) << text;
  EXPECT_THROW(Tokenizer::from_json(std::string(100'000, '['), "t"), Error);
  // Every prefix and many single-byte changes of a good file: an error or a tokenizer, never a
  // crash.
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string text = gpt2_text();
    if (round % 2 == 0)
      text.resize(random() % text.size());
    else
      text[random() % text.size()] = static_cast<char>(random());
    try {
      const auto tokenizer = Tokenizer::from_json(text, "t");
      tokenizer->decode(tokenizer->encode("Hello, world! \u4F60"), false);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.message();
    }
  }
}

TEST(TokenizerFile, EndTokensComeFromTheFirstFileThatStatesThem) {
  const std::filesystem::path directory =
      std::filesystem::path(testing::TempDir()) / "sluice_tokenizer_ends";
  std::filesystem::create_directories(directory);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(directory / name) << text;
  };
  write("tokenizer.json", gpt2_text());
  write("config.json", R"({"eos_token_id": [64, 900], "bos_token_id": null})");
  EXPECT_EQ(Tokenizer::load(directory)->eos_token(), "a");
  EXPECT_EQ(Tokenizer::load(directory)->bos_id(), std::nullopt);
  write("special_tokens_map.json",
        R"({"eos_token": {"content": "<|endoftext|>"}, "bos_token": "b"})");
  EXPECT_EQ(Tokenizer::load(directory)->eos_id(), 900);
  EXPECT_EQ(Tokenizer::load(directory)->bos_token(), "b");
  EXPECT_EQ(Tokenizer::load(directory)->eos_place(), "special_tokens_map.json: eos_token");
  // special_tokens_map.json is laid over a tokenizer_config.json without added_tokens_decoder.
  write("tokenizer_config.json", R"({"eos_token": "c"})");
  EXPECT_EQ(Tokenizer::load(directory)->eos_token(), "<|endoftext|>");
  write("tokenizer_config.json", R"({"eos_token": "c", "added_tokens_decoder": {}})");
  EXPECT_EQ(Tokenizer::load(directory)->eos_token(), "c");
  EXPECT_EQ(Tokenizer::load(directory)->eos_place(), "tokenizer_config.json: eos_token");
  write("tokenizer_config.json", R"({"eos_token": 7})");
  EXPECT_THROW(Tokenizer::load(directory), Error);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace sluice
