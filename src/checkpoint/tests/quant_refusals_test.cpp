// Quantised matrices that are refused, by name and before their numbers are used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/testing/errors.h"
#include "checkpoint/testing/quant_folder.h"
#include "checkpoint/weight_source.h"

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(QuantRefusals, WhatDoesNotFitIsRefusedByName) {
  struct Part {
    const char* name;
    const char* dtype;
    std::vector<std::int64_t> shape;
  };
  struct Row {
    QuantizationConfig config;
    std::vector<Part> parts;
    std::vector<const char*> says;
  };
  const QuantizationConfig fp8{.method = "fp8", .block_rows = 128, .block_columns = 128},
      awq{.method = "awq"}, gptq{.method = "gptq"}, mx{.method = "mxfp4"},
      nvfp4{.method = "modelopt", .format = "nvfp4", .bits = 4},
      packed_nvfp4{.method = "compressed-tensors", .format = "nvfp4-pack-quantized", .bits = 4},
      packed{.method = "compressed-tensors", .format = "pack-quantized", .bits = 4},
      grouped{.method = "gptq", .bits = 4, .group_sizes = {4}},
      ordered{.method = "gptq", .bits = 4, .group_sizes = {8}, .has_order = true},
      e5m2{.method = "fp8", .number = "e5m2"},
      int8{.method = "compressed-tensors", .format = "int-quantized", .bits = 8};
  QuantizationConfig wide = grouped;
  wide.bits = 8;
  const std::vector<Part> eight = {
      {"x.qweight", "I32", {1, 8}}, {"x.scales", "F16", {1, 8}}, {"x.qzeros", "I32", {1, 1}}};
  const std::vector<Row> rows = {
      {fp8,
       {{"w", "F8_E4M3", {130, 4}}, {"w_scale_inv", "F32", {1, 2}}},
       {"w_scale_inv is float32 [1, 2]", "[2, 1] for its blocks"}},
      {fp8,
       {{"w", "F32", {4, 4}}, {"w_scale_inv", "F32", {1, 1}}},
       {"tensor w is float32", "float8_e4m3"}},
      {fp8,
       {{"w", "F8_E4M3", {4, 4}}, {"w_scale_inv", "I32", {1, 1}}},
       {"w_scale_inv is int32", "float16"}},
      {fp8,
       {{"w", "F8_E4M3", {4}}, {"w_scale_inv", "F32", {1}}},
       {"tensor w is float8_e4m3fn [4]", "a matrix"}},
      {fp8, {{"w", "F8_E4M3", {2, 4, 4}}, {"w_scale_inv", "F32", {1}}}, {"first extent", "2"}},
      {fp8,
       {{"w", "F8_E4M3", {4, 4}}, {"w_scale_inv", "F32", {1, 1, 1, 1, 2}}},
       {"w_scale_inv", "at most"}},
      {awq, {{"x.qweight", "I32", {8, 1}}}, {"x.qweight but no x.scales"}},
      {awq, {{"x.qweight", "I32", {8, 1}}, {"x.scales", "F16", {1, 8}}}, {"zeros are missing"}},
      {awq,
       {{"x.qweight", "I32", {8, 1}}, {"x.scales", "F16", {1, 16}}, {"x.qzeros", "I32", {1, 1}}},
       {"x.scales", "8 x 1 outputs"}},
      {awq,
       {{"x.qweight", "I32", {8, 1}}, {"x.scales", "F16", {3, 8}}, {"x.qzeros", "I32", {3, 1}}},
       {"8 columns cannot be 3 groups"}},
      {awq,
       {{"x.qweight", "I32", {8, 1}}, {"x.scales", "F16", {0, 8}}, {"x.qzeros", "I32", {0, 1}}},
       {"no groups"}},
      {awq,
       {{"x.qweight", "F32", {8, 1}}, {"x.scales", "F16", {1, 8}}},
       {"x.qweight is float32", "int32"}},
      {awq,
       {{"x.weight", "F32", {8, 8}},
        {"x.qweight", "I32", {8, 1}},
        {"x.scales", "F16", {1, 8}},
        {"x.qzeros", "I32", {1, 1}}},
       {"x.weight is there plain and as AWQ"}},
      {gptq,
       {{"x.qweight", "I32", {1, 8}}, {"x.scales", "F16", {1, 8}}, {"x.qzeros", "I32", {1, 5}}},
       {"x.qzeros", "2, 3, 4 or 8 bits"}},
      {gptq,
       {{"x.qweight", "I32", {1, 8}}, {"x.scales", "F16", {1, 9}}, {"x.qzeros", "I32", {1, 1}}},
       {"9 outputs"}},
      {gptq,
       {{"x.qweight", "I32", {1, 8}},
        {"x.scales", "F16", {1, 8}},
        {"x.qzeros", "I32", {1, 1}},
        {"x.g_idx", "I32", {7}}},
       {"x.g_idx", "[8]"}},
      {packed,
       {{"x.weight_packed", "I32", {8, 1}}, {"x.weight_scale", "F32", {8, 1}}},
       {"x.weight_shape", "missing"}},
      {packed,
       {{"x.weight_packed", "I32", {8, 1}},
        {"x.weight_scale", "F32", {8, 1}},
        {"x.weight_shape", "I64", {2}}},
       {"says [0, 0]"}},
      {grouped, eight, {"x.scales", "1 groups", "8 columns are 2", "group_size 4"}},
      {ordered, eight, {"x.qweight", "desc_act", "index of groups is missing"}},
      {wide, eight, {"x.qzeros", "zeros of 4 bits", "configuration says 8"}},
      {e5m2, {{"w", "F8_E4M3", {4, 4}}, {"w_scale", "F32", {1}}}, {"w is float8_e4m3", "e5m2"}},
      {fp8,
       {{"w", "F8_E4M3", {4, 4}}},
       {"w is float8_e4m3", "w_scale_inv or w_scale was expected"}},
      {int8, {{"w", "I8", {4, 4}}}, {"w is int8", "w_scale was expected"}},
      {mx,
       {{"e_blocks", "U8", {2, 1, 15}}, {"e_scales", "U8", {2, 1}}},
       {"e_blocks", "groups, 16"}},
      {mx, {{"e_blocks", "U8", {2, 1, 16}}, {"e_scales", "U8", {1, 2}}}, {"e_scales"}},
      {fp8, {{"x.weight_global_scale", "F32", {1}}}, {"NVFP4"}},
      {fp8, {{"x.pre_quant_scale", "F32", {1}}}, {"inputs are scaled first"}},
      {nvfp4,
       {{"x.weight", "U8", {4, 16}}, {"x.weight_scale", "F8_E4M3", {4, 2}}},
       {"x.weight (NVFP4)", "no x.weight_scale_2"}},
      {nvfp4,
       {{"x.weight", "U8", {4, 16}}, {"x.weight_scale_2", "F32", {}}},
       {"x.weight_scale_2 is there, but no x.weight_scale beside it"}},
      {packed_nvfp4,
       {{"x.weight_packed", "U8", {4, 16}},
        {"x.weight_scale", "F8_E4M3", {4, 2}},
        {"x.weight_global_scale", "F32", {1}},
        {"x.weight_g_idx", "I32", {32}}},
       {"x.weight_g_idx", "columns are in order"}},

      {nvfp4,
       {{"x.weight", "U8", {4, 20}},
        {"x.weight_scale", "F8_E4M3", {4, 2}},
        {"x.weight_scale_2", "F32", {}}},
       {"in groups of 16 columns"}},
      {nvfp4,
       {{"x.weight", "U8", {4, 16}},
        {"x.weight_scale", "F8_E4M3", {4, 3}},
        {"x.weight_scale_2", "F32", {}}},
       {"[4, 2] was expected"}},
      {nvfp4,
       {{"x.weight", "U8", {4, 16}},
        {"x.weight_scale", "F32", {4, 2}},
        {"x.weight_scale_2", "F32", {}}},
       {"float8_e4m3 [4, 2]"}},
      {nvfp4,
       {{"x.weight", "U8", {4, 16}},
        {"x.weight_scale", "F8_E4M3", {4, 2}},
        {"x.weight_scale_2", "F32", {2}}},
       {"one float32"}},
      {fp8, {{"x.SCB", "F32", {1}}}, {"bitsandbytes"}},
  };
  for (const Row& row : rows) {
    QuantFolder folder;
    for (const Part& part : row.parts) {
      std::size_t bytes = std::string_view(part.dtype) == "F16"   ? 2
                          : std::string_view(part.dtype) == "I64" ? 8
                                                                  : 4;
      if (std::string_view(part.dtype).starts_with("F8") || std::string_view(part.dtype) == "U8" ||
          std::string_view(part.dtype) == "I8")
        bytes = 1;
      for (const std::int64_t extent : part.shape) bytes *= static_cast<std::size_t>(extent);
      folder.writer.add(part.name, part.dtype, part.shape, std::vector<std::uint8_t>(bytes));
    }
    const std::string message = message_of([&] { folder.open(row.config); });
    for (const char* text : row.says) EXPECT_THAT(message, HasSubstr(text));
  }
}

TEST(QuantRefusals, ZerosThatAreNotThere) {
  QuantFolder folder;
  folder.writer.add("x.weight_packed", "I32", {8, 1}, std::vector<std::int32_t>(8))
      .add("x.weight_scale", "F16", {8, 1}, std::vector<F16>(8))
      .add("x.weight_shape", "I64", {2}, std::vector<std::int64_t>{8, 8});
  const QuantizationConfig symmetric{
      .method = "compressed-tensors", .format = "pack-quantized", .bits = 4};
  QuantizationConfig with_zeros = symmetric;
  with_zeros.has_zeros = true;
  EXPECT_EQ(message_of([&] { folder.open(symmetric); }), "accepted");
  EXPECT_THAT(message_of([&] { folder.open(with_zeros); }),
              HasSubstr("symmetric: false, and its zeros are missing"));
}

TEST(QuantRefusals, WidthsThatZerosDoNotTellApart) {
  QuantFolder folder;
  folder.writer.add("x.qweight", "I32", {1, 8}, std::vector<std::int32_t>(8))
      .add("x.scales", "F16", {1, 8}, std::vector<F16>(8))
      .add("x.qzeros", "I32", {1, 1}, std::vector<std::int32_t>(1));
  for (const auto& [bits, columns] : {std::pair{2, 16}, {4, 8}}) {
    const WeightSource source = folder.open({.method = "gptq", .bits = bits});
    EXPECT_EQ(source.find("x.weight")->shape, (std::vector<std::int64_t>{8, columns})) << bits;
  }
}

TEST(QuantRefusals, AGroupThatIsNotThere) {
  QuantFolder folder;
  folder.writer.add("x.qweight", "I32", {1, 8}, std::vector<std::int32_t>(8))
      .add("x.scales", "F16", {2, 8}, std::vector<F16>(16))
      .add("x.qzeros", "I32", {2, 1}, std::vector<std::int32_t>(2))
      .add("x.g_idx", "I32", {8}, std::vector<std::int32_t>{0, 1, 0, 1, 2, 0, 0, 0});
  const WeightSource source = folder.open({.method = "gptq"});
  EXPECT_THAT(message_of([&] { load_values(source, "x.weight", {8, 8}); }),
              HasSubstr("column 4 is in group 2, and there are 2"));
  EXPECT_THAT(message_of([&] { load_values(source, "x.weight", {8, 9}); }),
              HasSubstr("x.weight is GPTQ [8, 8]; the model needs [8, 9]"));
}

// AWQ of 8 x 8 codes 0 with the zero point 1: every number is the negative of its scale.
void add_ones(QuantFolder& folder, const std::vector<float>& scales) {
  folder.writer.add("x.qweight", "I32", {8, 1}, std::vector<std::int32_t>(8))
      .add("x.qzeros", "I32", {1, 1}, std::vector<std::int32_t>(1, 0x11111111))
      .add("x.scales", "F32", {1, 8}, scales);
}

TEST(QuantRefusals, NegativeScalesAreThoseOfAutoRound) {
  const std::vector<float> scales = {1, -2, 3, 4, -5, 6, 7, 8};
  QuantFolder folder;
  add_ones(folder, scales);
  EXPECT_THAT(
      message_of([&] { load_values(folder.open({.method = "awq"}), "x.weight", {8, 8}); }),
      HasSubstr(
          "x.scales is -2; a positive number was expected, the checkpoint is damaged (exports "
          "of AutoRound"));
  const WeightSource source = folder.open({.method = "awq", .signed_scales = true});
  const std::vector<float> values = load_values(source, "x.weight", {8, 8});
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], -scales[i / 8]) << i;
  for (const float broken : {0.0f, -INFINITY, NAN}) {
    QuantFolder other;
    add_ones(other, {1, 2, 3, broken, 5, 6, 7, 8});
    EXPECT_THAT(message_of([&] {
                  load_values(other.open({.method = "awq", .signed_scales = true}), "x.weight",
                              {8, 8});
                }),
                HasSubstr(fmt::format("x.scales is {}; a number other than 0", broken)));
  }
}

TEST(QuantRefusals, ScalesWhoseProductsAreInfinite) {
  QuantFolder folder;
  add_ones(folder, {1, 2, 3, 3e38f, 5, 6, 7, 8});
  EXPECT_THAT(message_of([&] { load_values(folder.open({.method = "awq"}), "x.weight", {8, 8}); }),
              HasSubstr("is 3e+38; a number whose products float32 holds was expected"));
}

TEST(QuantRefusals, ZerosOfAMatrixThatIsSaidToHaveNone) {
  QuantFolder folder;
  folder.writer.add("x.weight_packed", "I32", {8, 1}, std::vector<std::int32_t>(8))
      .add("x.weight_scale", "F16", {8, 1}, std::vector<F16>(8, F16(1.0f)))
      .add("x.weight_zero_point", "I32", {1, 1}, std::vector<std::int32_t>(1, 0x77888888))
      .add("x.weight_shape", "I64", {2}, std::vector<std::int64_t>{8, 8});
  QuantizationConfig config{.method = "compressed-tensors", .format = "pack-quantized", .bits = 4};
  EXPECT_EQ(load_values(folder.open(config), "x.weight", {8, 8})[48], -7);
  config.is_symmetric = true;
  EXPECT_EQ(load_values(folder.open(config), "x.weight", {8, 8}, {{0, 6}, {0, 8}})[40], -8);
  EXPECT_THAT(message_of([&] { load_values(folder.open(config), "x.weight", {8, 8}); }),
              HasSubstr("symmetric: true, and row 6 has the zero 7 in group 0; 8 was expected"));
}

TEST(QuantRefusals, DamagedScalesAreRefusedAlsoWhereNumbersAreWidened) {
  for (const float broken : {0.0f, -1.0f, INFINITY, NAN}) {
    QuantFolder fp8, awq;
    fp8.writer.add("a.weight", "F8_E4M3", {4, 4}, std::vector<std::uint8_t>(16, 1))
        .add("a.weight_scale", "F32", {4, 1}, std::vector<float>{1, 1, broken, 1});
    EXPECT_THAT(message_of([&] {
                  load_values(
                      fp8.open({.method = "compressed-tensors", .format = "float-quantized"}),
                      "a.weight", {4, 4});
                }),
                HasSubstr(fmt::format("a scale of a.weight_scale is {}", broken)));
    std::vector<F16> scales(8, F16(1.0f));
    scales[5] = F16(broken);
    awq.writer.add("x.qweight", "I32", {8, 1}, std::vector<std::int32_t>(8))
        .add("x.qzeros", "I32", {1, 1}, std::vector<std::int32_t>(1))
        .add("x.scales", "F16", {1, 8}, scales);
    EXPECT_THAT(message_of([&] { load_values(awq.open({.method = "awq"}), "x.weight", {8, 8}); }),
                HasSubstr(fmt::format("a scale of x.scales is {}", broken)));
  }
}

}  // namespace
}  // namespace sluice
