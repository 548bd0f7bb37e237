#include "config/quantization_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string refusal(std::string_view name, const std::optional<QuantizationConfig>& stored,
                    bool is_gguf = false) {
  EXPECT_NE(find_quantization_name(name), nullptr) << name;
  return refusal_of_name(name, stored, is_gguf);
}

TEST(QuantizationNames, FitCheckpointsOfTheirMethods) {
  struct Row {
    const char* name;
    QuantizationConfig stored;
  };
  const QuantizationConfig integers{.method = "compressed-tensors", .format = "int-quantized"};
  for (const Row& row :
       {Row{"awq", {.method = "awq"}}, Row{"awq_marlin", {.method = "awq"}},
        Row{"gptq_marlin", {.method = "gptq"}}, Row{"moe_wna16", {.method = "awq"}},
        Row{"moe_wna16", {.method = "gptq"}}, Row{"compressed-tensors", integers},
        Row{"compressed_tensors", integers}, Row{"w8a8_int8", integers},
        Row{"modelopt_fp8", {.method = "modelopt"}},
        Row{"modelopt_fp4", {.method = "modelopt", .format = "nvfp4"}},
        Row{"modelopt", {.method = "modelopt", .format = "nvfp4"}},
        Row{"nvfp4", {.method = "modelopt", .format = "nvfp4"}},
        Row{"nvfp4", {.method = "compressed-tensors", .format = "nvfp4-pack-quantized"}},
        Row{"fbgemm_fp8", {.method = "fbgemm_fp8"}}, Row{"mxfp4", {.method = "mxfp4"}}})
    EXPECT_EQ(refusal(row.name, row.stored), "") << row.name;
  EXPECT_EQ(refusal("gguf", {}, true), "");
}

TEST(QuantizationNames, OtherCheckpointsAreRefusedWithWhatTheyAre) {
  const QuantizationConfig awq{.method = "awq"};
  const QuantizationConfig packed{.method = "compressed-tensors", .format = "pack-quantized"};
  EXPECT_EQ(refusal("gptq_marlin", awq),
            "--quantization gptq-marlin is for checkpoints that are gptq, and this one is awq; "
            "leave the option out");
  EXPECT_THAT(refusal("awq", {}), HasSubstr("this one is not quantised"));
  EXPECT_THAT(refusal("w8a8_int8", packed), HasSubstr("compressed-tensors, int-quantized, and"));
  EXPECT_THAT(refusal("modelopt_fp4", QuantizationConfig{.method = "modelopt"}),
              HasSubstr("modelopt, nvfp4, and this one is modelopt, fp8;"));
  EXPECT_THAT(refusal("modelopt_fp8", QuantizationConfig{.method = "modelopt", .format = "nvfp4"}),
              HasSubstr("that are modelopt, fp8, and this one is modelopt, nvfp4"));
  EXPECT_THAT(refusal("gguf", awq), HasSubstr("name the .gguf file"));
}

TEST(QuantizationNames, MeanStoredWeightsUnlessTheyAreRefused) {
  for (const char* name : {"auto", "awq", "gptq_marlin", "gguf"})
    EXPECT_TRUE(means_stored(name)) << name;
  for (const char* name : {"none", "int8", "fp8", "bitsandbytes", "marlin"})
    EXPECT_FALSE(means_stored(name)) << name;
  EXPECT_EQ(refusal_of_name("int8", {}, false), "");
}

}  // namespace
}  // namespace sluice
