#include "config/modules/module_patterns.h"

#include <gtest/gtest.h>

#include "base/testing/source_dir.h"
#include "config/config_reader.h"
#include "config/model_config.h"

namespace sluice {
namespace {

bool matches(std::string_view pattern, std::string_view name) {
  const std::optional<NameRegex> regex = NameRegex::read(pattern);
  EXPECT_TRUE(regex) << pattern;
  return regex && regex->matches(name);
}

// As re.match of Python.
TEST(NameRegex, MatchesFromTheBeginning) {
  EXPECT_TRUE(matches("", "lm_head"));
  EXPECT_TRUE(matches("lm", "lm_head"));
  EXPECT_FALSE(matches("head", "lm_head"));
  EXPECT_TRUE(matches(".*head", "lm_head"));
  EXPECT_TRUE(matches("^lm_head$", "lm_head"));
  EXPECT_FALSE(matches("lm$", "lm_head"));
  EXPECT_FALSE(matches("a^b", "ab"));
  EXPECT_TRUE(matches(".*\\.(q|k|v)_proj$", "model.layers.3.self_attn.k_proj"));
  EXPECT_FALSE(matches(".*\\.(q|k|v)_proj$", "model.layers.3.self_attn.o_proj"));
  EXPECT_TRUE(matches("model\\.layers\\.(?:0|1[0-2])\\..*", "model.layers.11.mlp"));
  EXPECT_FALSE(matches("model\\.layers\\.(?:0|1[0-2])\\..*", "model.layers.1.mlp"));
  EXPECT_TRUE(matches("(a|bc)+?d", "abcad"));
  EXPECT_FALSE(matches("(a|bc)+d", "abad"));
  EXPECT_TRUE(matches("[^.]*\\.\\d{1,2}\\.x", "layers.12.x"));
  EXPECT_FALSE(matches("[^.]*\\.\\d{1,2}\\.x", "layers.123.x"));
  EXPECT_TRUE(matches("x{2,}y", "xxxxy"));
  EXPECT_FALSE(matches("x{2}y", "xxxy"));
  EXPECT_TRUE(matches("[]a-]+$", "a]-"));
  EXPECT_TRUE(matches("(|a)*b", "aab"));
  EXPECT_TRUE(matches("\\w+\\W\\s?\\S", "ab.c"));
  EXPECT_TRUE(matches("^(?!.*(lm_head|mlp)).*", "model.layers.0.self_attn"));
  EXPECT_FALSE(matches("^(?!.*(lm_head|mlp)).*", "model.layers.0.mlp"));
}

TEST(NameRegex, RefusesWhatIsNone) {
  for (const char* pattern : {"(a", "a)", "[a", "*a", "a\\", "a{3,2}", "[b-a]"})
    EXPECT_FALSE(NameRegex::read(pattern)) << pattern;
  EXPECT_FALSE(NameRegex::read(std::string(5000, 'a')));
}

TEST(NameRegex, BacktrackingHasALimit) {
  EXPECT_FALSE(matches("(a*)*(a|a)*b$", std::string(2000, 'a')));
}

TEST(ModulePatterns, MeanModulesAsTheirToolsDo) {
  const auto match = [](std::vector<std::string> patterns, std::string_view name) {
    return ModulePatterns(patterns).match(name);
  };
  EXPECT_TRUE(match({"lm_head"}, "lm_head"));
  EXPECT_TRUE(match({"mlp.gate"}, "model.layers.1.mlp.gate"));
  EXPECT_FALSE(match({"mlp.gate"}, "model.layers.1.mlp.gate_proj"));
  EXPECT_TRUE(match({"self_attn"}, "model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(match({"model.layers.1"}, "model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(match({"model.layers.1"}, "model.layers.12.self_attn.q_proj"));
  EXPECT_TRUE(match({"model.layers.*.self_attn"}, "model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(match({"layers.*.self_attn"}, "model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(match({"model.layers.0.self_attn*"}, "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(match({"re:.*self_attn"}, "model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(match({"re:self_attn", "Linear"}, "model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(match({"re:(", ""}, "lm_head"));
  // The text model within another one.
  for (const char* pattern :
       {"model.language_model.layers.0.mlp", "language_model.model.layers.0",
        "re:language_model\\.model\\.layers\\.0\\.", "model.language_model.*.mlp"})
    EXPECT_TRUE(match({pattern}, "model.layers.0.mlp.up_proj")) << pattern;
  EXPECT_FALSE(match({"language_model.lm_head"}, "model.layers.0.mlp.up_proj"));
}

// Each method has its own key.
TEST(QuantizedModules, AreThoseOfTheConfiguration) {
  const auto has = [](const std::string& text, std::string_view module) {
    const Json json = parse_json_or_throw(text, "test");
    return QuantizedModules(*read_quantization(ConfigReader(json, "config.json"))).has(module);
  };
  const std::string attention = "model.layers.0.self_attn.q_proj",
                    mlp = "model.layers.0.mlp.up_proj";
  const auto group = [](const char* targets) {
    return R"({"quantization_config": {"quant_method": "compressed-tensors",
               "format": "float-quantized", "ignore": ["lm_head", "re:.*layers\\.1\\."],
               "config_groups": {"group_0": {"targets": )" +
           std::string(targets) +
           R"(, "weights": {"type": "float", "num_bits": 8, "strategy": "channel"}}}}})";
  };
  EXPECT_TRUE(has(group(R"(["Linear"])"), attention));
  EXPECT_FALSE(has(group(R"(["Linear"])"), "lm_head"));
  EXPECT_FALSE(has(group(R"(["Linear"])"), "model.layers.1.mlp.up_proj"));
  EXPECT_TRUE(has(group(R"(["re:.*self_attn"])"), attention));
  EXPECT_FALSE(has(group(R"(["re:.*self_attn"])"), mlp));
  for (const char* rest :
       {R"("fp8", "modules_to_not_convert": ["self_attn"])",
        R"("fp8", "ignored_layers": ["self_attn"])",
        R"("awq", "modules_to_not_convert": ["self_attn"])",
        R"("modelopt", "quant_algo": "FP8", "exclude_modules": ["*self_attn*"])",
        R"("modelopt", "quant_algo": "NVFP4", "ignore": ["*self_attn*"])",
        R"("gptq", "bits": 4, "dynamic": {"-:.*self_attn": {}, "+:.*": {"bits": 8}})",
        R"("gptq", "bits": 4, "modules_in_block_to_quantize": [["mlp.up_proj"]])"}) {
    const std::string text =
        R"({"quantization_config": {"quant_method": )" + std::string(rest) + "}}";
    EXPECT_FALSE(has(text, attention)) << rest;
    EXPECT_TRUE(has(text, mlp)) << rest;
  }
  const std::string mxfp4 = R"({"quantization_config": {"quant_method": "mxfp4"}})";
  EXPECT_TRUE(has(mxfp4, "model.layers.0.mlp.experts.gate_up_proj"));
  EXPECT_FALSE(has(mxfp4, attention));
}

}  // namespace
}  // namespace sluice
