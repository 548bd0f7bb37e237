#include "config/ignored_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/source_dir.h"

namespace sluice {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::Not;

const std::string kTiny = source_dir() + "/models/sluice-tiny";

TEST(IgnoredKeys, KeysThatChangeNothingAreFound) {
  Json config =
      parse_json_or_throw(read_text_beneath(kTiny, "config.json", 1 << 20).value(), "config.json");
  config["nobody_knows_this"] = {{"a", 1}};
  config["nor_this"] = "text";
  const std::vector<std::string> ignored = ignored_config_keys(dump_json(config), "");
  EXPECT_THAT(ignored, Contains("nobody_knows_this"));
  EXPECT_THAT(ignored, Contains("nor_this"));
  for (const char* key :
       {"hidden_size", "rms_norm_eps", "architectures", "vocab_size", "hidden_act", "index_topk"})
    EXPECT_THAT(ignored, Not(Contains(key)));
  // What is laid over the file counts as if it stood there.
  EXPECT_THAT(
      ignored_config_keys(dump_json(config), R"({"rms_norm_eps": 1e-5, "neither_this": 1})"),
      testing::AllOf(Not(Contains("rms_norm_eps")), Contains("neither_this")));
  EXPECT_THAT(ignored_config_keys("[]", ""), IsEmpty());
  EXPECT_THAT(ignored_config_keys("{\"hidden_size\": 0}", ""), IsEmpty());
}

TEST(IgnoredKeys, KeysOfInnerObjectsAreFound) {
  Json config = parse_json_or_throw(read_text_beneath(kTiny, "config.json", 1 << 20).value(), "");
  config["quantization_config"] = {
      {"quant_method", "fp8"}, {"weight_block_size", {128, 128}}, {"fmt", "e4m3"}, {"no_such", 1}};
  const std::vector<std::string> ignored = ignored_config_keys(dump_json(config), "");
  EXPECT_THAT(ignored, Contains("quantization_config.no_such"));
  EXPECT_THAT(ignored, Not(Contains("quantization_config.weight_block_size")));
  EXPECT_THAT(ignored, Not(Contains("quantization_config.quant_method")));
  EXPECT_THAT(ignored, Not(Contains("quantization_config")));
}

}  // namespace
}  // namespace sluice
