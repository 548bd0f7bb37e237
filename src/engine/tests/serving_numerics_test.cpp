// The types of a plan's arithmetic.
#include <gtest/gtest.h>

#include "engine/testing/plan_inputs.h"

namespace sluice {
namespace {

using testing::config_of;
using testing::cpu;
using testing::gpu;
using testing::with;

TEST(ServingNumerics, TypesFollowOptionsCheckpointAndDevice) {
  struct Row {
    Options options = {};
    DType stored;
    DType compute, gemm, kv;
    std::optional<ops::Format> quantization = {};
    bool keep_blocks = true;
  };
  constexpr DType f32 = DType::kF32, bf16 = DType::kBF16, f16 = DType::kF16, i8 = DType::kI8;
  constexpr auto none = std::nullopt;
  const Row rows[] = {
      {{}, bf16, bf16, bf16, bf16},
      {{}, f16, f16, f32, f32},
      {{}, f32, f32, f32, f32, none, false},
      {with({{"dtype", "float32"}}), bf16, f32, f32, f32, none, false},
      {with({{"dtype", "half"}}), bf16, f16, f32, f32},
      {with({{"dtype", "half"}, {"kv-cache-dtype", "bf16"}}), bf16, f16, f32, bf16},
      {with({{"kv-cache-dtype", "int8"}}), bf16, bf16, bf16, i8},
      {with({{"kv-cache-dtype", "fp8"}}), bf16, bf16, bf16, DType::kF8E4M3},
      {with({{"kv-cache-dtype", "float32"}}), bf16, bf16, bf16, f32},
      {with({{"quantization", "none"}}), bf16, bf16, bf16, bf16, none, false},
      {with({{"q", "int8"}}), bf16, bf16, bf16, bf16, ops::Format::kInt8, false},
      {with({{"q", "int4"}}), f32, f32, f32, f32, ops::Format::kInt4, false},
  };
  for (const Row& row : rows) {
    ModelConfig config = config_of("qwen3-8b");
    config.dtype = row.stored;
    const Numerics numerics = resolve_or_throw(row.options, config, cpu()).numerics();
    EXPECT_EQ(numerics.compute, row.compute);
    EXPECT_EQ(numerics.gemm(), row.gemm);
    EXPECT_EQ(numerics.kv(), row.kv);
    EXPECT_EQ(numerics.index(), dtype_size(row.kv) == 1 ? row.gemm : row.kv);
    EXPECT_EQ(numerics.quantization, row.quantization);
    EXPECT_EQ(numerics.keep_blocks, row.keep_blocks);
  }
}

TEST(ServingNumerics, AGpuHoldsIntegersInFragments) {
  struct Row {
    Options options;
    QuantizationConfig stored;
    DType dtype;
    bool fragments, blocks;
    std::optional<ops::Format> quantization = {};
  };
  const QuantizationConfig none, awq{.method = "awq", .bits = 4}, gptq{.method = "gptq", .bits = 8},
      nvfp4{.method = "modelopt", .format = "nvfp4", .bits = 4};
  constexpr DType bf16 = DType::kBF16, f16 = DType::kF16;
  const Row rows[] = {
      {{}, none, bf16, true, true},
      {{}, none, f16, false, false},
      {{}, awq, f16, true, true},  // computed in bfloat16
      {with({{"dtype", "half"}}), awq, f16, false, false},
      {with({{"dtype", "float32"}}), awq, f16, false, false},
      {with({{"q", "none"}}), awq, bf16, false, false},
      {with({{"q", "int4"}}), none, bf16, true, false, ops::Format::kInt4},
      {with({{"load-format", "dummy"}}), awq, f16, true, true, ops::Format::kInt4Zero},
      {with({{"load-format", "dummy"}}), gptq, bf16, true, true, ops::Format::kInt8},
      {{}, nvfp4, bf16, true, true},
      {{}, nvfp4, f16, true, true},
      {with({{"dtype", "half"}}), nvfp4, f16, false, false},
      {with({{"q", "none"}}), nvfp4, bf16, false, false},
      {with({{"load-format", "dummy"}}), nvfp4, bf16, true, true, ops::Format::kNvFp4},
  };
  ModelConfig w8a8 = config_of("qwen3-8b");
  w8a8.quantization = QuantizationConfig{
      .method = "compressed-tensors", .format = "int-quantized", .bits = 8, .int8_rows = true};
  const Options dummy = with({{"load-format", "dummy"}});
  for (const Machine& machine : {gpu(), cpu()}) {
    EXPECT_TRUE(resolve_or_throw(dummy, w8a8, machine).numerics().int8_rows);
    EXPECT_FALSE(resolve_or_throw({}, w8a8, machine).numerics().int8_rows);
  }
  for (const Row& row : rows) {
    ModelConfig config = config_of("qwen3-8b");
    config.dtype = row.dtype;
    if (!row.stored.method.empty()) config.quantization = row.stored;
    const Numerics numerics = resolve_or_throw(row.options, config, gpu()).numerics();
    EXPECT_EQ(numerics.int_fragments, row.fragments);
    EXPECT_EQ(numerics.keep_blocks, row.blocks);
    EXPECT_EQ(numerics.quantization, row.quantization);
    if (row.fragments) {
      EXPECT_EQ(numerics.gemm(), bf16);
    }
    // On a CPU only what a checkpoint stores.
    EXPECT_EQ(resolve_or_throw(row.options, config, cpu()).numerics().int_fragments,
              row.fragments && config.quantization.has_value());
  }
}

TEST(ServingNumerics, ExpertsAreRoundedWithTheLinearLayers) {
  constexpr auto none = std::nullopt;
  using ops::Format;
  struct Row {
    const char* how;
    std::optional<Format> on_cpu, on_gpu;
  };
  // Integers of a CPU have tiles of their own.
  for (const Row& row :
       {Row{"auto", none, none}, Row{"none", none, none}, Row{"fp8", Format::kFp8, Format::kFp8},
        Row{"int8", none, Format::kInt8}, Row{"int4", none, Format::kInt4}}) {
    ModelConfig config = config_of("qwen3-30b-a3b");
    const Options options = with({{"quantization", row.how}});
    EXPECT_EQ(resolve_or_throw(options, config, cpu()).numerics().experts_rounded_to, row.on_cpu);
    EXPECT_EQ(resolve_or_throw(options, config, gpu()).numerics().experts_rounded_to, row.on_gpu);
    // What a checkpoint stores as e4m3 stays.
    config.quantization = {.method = "fp8", .block_rows = 128, .block_columns = 128};
    if (row.how == std::string("fp8")) {
      EXPECT_EQ(resolve_or_throw(options, config, gpu()).numerics().experts_rounded_to, none);
    }
    // Other forms are rounded.
    config.quantization = {.method = "awq", .bits = 4};
    EXPECT_EQ(resolve_or_throw(options, config, cpu()).numerics().experts_rounded_to, row.on_cpu);
    EXPECT_EQ(resolve_or_throw(options, config, gpu()).numerics().experts_rounded_to, row.on_gpu);
  }
}

}  // namespace
}  // namespace sluice
