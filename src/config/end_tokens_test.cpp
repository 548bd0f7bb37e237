#include "config/end_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "config/generation_config.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

GenerationConfig generation_of(const std::string& generation, const std::string& config) {
  ModelConfig model;
  model.vocab_size = 100;
  return parse_generation_config(generation, "generation_config.json", model,
                                 parse_json_or_throw(config, "config.json"));
}

TEST(EndTokens, AreTheUnionWithTheirPlaces) {
  GenerationConfig c = generation_of(
      R"({"eos_token_id": [7, 2]})",
      R"({"eos_token_id": 2, "text_config": {"eos_token_id": [9]}, "llm_config": 3})");
  c.add_end({2, "tokenizer_config.json: eos_token"});
  c.add_end({5, "tokenizer_config.json: eos_token"});
  EXPECT_THAT(c.eos_token_ids, ElementsAre(2, 5, 7, 9));
  EXPECT_THAT(c.ends.places().at(2),
              ElementsAre("generation_config.json: eos_token_id", "config.json: eos_token_id",
                          "tokenizer_config.json: eos_token"));
  EXPECT_THAT(c.ends.places().at(9), ElementsAre("config.json: text_config.eos_token_id"));
  EXPECT_THAT(c.ends.ignored(), IsEmpty());
}

TEST(EndTokens, WhatIsNoIdIsNotedAndLeftOut) {
  for (const char* bad : {"4294967295", "18446744073709551615", "-2", "100", "\"2\"", "2.0", "true",
                          "{}", "[[3]]", "[\"x\"]"}) {
    SCOPED_TRACE(bad);
    const std::string file = std::string(R"({"eos_token_id": )") + bad + "}";
    for (const bool in_config : {false, true}) {
      const GenerationConfig c = generation_of(in_config ? "{}" : file, in_config ? file : "{}");
      EXPECT_THAT(c.ends.ignored(), ElementsAre(HasSubstr("which is no id of the 100 tokens")));
      EXPECT_THAT(c.eos_token_ids, IsEmpty());
    }
  }
  EXPECT_THAT(generation_of(R"({"eos_token_id": [1, "x"]})", "{}").eos_token_ids, ElementsAre(1));
  EXPECT_THAT(generation_of(R"({"eos_token_id": null})", R"({"eos_token_id": -1})").ends.ignored(),
              IsEmpty());
}

TEST(EndTokens, ConfigsOfBothLevelsCount) {
  const std::string directory = source_dir() + "/models/sluice-tiny";
  Json outer = {{"architectures", {"Mistral3ForConditionalGeneration"}}, {"eos_token_id", 4}};
  outer["text_config"] =
      parse_json_or_throw(read_text_beneath(directory, "config.json", 1 << 20).value(), "");
  outer["text_config"]["eos_token_id"] = {6, "no id", 4294967295};
  EXPECT_THAT(parse_model_config(dump_json(outer), "config.json").eos_token_ids, ElementsAre(4, 6));
}

TEST(GenerationConfig, KeysWithoutEffectAreListed) {
  const GenerationConfig c = generation_of(
      R"({"num_beams": 4, "length_penalty": null, "top_p": 0.5, "suppress_tokens": [1],)"
      R"( "transformers_version": "5.0"})",
      "{}");
  EXPECT_THAT(c.ignored_keys, ElementsAre("num_beams", "suppress_tokens"));
}

}  // namespace
}  // namespace sluice
