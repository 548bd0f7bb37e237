#include "checkpoint/gguf_generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/folder.h"
#include "checkpoint/gguf/gguf_text.h"
#include "checkpoint/load_config.h"
#include "checkpoint/testing/gguf_writer.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A model of byte-level BPE, or of SentencePiece, with these tokens before 200 plain ones.
GgufWriter model(std::vector<std::string> tokens, const char* kind = "gpt2") {
  for (int i = 0; i < 200; ++i) tokens.push_back("t" + std::to_string(i));
  GgufWriter writer;
  writer.text("general.architecture", "qwen2")
      .number("qwen2.embedding_length", std::uint32_t{64})
      .number("qwen2.block_count", std::uint32_t{1})
      .number("qwen2.context_length", std::uint32_t{64})
      .number("qwen2.feed_forward_length", std::uint32_t{64})
      .number("qwen2.attention.head_count", std::uint32_t{4})
      .number("qwen2.attention.layer_norm_rms_epsilon", 1e-5f)
      .text("tokenizer.ggml.model", kind)
      .text("tokenizer.ggml.pre", "qwen2")
      .texts("tokenizer.ggml.merges", {})
      .texts("tokenizer.ggml.tokens", tokens)
      .numbers("tokenizer.ggml.token_type",
               std::vector<std::int32_t>(tokens.size(), std::int32_t{1}));
  if (std::string(kind) == "llama")
    writer.numbers("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1.0f));
  writer.tensor("token_embd.weight", {tokens.size(), 64}, 1,
                std::string(tokens.size() * 64 * 2, '\0'));
  return writer;
}

struct Loaded {
  GenerationConfig generation;
  std::vector<std::string> ignored;
  GgufText text;
};

Loaded load(const GgufWriter& writer) {
  const TestFolder folder;
  folder.write("x.gguf", writer.bytes());
  const std::string path = folder.path() + "/x.gguf";
  return {load_generation_config(path, load_model_config(path)), gguf_ignored_keys(path, true),
          read_gguf_text(path)};
}

TEST(GgufGeneration, EndsAreThoseOfKeysAndTexts) {
  const Loaded loaded = load(model({"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_pad|>"})
                                 .number("tokenizer.ggml.eos_token_id", std::uint32_t{0})
                                 .number("tokenizer.ggml.eot_token_id", std::uint32_t{9}));
  EXPECT_THAT(loaded.generation.eos_token_ids, ElementsAre(0, 2, 3, 9));
  EXPECT_THAT(loaded.generation.ends.places().at(0),
              ElementsAre("tokenizer.ggml.eos_token_id", "the text <|endoftext|>"));
  EXPECT_THAT(loaded.generation.ends.places().at(2), ElementsAre("the text <|im_end|>"));
  // An end is cut out of a prompt as a control token, though the file calls it a plain one.
  EXPECT_THAT(loaded.text.tokenizer_json,
              HasSubstr(R"("special":true,"normalized":false,"content":"<|im_end|>")"));
}

TEST(GgufGeneration, EveryTextOfAnEndCounts) {
  for (const char* text : {"<|eot_id|>",
                           "<|im_end|>",
                           "<|end|>",
                           "<|return|>",
                           "<|call|>",
                           "<|flush|>",
                           "<|calls|>",
                           "<end_of_turn>",
                           "<|endoftext|>",
                           "</s>",
                           "<|eom_id|>",
                           "<EOT>",
                           "_<EOT>",
                           "[EOT]",
                           "[EOS]",
                           "<|end_of_text|>",
                           "<end_of_utterance>",
                           "<eos>",
                           "<turn|>",
                           "<|tool_response>",
                           "<｜end▁of▁sentence｜>",
                           "[e~[",
                           "<fim-pad>",
                           "[PAD]",
                           "<|repo_name|>",
                           "<|file_sep|>"})
    EXPECT_THAT(load(model({"a", text})).generation.eos_token_ids, ElementsAre(1)) << text;
  EXPECT_THAT(load(model({"<|im_start|>", "<s>", "<|eot|>"})).generation.eos_token_ids, IsEmpty());
}

TEST(GgufGeneration, EndsOfAMessageAreLeftOut) {
  EXPECT_THAT(load(model({"<|return|>", "<|call|>", "<|end|>"})).generation.eos_token_ids,
              ElementsAre(0, 1));
  EXPECT_THAT(load(model({"<|flush|>", "<|calls|>", "<|end|>"})).generation.eos_token_ids,
              ElementsAre(0, 1));
  EXPECT_THAT(load(model({"<|return|>", "<|end|>"})).generation.eos_token_ids, ElementsAre(0, 1));
  EXPECT_THAT(load(model({"<|tool_response>", "</s>"})).generation.eos_token_ids, ElementsAre(0));
}

TEST(GgufGeneration, WhatIsNoIdIsIgnored) {
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id", "fim_pad_token_id"}) {
    const std::string name = std::string("tokenizer.ggml.") + key;
    std::vector<GgufWriter> writers;
    writers.push_back(model({"<|im_end|>"}).number(name, std::uint32_t{4294967295u}));
    writers.push_back(model({"<|im_end|>"}).number(name, std::int32_t{-1}));
    writers.push_back(model({"<|im_end|>"}).number(name, std::uint32_t{201}));
    writers.push_back(model({"<|im_end|>"}).number(name, std::uint64_t{1} << 63));
    writers.push_back(model({"<|im_end|>"}).text(name, "2"));
    writers.push_back(model({"<|im_end|>"}).number(name, 2.5f));
    writers.push_back(model({"<|im_end|>"}).numbers(name, std::vector<std::int32_t>{2}));
    for (const GgufWriter& writer : writers) {
      const Loaded loaded = load(writer);
      EXPECT_THAT(loaded.generation.eos_token_ids, ElementsAre(0));
      EXPECT_THAT(loaded.generation.ends.ignored(), ElementsAre(HasSubstr(name)));
    }
  }
  // SentencePiece has the number of </s> as its default.
  EXPECT_THAT(load(model({"<unk>", "<s>", "e"}, "llama")
                       .number("tokenizer.ggml.eos_token_id", std::uint32_t{4294967295u}))
                  .generation.eos_token_ids,
              ElementsAre(2));
}

TEST(GgufGeneration, SamplingKeysAreDefaults) {
  const GenerationConfig c = load(model({"a"})
                                      .number("general.sampling.temp", 0.0f)
                                      .number("general.sampling.top_k", std::int32_t{1})
                                      .number("general.sampling.top_p", 0.5f)
                                      .text("general.sampling.min_p", "0.25")
                                      .number("general.sampling.penalty_repeat", 1.5f))
                                 .generation;
  EXPECT_EQ(c.temperature, 0);
  EXPECT_EQ(c.top_k, 1);
  EXPECT_EQ(c.top_p, 0.5);
  EXPECT_EQ(c.min_p, 0.25);
  EXPECT_EQ(c.repetition_penalty, 1.5);
  EXPECT_THAT(c.ignored_keys, IsEmpty());
  const GenerationConfig off = load(model({"a"})
                                        .number("general.sampling.temp", -1.0f)
                                        .number("general.sampling.top_k", std::int32_t{0})
                                        .number("general.sampling.penalty_last_n", std::int32_t{0})
                                        .number("general.sampling.penalty_repeat", 1.5f)
                                        .number("general.sampling.mirostat", std::int32_t{0}))
                                   .generation;
  EXPECT_EQ(off.temperature, 0);
  EXPECT_EQ(off.top_k, -1);
  EXPECT_EQ(off.repetition_penalty, std::nullopt);
  EXPECT_THAT(off.ignored_keys, IsEmpty());
}

TEST(GgufGeneration, SamplingKeysWithoutEffectAreListed) {
  const Loaded loaded = load(model({"a"})
                                 .number("general.sampling.xtc_probability", 0.5f)
                                 .number("general.sampling.xtc_threshold", 0.1f)
                                 .number("general.sampling.mirostat", std::int32_t{2})
                                 .text("general.sampling.sequence", "kt")
                                 .text("general.sampling.temp", "warm")
                                 .number("general.sampling.typical_p", 0.5f)
                                 .text("general.name", "n")
                                 .number("qwen2.no_such", std::uint32_t{1}));
  EXPECT_EQ(loaded.generation.temperature, std::nullopt);
  for (const char* key : {"general.sampling.xtc_probability", "general.sampling.xtc_threshold",
                          "general.sampling.mirostat", "general.sampling.sequence",
                          "general.sampling.temp", "general.sampling.typical_p", "qwen2.no_such"})
    EXPECT_THAT(loaded.ignored, Contains(key));
  EXPECT_THAT(loaded.ignored, Not(Contains("general.name")));
  EXPECT_THAT(loaded.ignored, Not(Contains("tokenizer.ggml.tokens")));
  EXPECT_THAT(loaded.ignored, Not(Contains("qwen2.block_count")));
}

}  // namespace
}  // namespace sluice
