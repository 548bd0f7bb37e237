// A GGUF file made of a tokenizer.json gives the same tokens as that tokenizer.json.
#include "server/core/model_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "base/json.h"
#include "base/testing/folder.h"
#include "base/testing/source_dir.h"
#include "checkpoint/testing/gguf_writer.h"
#include "text/tokenizer/files/sentencepiece_model.h"

namespace sluice {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The tokenizer's part of a GGUF file, as the converter of llama.cpp writes it.
GgufWriter writer_of(const Json& tokenizer, const std::string& pre) {
  const Json& vocab = tokenizer["model"]["vocab"];
  std::vector<std::string> tokens;
  const auto put = [&](const std::string& text, std::size_t id) {
    if (id >= tokens.size()) tokens.resize(id + 1);
    tokens[id] = text;
  };
  for (const auto& [text, id] : vocab.items()) put(text, id.get<std::size_t>());
  for (const Json& added : tokenizer["added_tokens"]) put(added["content"], added["id"]);
  std::vector<std::int32_t> types(tokens.size(), 1);
  for (const Json& added : tokenizer["added_tokens"])
    types[added["id"].get<std::size_t>()] = added["special"].get<bool>() ? 3 : 4;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i].empty()) {
      tokens[i] = "[PAD" + std::to_string(i) + "]";
      types[i] = 5;
    }
  std::vector<std::string> merges;
  for (const Json& merge : tokenizer["model"]["merges"])
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", pre)
      .texts("tokenizer.ggml.tokens", tokens);
  writer.numbers("tokenizer.ggml.token_type", types).texts("tokenizer.ggml.merges", merges);
  return writer;
}

const char* const kTexts[] = {"Hello world!  It's 1234567 o'clock,\n\n\tisn't IT?  ",
                              "naïve café Ω Ⅷ ２３ 中文測試 かな 한국어",
                              "f(x) = x_1^2 + 'quoted'; // \r\n\r\n   end",
                              "e\u0301 \u212b  \u00a0x   y",
                              "",
                              " ",
                              "ABCdefGHI don't DON'T we'LL"};

class FromTokenizerJson : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(FromTokenizerJson, SameTokens) {
  const auto [fixture, pre] = GetParam();
  const std::string text =
      read_file(source_dir() + "/tests/golden/tokenizers/" + fixture + "/tokenizer.json");
  const Json json = parse_json_or_throw(text, fixture);
  const auto original = Tokenizer::from_json(text, fixture);
  GgufWriter writer = writer_of(json, pre);
  // The converter writes what the post-processor adds.
  const std::vector<std::int32_t> added = original->encode("");
  ASSERT_LE(added.size(), 1u);
  if (!added.empty())
    writer.number("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(added.front()));
  writer.number("tokenizer.ggml.add_bos_token", !added.empty());
  const TestFolder folder;
  folder.write("x.gguf", writer.bytes());
  const auto tokenizer = load_tokenizer(folder.path() + "/x.gguf");
  ASSERT_TRUE(has_tokenizer(folder.path() + "/x.gguf"));

  std::vector<std::string> texts(std::begin(kTexts), std::end(kTexts));
  std::string specials;
  for (const Json& token : json["added_tokens"])
    specials += "a " + token["content"].get<std::string>() + " b";
  texts.push_back(specials);
  for (const std::string& sample : texts) {
    const std::vector<std::int32_t> ids = original->encode(sample);
    EXPECT_EQ(tokenizer->encode(sample), ids) << sample;
    EXPECT_EQ(tokenizer->decode(ids, true), original->decode(ids, true)) << sample;
    EXPECT_EQ(tokenizer->decode(ids, false), original->decode(ids, false)) << sample;
  }
}
INSTANTIATE_TEST_SUITE_P(Fixtures, FromTokenizerJson,
                         testing::Values(std::pair("deepseek-v3-3step", "deepseek-v3"),
                                         std::pair("qwen2-nfc", "qwen2"),
                                         std::pair("starcoder-digits", "smollm"),
                                         std::pair("starcoder-digits", "starcoder"),
                                         std::pair("gpt2-bytelevel", "gpt-2"),
                                         std::pair("llama3-ignore-merges", "llama-bpe")),
                         [](const auto& info) {
                           std::string name =
                               std::string(info.param.first) + "_" + info.param.second;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

// The tokenizer's part of a GGUF file, as the converter of llama.cpp makes it of a tokenizer.model:
// user-defined pieces become added tokens with plain spaces.
GgufWriter writer_of(const SentencePieceModel& model) {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<std::int32_t> types;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    std::string text = piece.text;
    if (piece.type == SentencePieceModel::kUserDefined)
      for (std::size_t at; (at = text.find("\u2581")) != std::string::npos;)
        text.replace(at, 3, " ");
    tokens.push_back(std::move(text));
    scores.push_back(piece.type == SentencePieceModel::kUserDefined ? -1000 : piece.score);
    types.push_back(piece.type);
  }
  std::vector<std::int8_t> charsmap(model.precompiled_charsmap.begin(),
                                    model.precompiled_charsmap.end());
  GgufWriter writer;
  writer.text("tokenizer.ggml.model",
              model.model_type == SentencePieceModel::kUnigram ? "t5" : "llama");
  writer.texts("tokenizer.ggml.tokens", tokens).numbers("tokenizer.ggml.scores", scores);
  writer.numbers("tokenizer.ggml.token_type", types);
  writer.number("tokenizer.ggml.unknown_token_id", static_cast<std::uint32_t>(model.unk_id));
  if (model.bos_id >= 0)
    writer.number("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(model.bos_id));
  writer.number("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(model.eos_id));
  writer.number("tokenizer.ggml.add_space_prefix", model.add_dummy_prefix);
  writer.number("tokenizer.ggml.remove_extra_whitespaces", model.remove_extra_whitespaces);
  if (!charsmap.empty()) writer.numbers("tokenizer.ggml.precompiled_charsmap", charsmap);
  return writer;
}

class FromSentencePiece : public testing::TestWithParam<const char*> {};

// The ids are those of the sentencepiece library.
TEST_P(FromSentencePiece, TokensOfTheLibrary) {
  const std::string fixture = source_dir() + "/tests/golden/tokenizers/" + GetParam();
  const SentencePieceModel model =
      parse_sentencepiece(read_file(fixture + "/tokenizer.model"), GetParam());
  const TestFolder folder;
  folder.write("x.gguf", writer_of(model).bytes());
  const auto tokenizer = load_tokenizer(folder.path() + "/x.gguf");
  const Json oracle = parse_json_or_throw(read_file(fixture + "/oracle.json"), GetParam());
  ASSERT_GT(oracle["cases"].size(), 20u);
  for (const Json& row : oracle["cases"]) {
    const std::string text = row["text"];
    // Where a file's user-defined tokens have spaces, it cannot tell them from a text that spells
    // the mark for a space.
    if (text.find("\u2581\u2581") != std::string::npos &&
        std::string(GetParam()) == "spm-bpe-gemma")
      continue;
    const auto ids = row["ids"].get<std::vector<std::int32_t>>();
    EXPECT_EQ(tokenizer->encode(text, {.add_special_tokens = false, .parse_special = false}), ids)
        << text;
    EXPECT_EQ(tokenizer->decode(ids, false), row["decoded"].get<std::string>()) << text;
  }
  const std::vector<std::int32_t> ends = tokenizer->encode("");
  if (model.model_type == SentencePieceModel::kUnigram)
    EXPECT_EQ(ends, std::vector<std::int32_t>{model.eos_id});
  else
    EXPECT_EQ(ends, std::vector<std::int32_t>{model.bos_id});
}
INSTANTIATE_TEST_SUITE_P(Fixtures, FromSentencePiece,
                         testing::Values("spm-bpe-llama2", "spm-bpe-gemma", "spm-unigram-t5"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

// What follows a special or an added token begins with the prefix again, as in llama.cpp and in the
// older classes of transformers.
TEST(ModelText, SentencePiecePrefixAfterSpecialTokens) {
  const std::string fixture =
      source_dir() + "/tests/golden/tokenizers/spm-bpe-llama2/tokenizer.model";
  const SentencePieceModel model = parse_sentencepiece(read_file(fixture), "spm");
  GgufWriter writer = writer_of(model);
  writer.number("tokenizer.ggml.add_bos_token", false).number("tokenizer.ggml.add_eos_token", true);
  const TestFolder folder;
  folder.write("x.gguf", writer.bytes());
  const auto tokenizer = load_tokenizer(folder.path() + "/x.gguf");
  EXPECT_EQ(tokenizer->bos_id(), model.bos_id);
  EXPECT_EQ(tokenizer->eos_token(), model.pieces[static_cast<std::size_t>(model.eos_id)].text);
  std::vector<std::int32_t> word = tokenizer->encode("hello", {.add_special_tokens = false});
  std::vector<std::int32_t> wanted = word;
  wanted.push_back(model.eos_id);
  wanted.insert(wanted.end(), word.begin(), word.end());
  wanted.push_back(model.eos_id);
  EXPECT_EQ(tokenizer->encode("hello" + tokenizer->eos_token() + "hello"), wanted);
}

GgufWriter byte_tokens() {
  // 256 characters of the byte alphabet, then two marks.
  std::vector<std::string> tokens;
  const auto original = parse_json_or_throw(
      read_file(source_dir() + "/tests/golden/tokenizers/gpt2-bytelevel/tokenizer.json"), "gpt2");
  std::vector<std::pair<std::size_t, std::string>> by_id;
  for (const auto& [text, id] : original["model"]["vocab"].items())
    if (text.size() <= 2 &&
        (text.size() == 1 || (static_cast<unsigned char>(text[0]) & 0xE0) == 0xC0))
      by_id.emplace_back(id, text);
  std::sort(by_id.begin(), by_id.end());
  for (auto& [id, text] : by_id) tokens.push_back(text);
  tokens.push_back("<s>");
  tokens.push_back("</s>");
  std::vector<std::int32_t> types(tokens.size(), 1);
  types[types.size() - 1] = types[types.size() - 2] = 3;
  GgufWriter writer;
  writer.text("tokenizer.ggml.model", "gpt2")
      .texts("tokenizer.ggml.tokens", tokens)
      .numbers("tokenizer.ggml.token_type", types);
  writer.texts("tokenizer.ggml.merges", {})
      .number("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(tokens.size() - 2));
  writer.number("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(tokens.size() - 1));
  return writer;
}

TEST(ModelText, BosAndEosAndTemplate) {
  GgufWriter writer = byte_tokens();
  writer.number("tokenizer.ggml.add_bos_token", true).number("tokenizer.ggml.add_eos_token", true);
  writer.text(
      "tokenizer.chat_template",
      "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}");
  writer.texts("tokenizer.chat_templates", {"rag"})
      .text("tokenizer.chat_template.rag", "rag{{ messages[0]['content'] }}");
  const TestFolder folder;
  folder.write("x.gguf", writer.bytes());
  const std::string path = folder.path() + "/x.gguf";
  const auto tokenizer = load_tokenizer(path);
  EXPECT_EQ(tokenizer->bos_token(), "<s>");
  EXPECT_EQ(tokenizer->eos_token(), "</s>");
  const auto ids = tokenizer->encode("a");
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids.front(), tokenizer->bos_id());
  EXPECT_EQ(ids.back(), tokenizer->eos_id());
  EXPECT_EQ(tokenizer->encode("a", {.add_special_tokens = false}).size(), 1u);
  EXPECT_EQ(tokenizer->decode(ids, true), "a");
  const auto chat = load_chat_template(path);
  ASSERT_NE(chat, nullptr);
  ChatInput input;
  input.messages.push_back({{"role", "user"}, {"content", "hi"}});
  EXPECT_EQ(chat->render(input).value().text, "<s>hi</s>");
  EXPECT_EQ(load_chat_template(path, "{{ 'mine' }}")->render(input).value().text, "mine");
}

TEST(ModelText, WithoutATemplateThereIsNone) {
  const TestFolder folder;
  folder.write("x.gguf", byte_tokens().bytes());
  EXPECT_EQ(load_chat_template(folder.path() + "/x.gguf"), nullptr);
  EXPECT_EQ(load_tokenizer(folder.path() + "/x.gguf")->encode("a").size(),
            1u);  // no bos is added unless the file says so
}

TEST(ModelText, Refusals) {
  struct Case {
    GgufWriter writer;
    const char* message;
  };
  std::vector<Case> cases;
  cases.push_back({GgufWriter(), "the key tokenizer.ggml.model is missing"});
  const auto pieces = [] {
    GgufWriter writer;
    writer.text("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a"});
    return writer;
  };
  cases.push_back(
      {pieces(),
       "tokenizer.ggml.scores has 0 entries; there must be one for each of the 4 tokens"});
  cases.push_back(
      {pieces().numbers("tokenizer.ggml.scores", std::vector<float>{0, 0, 0}),
       "tokenizer.ggml.scores has 3 entries; there must be one for each of the 4 tokens"});
  cases.push_back({pieces().numbers("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, NAN}),
                   "tokenizer.ggml.scores is nan; it must be a finite number"});
  cases.push_back(
      {pieces().texts("tokenizer.ggml.scores", {"0", "0", "0", "0"}), "tokenizer.ggml.scores"});
  cases.push_back({pieces()
                       .numbers("tokenizer.ggml.scores", std::vector<float>(4))
                       .numbers("tokenizer.ggml.token_type", std::vector<std::int32_t>{2, 3, 3, 0}),
                   "pieces[3]: the type is 0; known are 1 to 6"});
  cases.push_back({pieces()
                       .numbers("tokenizer.ggml.scores", std::vector<float>(4))
                       .numbers("tokenizer.ggml.token_type", std::vector<std::int32_t>{2, 3, 3, 6}),
                   "with byte_fallback there must be a byte piece <0x00>"});
  cases.push_back(
      {GgufWriter().text("tokenizer.ggml.model", "bert"),
       "tokenizer.ggml.model is bert; supported are gpt2 (byte-level BPE), llama and t5"});
  cases.push_back({GgufWriter().text("tokenizer.ggml.model", "gpt2"),
                   "the key tokenizer.ggml.tokens is missing"});
  cases.push_back({byte_tokens().text("tokenizer.ggml.pre", "strange"),
                   "tokenizer.ggml.pre is strange, which is not known; known are default, gpt-2"});
  cases.push_back({GgufWriter()
                       .text("tokenizer.ggml.model", "gpt2")
                       .texts("tokenizer.ggml.tokens", {"a", "b"})
                       .numbers<std::int32_t>("tokenizer.ggml.token_type", {1}),
                   "has 2 entries and tokenizer.ggml.token_type 1; they must be equal"});
  cases.push_back({GgufWriter()
                       .text("tokenizer.ggml.model", "gpt2")
                       .texts("tokenizer.ggml.tokens", {"a", "\xff"}),
                   "tokenizer.ggml.tokens[1] is not UTF-8"});
  cases.push_back({GgufWriter()
                       .text("tokenizer.ggml.model", "gpt2")
                       .texts("tokenizer.ggml.tokens", {"a", "a"})
                       .texts("tokenizer.ggml.merges", {}),
                   "a"});
  cases.push_back({GgufWriter()
                       .text("tokenizer.ggml.model", "gpt2")
                       .texts("tokenizer.ggml.tokens", {"a", "b"})
                       .texts("tokenizer.ggml.merges", {"a x"}),
                   "model.merges[0]"});
  cases.push_back({GgufWriter()
                       .text("tokenizer.ggml.model", "gpt2")
                       .texts("tokenizer.ggml.tokens", {"a", "b"})
                       .number("tokenizer.ggml.add_bos_token", true),
                   "the key tokenizer.ggml.bos_token_id is missing or no id of a token, but"});
  for (const Case& row : cases) {
    const TestFolder folder;
    folder.write("x.gguf", row.writer.bytes());
    std::string message;
    try {
      load_tokenizer(folder.path() + "/x.gguf");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      message = error.message();
    }
    EXPECT_NE(message.find(row.message), std::string::npos) << row.message << ": " << message;
    EXPECT_NE(message.find("x.gguf"), std::string::npos) << message;
  }
  // As in llama.cpp: a number beyond the vocabulary is a warning, and as if the key were missing.
  for (const char* name : {"bos_token_id", "eos_token_id", "unknown_token_id", "padding_token_id"})
    for (const std::uint32_t id : {4u, 4294967295u}) {
      const TestFolder folder;
      folder.write("x.gguf", pieces()
                                 .numbers("tokenizer.ggml.scores", std::vector<float>(4))
                                 .number(std::string("tokenizer.ggml.") + name, id)
                                 .bytes());
      EXPECT_EQ(load_tokenizer(folder.path() + "/x.gguf")->size(), 4) << name;
    }
}

}  // namespace
}  // namespace sluice
