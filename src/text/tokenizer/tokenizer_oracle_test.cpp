#include "text/tokenizer/tokenizer_oracle.h"
#include "base/testing/source_dir.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace sluice {
namespace {

std::string golden(const std::string& path) {
  return source_dir() + "/tests/golden/" + path;
}

Json read_json(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  return parse_json_or_throw(std::string(std::istreambuf_iterator<char>(stream), {}), path);
}

class TokenizerOracle : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerOracle, EveryFieldOfEveryCaseIsEqual) {
  const std::string directory = golden(std::string("tokenizers/") + GetParam());
  const auto tokenizer = Tokenizer::load(directory);
  const OracleReport report =
      check_tokenizer_oracle(*tokenizer, read_json(directory + "/oracle.json"));
  EXPECT_GE(report.cases, 70);
  EXPECT_EQ(report.failures, 0);
  for (const std::string& message : report.messages) ADD_FAILURE() << message;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, TokenizerOracle,
                         testing::Values("gpt2-bytelevel", "llama3-with-merges",
                                         "llama3-ignore-merges", "qwen2-nfc", "o200k",
                                         "deepseek-v3-3step", "glm4-gmask", "kimi-han",
                                         "starcoder-digits", "falcon-punct", "neox-prefix-space",
                                         "added-token-flags", "llama2-prepend", "mistral-metaspace",
                                         "gemma-split", "t5-unigram", "xlmr-unigram",
                                         "bert-wordpiece", "spm-bpe-llama2", "spm-bpe-gemma",
                                         "spm-unigram-t5", "tiktoken-o200k", "tekken"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(TokenizerOracleCheck, ReportsEveryKindOfDifference) {
  const std::string directory = golden("tokenizers/gpt2-bytelevel");
  const auto tokenizer = Tokenizer::load(directory);
  const Json good = read_json(directory + "/oracle.json");
  const auto failures_with = [&](auto change) {
    Json oracle = good;
    change(oracle["cases"][10]);
    const OracleReport report = check_tokenizer_oracle(*tokenizer, oracle);
    EXPECT_FALSE(report.messages.empty());
    return report.failures;
  };
  EXPECT_EQ(failures_with([](Json& c) { c["ids_with_special"][0] = 5; }), 1);
  EXPECT_EQ(failures_with([](Json& c) { c["decoded"] = "Jello, world!"; }), 1);
  EXPECT_EQ(failures_with([](Json& c) { c["decoded_skip_special"] = "Jello, world!"; }), 1);
  EXPECT_EQ(failures_with([](Json& c) { c["prefix_decodes"][3][1] = "x"; }), 1);
  EXPECT_EQ(failures_with([](Json& c) { c["stream"][0] = "x"; }), 1);
  EXPECT_THROW(failures_with([](Json& c) { c.erase("stream"); }), Error);
  Json other = good;
  other["kind"] = "odd";
  EXPECT_THROW(check_tokenizer_oracle(*tokenizer, other), Error);
}

TEST(TokenizerOracleCheck, SluiceTinyPromptsHaveTheRecordedIds) {
  const auto tokenizer = Tokenizer::load(source_dir() + "/models/sluice-tiny");
  EXPECT_EQ(tokenizer->eos_token(), "<|endoftext|>");
  const Json records = read_json(golden("sluice-tiny.json"));
  ASSERT_GT(records.size(), 5u);
  for (const Json& record : records) {
    const auto ids = record["prompt_ids"].get<std::vector<std::int32_t>>();
    EXPECT_EQ(tokenizer->encode(record["prompt"].get<std::string>(), {.add_special_tokens = false}),
              ids);
    EXPECT_EQ(tokenizer->decode(ids, false), record["prompt"].get<std::string>());
    const auto output = record["output_ids"].get<std::vector<std::int32_t>>();
    EXPECT_EQ(tokenizer->decode(output, false), record["output"].get<std::string>());
  }
}

}  // namespace
}  // namespace sluice
