// Tokenizers from files other than tokenizer.json, the selection among files, and the errors of bad
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "text/tokenizer/files/sentencepiece_model.h"
#include "text/tokenizer/files/tokenizer_files.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFixtures = source_dir() + "/tests/golden/tokenizers/";

std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

// A model directory, removed after the test.
class Folder {
 public:
  explicit Folder(const char* name) : path_(fs::path(testing::TempDir()) / name) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder& write(const std::string& name, const std::string& text) {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return *this;
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

// Protobuf by hand.
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string bytes_field(int number, const std::string& bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string number_field(int number, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(value);
}
std::string float_field(int number, float value) {
  std::string out = varint(static_cast<std::uint64_t>(number) << 3 | 5);
  return out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string piece(const std::string& text, float score = 0, int type = 1) {
  return bytes_field(1, bytes_field(1, text) + float_field(2, score) +
                            number_field(3, static_cast<std::uint64_t>(type)));
}
const std::string kUnk = piece("<unk>", 0, 2);
const std::string kBpe = bytes_field(2, number_field(3, 2));

struct BadFile {
  const char* name;
  std::string bytes;
  const char* message;
};

template <class Load>
void expect_refused(const std::vector<BadFile>& rows, Load load) {
  for (const BadFile& row : rows) {
    try {
      load(row.bytes);
      ADD_FAILURE() << row.name << ": loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << row.name;
      EXPECT_THAT(error.message(), HasSubstr(row.message)) << row.name;
      EXPECT_THAT(error.message(), HasSubstr("dir/file")) << row.name;
    }
  }
}

TEST(SentencePieceFile, EveryFaultIsNamed) {
  const std::string inf = float_field(2, std::numeric_limits<float>::infinity());
  std::string no_bytes = kUnk + bytes_field(2, number_field(3, 2) + number_field(35, 1));
  expect_refused(
      {
          {"empty", "", "there are no pieces"},
          {"text", "hello", "wire type"},
          {"no piece", kBpe, "there are no pieces"},
          {"piece beyond the file", std::string("\x0A\x7F", 2),
           "says that it has 127 bytes, of which 0 are there"},
          {"length of 2^60", std::string("\x0A") + varint(1ull << 60),
           "says that it has 1152921504606846976 bytes"},
          {"number without an end", kUnk + "\x10\xFF\xFF", "ends inside a number"},
          {"number of 80 bits", kUnk + "\x10" + std::string(11, '\xFF'), "more than 64 bits"},
          {"group", kUnk + "\x13", "wire type 3"},
          {"field 0", kUnk + std::string("\x00\x00", 2), "field number 0"},
          {"empty text", kUnk + piece(""), "pieces[1]: a text of 0 bytes"},
          {"long text", kUnk + piece(std::string(5000, 'a')), "pieces[1]: a text of 5000 bytes"},
          {"text that is not UTF-8", kUnk + piece("\xFF"), "pieces[1]: the text is not UTF-8"},
          {"score of infinity", kUnk + bytes_field(1, bytes_field(1, "a") + inf),
           "pieces[1]: the score is not finite"},
          {"score as bytes", kUnk + bytes_field(1, bytes_field(1, "a") + bytes_field(2, "1")),
           "the score must be a float"},
          {"text as a number", kUnk + bytes_field(1, number_field(1, 1)),
           "pieces[1]: field 1 must be bytes"},
          {"type 9", kUnk + piece("a", 0, 9), "pieces[1]: the type is 9"},
          {"text twice", kUnk + piece("a") + piece("a") + kBpe,
           "\"a\" appears twice, with ids 1 and 2"},
          {"model type", kUnk + bytes_field(2, number_field(3, 7)), "model_type is 7"},
          {"words", kUnk + bytes_field(2, number_field(3, 3)), "model_type is 3 (words)"},
          {"unk beyond", kUnk + bytes_field(2, number_field(3, 2) + number_field(40, 5)),
           "unk_id is 5; there are 1 pieces"},
          {"bos beyond", kUnk + bytes_field(2, number_field(3, 2) + number_field(41, 7)),
           "bos_id is 7"},
          {"id 2^31", kUnk + bytes_field(2, number_field(41, 1ull << 31)), "is the id 2147483648"},
          {"byte fallback without bytes", no_bytes + piece("a"), "eos_id is 2; there are 2 pieces"},
          {"byte fallback with few bytes",
           no_bytes + piece("<0x00>", 0, 6) + piece("b") + piece("c"),
           "there must be a byte piece <0x01>"},
          {"byte without fallback", kUnk + piece("<0x00>", 0, 6) + piece("b") + kBpe,
           "pieces[1] is a byte"},
          {"charsmap cut off",
           kUnk + piece("a") + piece("b") + kBpe + bytes_field(3, bytes_field(2, "abc")),
           "a precompiled_charsmap of 3 bytes"},
          {"trie beyond the charsmap",
           kUnk + piece("a") + piece("b") + kBpe +
               bytes_field(3, bytes_field(2, std::string("\xFF\xFF\x00\x00zzzz", 8))),
           "its trie has 65535 bytes"},
          {"map for decoding", kUnk + piece("a") + kBpe + bytes_field(5, bytes_field(2, "abcd")),
           "denormalizer_spec"},
      },
      [](const std::string& bytes) { sentencepiece_parts(bytes, "dir/file", {}); });
}

TEST(SentencePieceFile, AnyChangeOfABytesIsAnErrorOrATokenizer) {
  std::mt19937 random(4);
  for (const char* name : {"spm-bpe-llama2", "spm-unigram-t5"}) {
    const std::string good = read_text(kFixtures + name + "/tokenizer.model");
    for (int round = 0; round < 150; ++round) {
      std::string bytes = good;
      if (round % 3 == 0)
        bytes.resize(random() % bytes.size());
      else
        bytes[random() % (round % 3 == 1 ? bytes.size() : 400)] = static_cast<char>(random());
      try {
        const Tokenizer tokenizer(sentencepiece_parts(bytes, "file", {}));
        tokenizer.decode(tokenizer.encode("Hello,  w\u00f6rld \u4F60 \U0001F600"), false);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.message();
      }
    }
  }
}

// Trained by hand: "ab" and "abc" are merged through "bc". "bc" is unused and so is split again if
// it remains.
TEST(SentencePieceFile, UnusedPiecesAreOnlyPassedThrough) {
  const std::string bytes =
      kUnk + piece("a", -1) + piece("b", -2) + piece("c", -3) + piece("bc", -4, 5) +
      piece("abc", -5) + piece("\u2581", -6) +
      bytes_field(2, number_field(3, 2) + number_field(41, 0) + number_field(42, 0)) +
      bytes_field(3, number_field(3, 0) + number_field(4, 0));
  const Tokenizer tokenizer(sentencepiece_parts(bytes, "file", {}));
  const EncodeOptions plain{.add_special_tokens = false};
  EXPECT_THAT(tokenizer.encode("abc", plain), ElementsAre(5));
  EXPECT_THAT(tokenizer.encode("bbc c", plain), ElementsAre(2, 2, 3, 6, 3));
  EXPECT_THAT(tokenizer.encode("xyabc", plain),
              ElementsAre(0, 5));  // a run of unknown characters is one unk
}

TEST(SentencePieceFile, SpecialTokensAndEndsAreThoseOfTransformers) {
  const std::string model = read_text(kFixtures + "spm-bpe-llama2/tokenizer.model");
  const auto ids = [&](const char* config, const char* text) {
    Folder folder("sluice_spm");
    folder.write("tokenizer.model", model).write("tokenizer_config.json", config);
    return Tokenizer::load(folder.path())->encode(text);
  };
  const auto plain = ids("{}", "Hello");
  ASSERT_GE(plain.size(), 2u);
  EXPECT_EQ(plain.front(), 1);  // <s>
  std::vector<std::int32_t> body(plain.begin() + 1, plain.end());
  EXPECT_EQ(ids(R"({"add_bos_token": false})", "Hello"), body);
  auto ended = body;
  ended.push_back(2);
  EXPECT_EQ(ids(R"({"tokenizer_class": "T5Tokenizer"})", "Hello"), ended);
  EXPECT_EQ(ids(R"({"add_bos_token": false, "add_eos_token": true})", "Hello"), ended);
  // The dummy prefix stands only before the text; with legacy before each part between special
  // tokens.
  const auto modern = ids(R"({"add_bos_token": false})", "Hello</s>Hello");
  const auto legacy = ids(R"({"add_bos_token": false, "legacy": true})", "Hello</s>Hello");
  auto twice = ended;
  twice.insert(twice.end(), body.begin(), body.end());
  EXPECT_EQ(legacy, twice);
  EXPECT_NE(modern, legacy);
  EXPECT_TRUE(std::equal(ended.begin(), ended.end(), modern.begin()));
  const auto added = ids(R"({"add_bos_token": false, "added_tokens_decoder":
      {"950": {"content": "<|im_start|>", "special": true}, "5": {"content": "<tool>",
      "special": false}}})",
                         "<|im_start|><tool>");
  EXPECT_THAT(added, ElementsAre(950, 5));
  Folder folder("sluice_spm_ends");
  folder.write("tokenizer.model", model);
  const auto tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_EQ(tokenizer->bos_token(), "<s>");
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("Hello</s>"), true), "Hello");
}

// The ids of XLM-RoBERTa: those of the model plus one, between fairseq's own.
TEST(SentencePieceFile, FairseqCountsItsOwnWay) {
  const std::string bytes = read_text(kFixtures + "spm-bpe-llama2/tokenizer.model");
  const Json oracle =
      parse_json_or_throw(read_text(kFixtures + "spm-bpe-llama2/oracle.json"), "oracle");
  const auto num_pieces = static_cast<std::int32_t>(parse_sentencepiece(bytes, "m").pieces.size());
  Folder folder("fairseq");
  folder.write("sentencepiece.bpe.model", bytes);
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "XLMRobertaTokenizer"})");
  const auto tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer->token_id("<s>"), 0);
  EXPECT_EQ(tokenizer->token_id("<pad>"), 1);
  EXPECT_EQ(tokenizer->token_id("</s>"), 2);
  EXPECT_EQ(tokenizer->token_id("<unk>"), 3);
  EXPECT_EQ(tokenizer->token_id("<mask>"), num_pieces + 1);
  for (const Json& row : oracle["cases"]) {
    std::vector<std::int32_t> ids = {0};
    for (const std::int32_t id : row["ids"].get<std::vector<std::int32_t>>())
      ids.push_back(id == 0 ? 3 : id + 1);
    ids.push_back(2);
    EXPECT_EQ(tokenizer->encode(row["text"].get<std::string>(), {.parse_special = false}), ids)
        << row["text"];
  }
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "NllbTokenizer"})");
  try {
    Tokenizer::load(folder.path());
    ADD_FAILURE() << "NLLB's ids were guessed";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("NllbTokenizer"));
    EXPECT_THAT(error.message(), HasSubstr("XLMRobertaTokenizer"));
  }
}

TEST(TiktokenFile, EveryFaultIsNamed) {
  const std::string good = read_text(kFixtures + "tiktoken-o200k/tokenizer.tiktoken");
  const Json settings = {{"pat_str", "."}, {"special_tokens", Json::object()}};
  expect_refused(
      {
          {"empty", "", "there are no tokens"},
          {"no rank", "IQ==\n", "line 1 is not the base64"},
          {"no base64", "I!== 0\n", "line 1 is not the base64"},
          {"empty token", " 0\n", "line 1 is not the base64"},
          {"rank with letters", good + "IQ== 1x\n", "is not the base64"},
          {"rank of 2^40", good + "YWJjZGVm 1099511627776\n", "the rank is 1099511627776"},
          {"negative rank", "IQ== -1\n", "the rank is -1"},
          {"rank twice", good + "YWJjZGVmZ2g= 1\n", "have the same id 1"},
          {"token twice", good + "IQ== 5000\n", "appears twice"},
          {"rank far away", good + "YWJjZGVmZ2g= 16000000\n", "one has rank 16000000; at most"},
          {"missing bytes", good.substr(good.find('\n') + 1), "not every single byte is a token"},
          {"line of 1 MB", good + std::string(1 << 20, 'A') + " 7000\n", "is not the base64"},
      },
      [&](const std::string& text) { tiktoken_parts(text, "dir/file", settings, {}); });
  const auto refused = [&](Json bad, const char* message) {
    expect_refused({{message, good, message}},
                   [&](const std::string& text) { tiktoken_parts(text, "dir/file", bad, {}); });
  };
  refused({{"special_tokens", Json::object()}}, "pat_str must be a text");
  refused({{"pat_str", "(a+)+$"}}, "pat_str: catastrophic");
  refused({{"pat_str", "."}, {"special_tokens", {{"<a>", 3}}}}, "\"<a>\" has id 3, which is taken");
  refused({{"pat_str", "."}, {"special_tokens", {{"<a>", "3"}}}}, "\"<a>\" must be an integer");
  refused({{"pat_str", "."}, {"special_tokens", {{"<a>", 1ll << 40}}}},
          "\"<a>\" has id 1099511627776");
  refused({{"pat_str", "."}, {"special_tokens", {{"", 5000}}}}, "must be text of 1 to");
}

TEST(TiktokenFile, PublishedNamesHaveTheirPatternAndSpecialTokens) {
  const std::string ranks = read_text(kFixtures + "tiktoken-o200k/tokenizer.tiktoken");
  ASSERT_TRUE(looks_like_tiktoken(ranks));
  ASSERT_FALSE(looks_like_tiktoken(read_text(kFixtures + "spm-bpe-llama2/tokenizer.model")));
  Folder qwen("sluice_qwen");
  qwen.write("qwen.tiktoken", ranks);
  const auto tokenizer = Tokenizer::load(qwen.path());
  const std::int32_t first = 900;
  EXPECT_EQ(tokenizer->token_id("<|endoftext|>"), first);
  EXPECT_EQ(tokenizer->token_id("<|im_end|>"), first + 2);
  EXPECT_EQ(tokenizer->token_id("<|extra_204|>"), first + 2 + 205);
  EXPECT_EQ(tokenizer->size(), first + 208);
  EXPECT_EQ(tokenizer->encode("e\u0301"), tokenizer->encode("\u00e9"));  // NFC
  // A file called tokenizer.model that is not a protobuf, as Llama 3's; its special tokens are in a
  // file beside it.
  Folder llama("sluice_llama3");
  llama.write("tokenizer.model", ranks)
      .write("tokenizer_config.json", R"({"bos_token": "<|begin_of_text|>",
          "added_tokens_decoder": {"900": {"content": "<|begin_of_text|>", "special": true}}})");
  EXPECT_EQ(Tokenizer::load(llama.path())->bos_id(), 900);
  EXPECT_THAT(Tokenizer::load(llama.path())->encode("<|begin_of_text|>"), ElementsAre(900));
}

TEST(TekkenFile, IdsBeginBehindTheSpecialTokens) {
  Json file = {
      {"config",
       {{"pattern", "."}, {"default_vocab_size", 256 + 30}, {"default_num_special_tokens", 30}}}};
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::string text{kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
    file["vocab"].push_back({{"rank", byte}, {"token_bytes", text}});
  }
  Folder folder("sluice_tekken");
  folder.write("tekken.json", dump_json(file));
  const auto tokenizer = Tokenizer::load(folder.path());
  EXPECT_THAT(tokenizer->encode("a<s>"), ElementsAre(1, 30 + 'a', 1));
  EXPECT_EQ(tokenizer->token_text(29), "<SPECIAL_29>");
  EXPECT_EQ(tokenizer->eos_id(), 2);
  file["special_tokens"] = Json::array({{{"token_str", "<zero>"}}});
  folder.write("tekken.json", dump_json(file));
  const auto listed = Tokenizer::load(folder.path());  // tokens outside the list have no other name
  EXPECT_EQ(listed->token_id("<zero>"), 0);
  EXPECT_EQ(listed->token_text(1), "<SPECIAL_1>");
  file["vocab"][7]["rank"] = 9;
  expect_refused(
      {{"rank", dump_json(file), "vocab[7] must have \"rank\": 7"}},
      [](const std::string& text) { tekken_parts(parse_json_or_throw(text, "t"), "dir/file"); });
}

// The plain files of a tokenizer.json give the same tokenizer.
TEST(VocabularyFiles, EqualTheTokenizerJsonThatTheyCameFrom) {
  const std::vector<std::string> texts = {"Hello, world! It's 12345 \u4F60\u597D",
                                          "  caf\u00e9 na\u00efve\n\n<|endoftext|>x", ""};
  const Json gpt2 =
      parse_json_or_throw(read_text(kFixtures + "gpt2-bytelevel/tokenizer.json"), "gpt2");
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : gpt2["model"]["merges"])
    merges += merge.is_string()
                  ? merge.get<std::string>() + "\n"
                  : merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  Folder folder("sluice_merges");
  folder.write("merges.txt", merges).write("vocab.json", dump_json(gpt2["model"]["vocab"]));
  folder.write(
      "tokenizer_config.json",
      R"({"added_tokens_decoder": {"900": {"content": "<|endoftext|>", "special": true}}})");
  const auto from_files = Tokenizer::load(folder.path());
  const auto original = Tokenizer::load(kFixtures + "gpt2-bytelevel");
  for (const std::string& text : texts)
    EXPECT_EQ(from_files->encode(text), original->encode(text)) << text;

  const Json bert =
      parse_json_or_throw(read_text(kFixtures + "bert-wordpiece/tokenizer.json"), "bert");
  std::string lines;
  for (const auto& [token, id] : bert["model"]["vocab"].items()) lines += token + "\n";
  Folder words("sluice_vocab");
  words.write("vocab.txt", lines);
  const auto from_lines = Tokenizer::load(words.path());
  const auto wordpiece = Tokenizer::load(kFixtures + "bert-wordpiece");
  for (const std::string& text : texts)
    EXPECT_EQ(from_lines->encode(text), wordpiece->encode(text)) << text;
}

TEST(TokenizerChoice, AFileThatIsTooLargeIsNotRead) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "x.tiktoken", "tekken.json"}) {
    Folder folder("sluice_large_tokenizer");
    folder.write(name, "");
    fs::resize_file(fs::path(folder.path()) / name, std::uintmax_t{1} << 30);  // a sparse file
    try {
      Tokenizer::load(folder.path());
      ADD_FAILURE() << "loaded " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_THAT(error.message(), HasSubstr("1073741824 bytes; at most 536870912 are allowed"));
    }
  }
}

TEST(TokenizerChoice, TheModeDecidesAmongSeveralFiles) {
  Folder folder("sluice_choice");
  const auto chosen = [&](TokenizerMode mode) {
    return fs::path(Tokenizer::file_of(folder.path(), mode)).filename().string();
  };
  EXPECT_EQ(chosen(TokenizerMode::kAuto), "");
  folder.write("merges.txt", "");
  EXPECT_EQ(chosen(TokenizerMode::kAuto), "");  // not without vocab.json
  folder.write("vocab.txt", "");
  EXPECT_EQ(chosen(TokenizerMode::kAuto), "vocab.txt");
  folder.write("vocab.json", "");
  EXPECT_EQ(chosen(TokenizerMode::kAuto), "merges.txt");
  folder.write("tekken.json", "");
  EXPECT_EQ(chosen(TokenizerMode::kAuto), "tekken.json");
  folder.write("x.tiktoken", "");
  EXPECT_EQ(chosen(TokenizerMode::kAuto), "x.tiktoken");
  folder.write("spiece.model", "");
  EXPECT_EQ(chosen(TokenizerMode::kAuto), "spiece.model");
  folder.write("tokenizer.model", "");
  EXPECT_EQ(chosen(TokenizerMode::kAuto), "tokenizer.model");
  folder.write("tokenizer.json", "");
  EXPECT_EQ(chosen(TokenizerMode::kAuto), "tokenizer.json");
  EXPECT_EQ(chosen(TokenizerMode::kSlow), "tokenizer.model");
  EXPECT_EQ(chosen(TokenizerMode::kMistral), "tekken.json");
  Folder hugging("sluice_no_tekken");
  hugging.write("tokenizer.json", "");
  EXPECT_EQ(Tokenizer::file_of(hugging.path(), TokenizerMode::kMistral), "");
  Folder empty("sluice_no_tokenizer");
  try {
    Tokenizer::load(empty.path());
    ADD_FAILURE() << "loaded";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(),
                HasSubstr("looked for tokenizer.json, tokenizer.model, spiece.model"));
  }
  EXPECT_THROW(Tokenizer::load("/nonexistent"), Error);
}

}  // namespace
}  // namespace sluice
