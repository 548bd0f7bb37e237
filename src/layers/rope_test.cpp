#include "layers/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace sluice {
namespace {

struct Vector {
  std::string what;
  RopeConfig config;
  std::vector<std::pair<int, double>> inv_freq;  // index, value
  double attention_factor = 1;
};

RopeConfig rope(RopeType type, int rotary_dim, double theta, double factor, int original) {
  RopeConfig config;
  config.type = type;
  config.rotary_dim = rotary_dim;
  config.theta = theta;
  config.factor = factor;
  config.original_max_position = original;
  return config;
}

RopeConfig yarn(int rotary_dim, double theta, double factor, double beta_fast, double beta_slow,
                double mscale) {
  RopeConfig config = rope(RopeType::kYarn, rotary_dim, theta, factor, 4096);
  config.beta_fast = beta_fast;
  config.beta_slow = beta_slow;
  config.mscale = config.mscale_all_dim = mscale;
  return config;
}

// Published configurations. The values were computed from the formulas by hand, independently of
// this code.
std::vector<Vector> golden_vectors() {
  RopeConfig gpt_oss = yarn(64, 150000, 32, 32, 1, 0);
  gpt_oss.truncate = false;
  RopeConfig llama3 = rope(RopeType::kLlama3, 128, 5e5, 8, 8192);
  llama3.low_freq_factor = 1;
  llama3.high_freq_factor = 4;
  return {
      {"DeepSeek-V3",
       yarn(64, 1e4, 40, 32, 1, 1),
       {{0, 1},
        {1, .749894209},
        {10, .0562341325},
        {16, .0055},
        {23, 3.33380358e-5},
        {31, 3.33380358e-6}}},
      {"Kimi-K2",
       yarn(64, 5e4, 32, 1, 1, 1),
       {{16, .00447213595}, {23, 1.31058542e-5}, {31, 8.76441291e-7}}},
      {"gpt-oss, untruncated ramp",
       gpt_oss,
       {{1, .689044306}, {10, .0193350011}, {16, 4.56483919e-4}, {31, 3.02351143e-7}},
       1.3465736},
      {"Llama-3.1",
       llama3,
       {{16, .0376060309},
        {29, .00216657076},
        {30, .00137189357},
        {34, 1.78507813e-4},
        {35, 9.55621235e-5},
        {63, 3.06892599e-7}}},
      {"linear", rope(RopeType::kLinear, 16, 1e4, 4, 0), {{0, .25}, {4, .0025}}},
      {"default", rope(RopeType::kDefault, 16, 1e4, 1, 0), {{0, 1}, {4, .01}}},
  };
}

TEST(Rope, FrequenciesEqualTheGoldenVectors) {
  for (const Vector& vector : golden_vectors()) {
    const std::vector<float> inv = rope_inv_freq(vector.config);
    ASSERT_EQ(inv.size(), static_cast<std::size_t>(vector.config.rotary_dim / 2)) << vector.what;
    // Nine digits are given, and float32 holds seven.
    for (const auto& [index, value] : vector.inv_freq)
      EXPECT_NEAR(inv[static_cast<std::size_t>(index)] / value, 1, 1.2e-7)
          << vector.what << " [" << index << "]";
    EXPECT_NEAR(rope_attention_factor(vector.config), vector.attention_factor, 1e-7) << vector.what;
  }
}

TEST(Rope, ExplicitAttentionFactorWins) {
  RopeConfig config = yarn(64, 1e4, 40, 32, 1, 1);
  config.attention_factor = 1.5;
  EXPECT_FLOAT_EQ(rope_attention_factor(config), 1.5f);
}

TEST(Rope, SoftmaxFactorOfMla) {
  // DeepSeek-V3: 192^-0.5 * 1.3688879^2.
  const RopeConfig v3 = yarn(64, 1e4, 40, 32, 1, 1);
  EXPECT_NEAR(yarn_softmax_factor(v3) / std::sqrt(192.0), 0.1352337788608801, 1e-15);
  EXPECT_NEAR(yarn_softmax_factor(yarn(64, 1e4, 40, 32, 1, .707)) / std::sqrt(192.0), .114721387,
              1e-9);
  EXPECT_EQ(yarn_softmax_factor(rope(RopeType::kDefault, 64, 1e6, 1, 0)), 1);
}

TEST(Rope, DynamicScalingStartsPastTheMaximum) {
  const RopeConfig config = rope(RopeType::kDynamic, 16, 1e4, 2, 64);
  EXPECT_EQ(dynamic_inv_freq(config, 64, 64), rope_inv_freq(config));
  EXPECT_EQ(dynamic_inv_freq(config, 64, 1), rope_inv_freq(config));
  // theta' = theta (2 * 128 / 64 - 1)^(16 / 14)
  const double theta = 1e4 * std::pow(3.0, 16.0 / 14.0);
  EXPECT_NEAR(dynamic_inv_freq(config, 64, 128)[4], std::pow(theta, -0.5), 1e-9);
}

// One rotation for every token: that of the maximum context.
TEST(Rope, TheContextDecidesWhereLengthMatters) {
  const RopeConfig dynamic = rope(RopeType::kDynamic, 16, 1e4, 2, 64);
  EXPECT_FALSE(depends_on_length(dynamic, 64, 64));
  EXPECT_TRUE(depends_on_length(dynamic, 64, 65));
  const RopeConfig fixed = rope_for_context(dynamic, 64, 128);
  EXPECT_FALSE(depends_on_length(fixed, 64, 128));
  EXPECT_EQ(rope_inv_freq(fixed), dynamic_inv_freq(dynamic, 64, 128));

  // Phi-3-128k: its published attention factor follows from the lengths.
  RopeConfig phi = rope(RopeType::kLongRope, 4, 1e4, 32, 4096);
  phi.short_factor = {1.0, 1.5};
  phi.long_factor = {2.0, 40.0};
  EXPECT_NEAR(rope_attention_factor(phi), 1.1902380714, 1e-7);
  EXPECT_TRUE(depends_on_length(phi, 131072, 4097));
  EXPECT_FALSE(depends_on_length(phi, 131072, 4096));
  EXPECT_EQ(longrope_inv_freq(phi, false),
            (std::vector<float>{1.0f, static_cast<float>(0.01 / 1.5)}));
  EXPECT_EQ(longrope_inv_freq(phi, true),
            (std::vector<float>{0.5f, static_cast<float>(0.01 / 40.0)}));
  EXPECT_EQ(rope_inv_freq(rope_for_context(phi, 131072, 4096)), longrope_inv_freq(phi, false));
  EXPECT_EQ(rope_inv_freq(rope_for_context(phi, 131072, 131072)), longrope_inv_freq(phi, true));

  // PhiMoE's factors of cos and sin differ between short and long; they alone make a rotation
  // depend on the length.
  RopeConfig moe = phi;
  moe.short_mscale = 1.25;
  moe.long_mscale = 1.5;
  moe.long_factor = moe.short_factor;
  EXPECT_TRUE(depends_on_length(moe, 131072, 4097));
  EXPECT_EQ(rope_attention_factor(moe), 1.25f);
  EXPECT_EQ(rope_attention_factor(moe, true), 1.5f);
  EXPECT_EQ(rope_attention_factor(rope_for_context(moe, 131072, 4096)), 1.25f);
  EXPECT_EQ(rope_attention_factor(rope_for_context(moe, 131072, 4097)), 1.5f);
  EXPECT_FALSE(depends_on_length(rope_for_context(moe, 131072, 4097), 131072, 131072));
}

}  // namespace
}  // namespace sluice
