// The keys of quantization_config, and the messages for refused variants.
#include "config/quant_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config_reader.h"

namespace sluice {
namespace {

using testing::HasSubstr;

std::optional<QuantizationConfig> read(const std::string& text) {
  const Json json = parse_config_text(text, "config.json");
  return read_quantization(ConfigReader(json, "config.json"));
}

std::string group(const std::string& weights) {
  return R"({"quantization_config":{"quant_method":"compressed-tensors",)"
         R"("format":"pack-quantized","config_groups":{"g":{"weights":)" +
         weights + "}}}}";
}

TEST(QuantConfig, Methods) {
  EXPECT_EQ(read("{}"), std::nullopt);
  EXPECT_EQ(read(R"({"quantization_config":null})"), std::nullopt);
  EXPECT_EQ(read(R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[128,64]}})"),
            (QuantizationConfig{.method = "fp8", .block_rows = 128, .block_columns = 64}));
  EXPECT_EQ(read(R"({"quantization_config":{"quant_method":"fp8","weight_block_size":null}})"),
            QuantizationConfig{.method = "fp8"});
  EXPECT_EQ(read(R"({"compression_config":{"quant_method":"awq","w_bit":4,"version":"gemm"}})"),
            (QuantizationConfig{.method = "awq", .bits = 4}));
  EXPECT_EQ(read(R"({"quantization_config":{"quant_method":"gptq","bits":3}})"),
            (QuantizationConfig{.method = "gptq", .bits = 3, .zero_plus_one = true}));
  EXPECT_EQ(
      read(R"({"quantization_config":{"quant_method":"gptq","checkpoint_format":"gptq_v2"}})"),
      (QuantizationConfig{.method = "gptq", .bits = 4}));
  EXPECT_EQ(read(R"({"quantization_config":{"quant_method":"mxfp4"}})"),
            (QuantizationConfig{.method = "mxfp4", .target_modules = {"experts"}}));
  EXPECT_EQ(read(R"({"quantization_config":{"quant_method":"modelopt","quant_algo":"FP8"}})"),
            (QuantizationConfig{.method = "modelopt", .number = "e4m3"}));
  const QuantizationConfig nvfp4{.method = "modelopt", .format = "nvfp4", .bits = 4};
  for (const char* text :
       {R"("modelopt","quant_algo":"NVFP4","group_size":16)", R"("modelopt","quant_algo":"nvfp4")",
        R"("modelopt","quant_algo":"W4A16_NVFP4")", R"("modelopt_fp4")",
        R"("modelopt_fp4","quant_algo":"NVFP4")"})
    EXPECT_EQ(read(fmt::format(R"({{"quantization_config":{{"quant_method":{}}}}})", text)), nvfp4);
  EXPECT_FALSE(nvfp4.is_fp8());
  const auto ct =
      read(R"({"quantization_config":{"quant_method":"compressed-tensors",)"
           R"("format":"nvfp4-pack-quantized","config_groups":{"g":{"weights":)"
           R"({"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16}}}}})");
  EXPECT_EQ(ct, (QuantizationConfig{.method = "compressed-tensors",
                                    .format = "nvfp4-pack-quantized",
                                    .bits = 4,
                                    .is_symmetric = true}));
  EXPECT_EQ(ct->describe(), "compressed-tensors, nvfp4-pack-quantized, 4 bits");
  const auto packed =
      read(group(R"({"num_bits":4,"type":"int","strategy":"group","group_size":32})"));
  ASSERT_TRUE(packed);
  EXPECT_EQ(packed->group_sizes, std::vector{32});
  EXPECT_EQ(packed->describe(), "compressed-tensors, pack-quantized, 4 bits");
  EXPECT_EQ(
      (QuantizationConfig{.method = "fp8", .block_rows = 128, .block_columns = 64}).describe(),
      "fp8 in blocks of 128 x 64");
}

TEST(QuantConfig, WhatTheTensorsMustAgreeWith) {
  const auto gptq = [](const std::string& rest) {
    return *read(R"({"quantization_config":{"quant_method":"gptq")" + rest + "}}");
  };
  EXPECT_EQ(gptq(R"(,"bits":4,"group_size":128,"desc_act":true)"),
            (QuantizationConfig{.method = "gptq",
                                .bits = 4,
                                .zero_plus_one = true,
                                .group_sizes = {128},
                                .has_order = true}));
  EXPECT_EQ(gptq(R"(,"group_size":-1)").group_sizes, std::vector{-1});
  // Matrices have widths and groups of their own.
  EXPECT_EQ(
      gptq(R"(,"bits":4,"group_size":128,"desc_act":true,"dynamic":{"a":{"bits":8}})"),
      (QuantizationConfig{.method = "gptq", .bits = 4, .zero_plus_one = true, .varies = true}));
  const auto packed = [](const std::string& rest) {
    return *read(group(R"({"num_bits":4,"type":"int")" + rest));
  };
  EXPECT_TRUE(packed(R"(,"symmetric":false})").has_zeros);
  EXPECT_FALSE(packed(R"(,"symmetric":false}},"h":{"weights":{"num_bits":4})").has_zeros);
  EXPECT_EQ(packed(R"(,"strategy":"channel"})").group_sizes, std::vector{-1});
  EXPECT_TRUE(
      packed(R"(,"strategy":"channel"}},"h":{"weights":{"num_bits":4})").group_sizes.empty());
  for (const auto& [order, is_read] : {std::pair{"\"group\"", true},
                                       {"\"dynamic\"", true},
                                       {"true", true},
                                       {"\"weight\"", false},
                                       {"null", false}})
    EXPECT_EQ(packed(std::string(R"(,"actorder":)") + order + "}").has_order, is_read) << order;
  EXPECT_EQ(read(R"({"quantization_config":{"quant_method":"fp8","fmt":"e4m3"}})")->number, "e4m3");
  EXPECT_EQ(read(R"({"quantization_config":{"quant_method":"fp8"}})")->number, "");
  EXPECT_EQ(
      read(R"({"quantization_config":{"quant_method":"modelopt","quant_algo":"FP8"}})")->number,
      "e4m3");
  EXPECT_TRUE(packed("}").is_symmetric);
  EXPECT_FALSE(packed(R"(}},"h":{"weights":{"num_bits":4,"symmetric":false})").is_symmetric);
  EXPECT_FALSE(gptq("").signed_scales);
  EXPECT_TRUE(gptq(R"(,"provider":"auto-round")").signed_scales);
  EXPECT_TRUE(gptq(R"(,"autoround_version":"0.4.1")").signed_scales);
}

TEST(QuantConfig, RowsOfInt8AreThoseOfEveryGroup) {
  const auto has = [](const std::string& format, const std::string& rows) {
    const Json json = parse_json_or_throw(
        R"({"quantization_config": {"quant_method": "compressed-tensors", "format": ")" + format +
            R"(", "config_groups": {"a": {"weights": {"type": "int", "num_bits": 8}, )" +
            R"("input_activations": )" + rows + "}}}}",
        "test");
    return read_quantization(ConfigReader(json, "config.json"))->int8_rows;
  };
  const std::string usual = R"("num_bits": 8, "type": "int", "strategy": )";
  EXPECT_TRUE(has("int-quantized", "{" + usual + R"("token", "dynamic": true})"));
  EXPECT_TRUE(has("int-quantized", "{" + usual + R"("tensor", "symmetric": true})"));
  EXPECT_FALSE(has("int-quantized", "{" + usual + R"("token", "symmetric": false})"));
  EXPECT_FALSE(has("int-quantized", "{" + usual + R"("group"})"));
  EXPECT_FALSE(has("int-quantized", R"({"num_bits": 8, "type": "float", "strategy": "token"})"));
  EXPECT_FALSE(has("int-quantized", R"({"num_bits": 4, "type": "int", "strategy": "token"})"));
  EXPECT_FALSE(has("int-quantized", "null"));
  EXPECT_FALSE(has("pack-quantized", "{" + usual + R"("token"})"));
}

TEST(QuantConfig, WhatCannotBeReadIsRefusedWithAReason) {
  const auto method = [](const std::string& rest) {
    return R"({"quantization_config":{)" + rest + "}}";
  };
  const auto ct = [&](const std::string& rest) {
    return method(R"("quant_method":"compressed-tensors",)" + rest);
  };
  struct Row {
    std::string text;
    std::vector<const char*> says;
  };
  const std::vector<Row> rows = {
      {R"({"quantization_config":7})", {"quantization_config is 7", "an object"}},
      {method(R"("bits":4)"), {"quantization_config.quant_method is missing", "awq, gptq"}},
      {method(R"("quant_method":"new")"),
       {"quant_method is \"new\"", "fp8", "mxfp4", "removes the key"}},
      {method(R"("quant_method":7)"), {"quant_method is 7", "a string"}},
      {method(R"("quant_method":"bitsandbytes")"), {"codebooks", "--quantization int8"}},
      {method(R"("quant_method":"modelopt","quant_algo":"W4A8_AWQ")"),
       {"quant_algo is \"W4A8_AWQ\"", "FP8, NVFP4 and W4A16_NVFP4"}},
      {method(R"("quant_method":"modelopt","quant_algo":"NVFP4","group_size":32)"),
       {"group_size is 32", "each 16 columns"}},
      {method(R"("quant_method":"modelopt_fp4","quant_algo":"FP8")"),
       {"quant_algo is \"FP8\"", "modelopt_fp4 has NVFP4"}},
      {method(R"("quant_method":"awq","version":"gemv")"), {"version is \"gemv\"", "transposed"}},
      {method(R"("quant_method":"awq","bits":3)"), {"bits is 3", "4 bits"}},
      {method(R"("quant_method":"awq","bits":"4")"), {"bits is \"4\"", "integer"}},
      {method(R"("quant_method":"awq","group_size":"x")"), {"group_size is \"x\"", "integer"}},
      {method(R"("quant_method":"awq","q_group_size":0)"), {"q_group_size is 0", "-1"}},
      {method(R"("quant_method":"gptq","bits":5)"), {"bits is 5", "2, 3, 4 or 8"}},
      {method(R"("quant_method":"gptq","dynamic":7)"), {"dynamic is 7", "an object"}},
      {group(R"({"num_bits":4,"actorder":7})"), {"weights.actorder is 7", "string"}},
      {group(R"({"num_bits":4}},"h":{"weights":{"num_bits":4,"actorder":"x"})"),
       {"h.weights.actorder is \"x\"", "group"}},
      {method(R"("quant_method":"fp8","fmt":"e3m4")"), {"fmt is \"e3m4\"", "e4m3", "e5m2"}},
      {method(R"("quant_method":"fp8","activation_scheme":"x")"),
       {"activation_scheme is \"x\"", "dynamic, static"}},
      {method(R"("quant_method":"awq","zero_point":false)"), {"zero_point"}},
      {method(R"("quant_method":"gptq","checkpoint_format":"marlin")"),
       {"checkpoint_format is \"marlin\"", "one kernel"}},
      {method(R"("quant_method":"fp8","weight_block_size":[128])"),
       {"weight_block_size", "two integers"}},
      {method(R"("quant_method":"fp8","weight_block_size":[0,128])"),
       {"weight_block_size", "from 1", "its entry 0 is 0"}},
      {method(R"("quant_method":"fp8","weight_block_size":[128,"x"])"), {"weight_block_size"}},
      {ct(R"("format":"mxfp4-pack-quantized")"),
       {"format is \"mxfp4-pack-quantized\"", "nvfp4-pack-quantized"}},
      {ct(R"("format":"nvfp4-pack-quantized","config_groups":{"a":{"weights":{"type":"float"}}})"),
       {"a.weights.num_bits", "4-bit floats"}},
      {ct(R"("format":"nvfp4-pack-quantized","config_groups":{"a":{"weights":)"
          R"({"num_bits":4,"type":"float","actorder":"group"}}})"),
       {"a.weights.actorder", "order of their columns"}},
      {ct(R"("format":"nvfp4-pack-quantized","config_groups":{"a":{"weights":)"
          R"({"num_bits":4,"type":"float","strategy":"channel"}}})"),
       {"a.weights.strategy", "tensor_group"}},
      {ct(R"("format":"nvfp4-pack-quantized","config_groups":{"a":{"weights":{"num_bits":4}}})"),
       {"a.weights.type", "4-bit floats"}},
      {ct(R"("format":"pack-quantized")"), {"config_groups is missing"}},
      {ct(R"("format":"pack-quantized","config_groups":[])"), {"config_groups"}},
      {ct(R"("format":"pack-quantized","config_groups":{"a":{}})"), {"what its weights are"}},
      {ct(R"("format":"pack-quantized","sparsity_config":{"format":"sparse-24-bitmask"})"),
       {"sparsity_config", "dense"}},
      {ct(R"("format":"pack-quantized","transform_config":{"a":1})"),
       {"transform_config", "rotated"}},
      {group(R"({"num_bits":3,"type":"int"})"),
       {"config_groups.g.weights.num_bits is 3", "4 or 8"}},
      {group(R"({"num_bits":4,"type":"float"})"), {"weights.type is \"float\"", "int"}},
      {group(R"({"num_bits":4,"strategy":"x"})"), {"weights.strategy is \"x\"", "channel"}},
      {group(R"({"num_bits":4,"actorder":"x"})"), {"weights.actorder is \"x\"", "group"}},
      {ct(R"("format":"int-quantized","config_groups":{"a":{"weights":{"symmetric":false}}})"),
       {"a.weights.symmetric is false", "without zeros"}},
      {group(R"({"num_bits":4,"type":"int"}},"h":{"weights":{"num_bits":8,"type":"int"})"),
       {"different widths"}},
  };
  for (const Row& row : rows) {
    std::string message = "accepted";
    try {
      read(row.text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      message = error.message();
    }
    for (const char* text : row.says) EXPECT_THAT(message, HasSubstr(text)) << row.text;
  }
}

}  // namespace
}  // namespace sluice
