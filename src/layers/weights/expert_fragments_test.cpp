#include "layers/weights/expert_fragments.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>
#include <random>

#include "base/testing/folder.h"
#include "checkpoint/testing/safetensors_writer.h"
#include "kernels/types/fp4.h"
#include "kernels/types/int_fragments.h"
#include "layers/weights/shared_experts.h"

namespace sluice {
namespace {

using ops::Format;

constexpr std::int64_t kExperts = 3, kHidden = 256, kWidth = 144;
const ExpertNames kNames{"gate_proj.weight", "up_proj.weight", "down_proj.weight"};
const ExpertShape kShape{kExperts, kHidden, kWidth, {{0, 1, 2}, {0, kWidth}}};

class ExpertFragmentsTest : public ::testing::Test {
 protected:
  // A matrix of e4m3 in blocks of 128 by 128.
  void add_fp8(const std::string& name, std::int64_t rows, std::int64_t columns) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * columns));
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random_()) & 0xBF;
    const std::int64_t blocks = (rows + 127) / 128, of_row = (columns + 127) / 128;
    std::vector<float> scales;
    for (std::int64_t i = 0; i < blocks * of_row; ++i)
      scales.push_back(0.001f * static_cast<float>(i + 1));
    writer_.add(name + ".weight", "F8_E4M3", {rows, columns}, codes);
    writer_.add(name + ".weight_scale_inv", "F32", {blocks, of_row}, scales);
  }
  // `zeros`: of all groups, eight a word; nothing: random ones.
  void add_awq(const std::string& name, std::int64_t rows, std::int64_t columns, std::int64_t group,
               std::optional<std::int32_t> zeros = {}) {
    const std::int64_t groups = columns / group;
    const auto words = [&](std::int64_t count, std::optional<std::int32_t> all = {}) {
      std::vector<std::int32_t> out(static_cast<std::size_t>(count));
      for (std::int32_t& word : out) word = all ? *all : static_cast<std::int32_t>(random_());
      return out;
    };
    std::vector<std::uint16_t> scales(static_cast<std::size_t>(groups * rows));
    for (std::uint16_t& scale : scales)
      scale =
          std::bit_cast<std::uint16_t>(F16(static_cast<float>(1 + random_() % 1000) * 0x1p-14f));
    writer_.add(name + ".qweight", "I32", {columns, rows / 8}, words(columns * rows / 8));
    writer_.add(name + ".qzeros", "I32", {groups, rows / 8}, words(groups * rows / 8, zeros));
    writer_.add(name + ".scales", "F16", {groups, rows}, scales);
  }
  // Matrices have factors of their own.
  void add_nvfp4(const std::string& name, std::int64_t rows, std::int64_t columns) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * columns / 2)),
        scales(static_cast<std::size_t>(rows * columns / 16));
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random_());
    for (std::uint8_t& scale : scales) scale = static_cast<std::uint8_t>(random_() % 0x7F);
    writer_.add(name + ".weight", "U8", {rows, columns / 2}, codes);
    writer_.add(name + ".weight_scale", "F8_E4M3", {rows, columns / 16}, scales);
    writer_.add(name + ".weight_scale_2", "F32", {},
                std::vector{0.001f * static_cast<float>(1 + random_() % 1000)});
  }
  template <class Add>
  void add_experts(Add&& add) {
    for (int e = 0; e < kExperts; ++e)
      for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
        const bool is_down = name[0] == 'd';
        add(fmt::format("experts.{}.{}", e, name), is_down ? kHidden : kWidth,
            is_down ? kWidth : kHidden);
      }
  }
  // False: the experts have another form.
  bool load(const QuantizationConfig& config, const Numerics& numerics,
            const ExpertShape& shape = kShape) {
    writer_.write_to(folder_, "model.safetensors");
    source_.emplace(WeightSource::checkpoint(folder_.path(), {.quantization = config}));
    WeightLoader loader(*source_, numerics, DType::kBF16, ctx_);
    loader.keep_experts_in(in_common_.get());
    const Weights root = loader.root();
    if (!ExpertFragments(root, kNames, shape).load(w13_, w2_)) return false;
    if (shape.num_own() < kExperts) root.sub("experts", 0).leave(kNames.gate);
    for (const std::string& name : {kNames.up, kNames.down})
      if (shape.num_own() < kExperts) root.sub("experts", 0).leave(name);
    EXPECT_TRUE(loader.finish([](std::string_view) { return false; }).empty());
    stores_.push_back(loader.take_store());
    return true;
  }
  static float value(const ops::Weight& w, std::int64_t expert, std::int64_t n, std::int64_t k) {
    const ops::FragmentUnit form = fragment_unit(w);
    const std::uint8_t* unit = static_cast<const std::uint8_t*>(w.at(expert).data.data) +
                               (n / 16 * ops::fragment_units(w.columns) + k / 128) * form.bytes();
    const int row = static_cast<int>(n % 16), column = static_cast<int>(k % 128),
              group = column * form.groups / 128;
    const auto [byte, shift] = form.code_at(row, column);
    if (w.format == Format::kFp8) {
      float scale;
      std::memcpy(&scale, unit + form.scale_at(group, row), 4);
      return ops::e4m3_values()[unit[byte]] * scale;
    }
    if (w.format == Format::kMxFp4)
      return ops::kE2M1[unit[byte] >> shift & 15] * ops::mx_scale(unit[form.scale_at(group, row)]);
    if (w.format == Format::kNvFp4) {
      float factor;
      std::memcpy(&factor, unit + form.factor_at(row), 4);
      return ops::kE2M1[unit[byte] >> shift & 15] *
             (ops::e4m3_values()[unit[form.scale_at(group, row)]] * factor);
    }
    std::uint16_t bits;
    std::memcpy(&bits, unit + form.scale_at(group, row), 2);
    const int zero = form.has_zeros ? unit[form.zero_at(group, row)] : form.middle();
    return static_cast<float>((unit[byte] >> shift & ((1 << form.bits) - 1)) - zero) *
           static_cast<float>(std::bit_cast<F16>(bits));
  }
  // Every number is that of the widened matrices, bit for bit. `first`: the rank's first expert.
  void expect_stored(int first = 0) const {
    ASSERT_EQ(w13_.rows, 2 * kWidth);
    ASSERT_EQ(w2_.rows, kHidden);
    ASSERT_EQ(w13_.count, kExperts - first);
    for (int e = 0; e < kExperts - first; ++e) {
      const auto widened = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
        std::vector<float> values(static_cast<std::size_t>(rows * columns));
        source_->load(
            {.name = fmt::format("experts.{}.{}", first + e, name), .shape = {rows, columns}},
            DType::kF32, std::as_writable_bytes(std::span(values)));
        return values;
      };
      const std::vector<float> gate = widened(kNames.gate, kWidth, kHidden),
                               up = widened(kNames.up, kWidth, kHidden),
                               down = widened(kNames.down, kHidden, kWidth);
      for (std::int64_t n = 0; n < kWidth; ++n)
        for (std::int64_t k = 0; k < kHidden; ++k) {
          const auto at = static_cast<std::size_t>(n * kHidden + k);
          ASSERT_EQ(value(w13_, e, ops::gate_row_of_fragments(n), k), gate[at]) << n << ", " << k;
          ASSERT_EQ(value(w13_, e, ops::up_row_of_fragments(n), k), up[at]) << n << ", " << k;
        }
      for (std::int64_t n = 0; n < kHidden; ++n)
        for (std::int64_t k = 0; k < kWidth; ++k)
          ASSERT_EQ(value(w2_, e, n, k), down[static_cast<std::size_t>(n * kWidth + k)]);
    }
  }

  std::mt19937 random_{7};
  SafetensorsWriter writer_;
  TestFolder folder_;
  std::optional<WeightSource> source_;
  Context ctx_;
  ops::Weight w13_, w2_;
  std::vector<WeightStore> stores_;
  std::unique_ptr<SharedExperts> in_common_;
};

const QuantizationConfig kBlocks{.method = "fp8", .block_rows = 128, .block_columns = 128};
const Numerics kKept{.compute = DType::kBF16, .keep_fp8 = true, .int_fragments = true};

TEST_F(ExpertFragmentsTest, E4m3KeepsItsNumbers) {
  add_experts([&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    add_fp8(name, rows, columns);
  });
  ASSERT_TRUE(load(kBlocks, kKept));
  EXPECT_EQ(w13_.format, Format::kFp8);
  expect_stored();
  EXPECT_FALSE(load(kBlocks, {.compute = DType::kBF16}));
  EXPECT_FALSE(load(kBlocks, {.compute = DType::kF32, .keep_fp8 = true}));
}

TEST_F(ExpertFragmentsTest, ARankHasWholeExperts) {
  add_experts([&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    add_fp8(name, rows, columns);
  });
  ASSERT_TRUE(load(kBlocks, kKept, {kExperts, kHidden, kWidth, {{1, 2}, {0, kWidth}}}));
  expect_stored(1);
}

TEST_F(ExpertFragmentsTest, IntegersKeepTheirNumbers) {
  add_experts([&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    add_awq(name, rows, columns, columns);
  });
  ASSERT_TRUE(load({.method = "awq", .bits = 4}, kKept));
  EXPECT_EQ(w13_.format, Format::kInt4Zero);
  expect_stored();
}

const QuantizationConfig kNvFp4{.method = "modelopt", .format = "nvfp4", .bits = 4};

TEST_F(ExpertFragmentsTest, Nvfp4KeepsItsNumbers) {
  add_experts([&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    add_nvfp4(name, rows, columns);
  });
  ASSERT_TRUE(load(kNvFp4, kKept));
  EXPECT_EQ(w13_.format, Format::kNvFp4);
  EXPECT_EQ(w13_.group, 16);
  expect_stored();
  ASSERT_TRUE(load(kNvFp4, kKept, {kExperts, kHidden, kWidth, {{1, 2}, {0, kWidth}}}));
  expect_stored(1);
  EXPECT_FALSE(load(kNvFp4, {.compute = DType::kBF16}));
  EXPECT_FALSE(load(kNvFp4, {.compute = DType::kF32, .int_fragments = true}));
}

// Zero points of another rank's expert give this rank's experts another form, where this rank may
// come to compute that one.
TEST_F(ExpertFragmentsTest, ExpertsThatMoveHaveTheFormOfAll) {
  add_experts([&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    const bool is_symmetric = name.find("experts.0.") == std::string::npos;
    add_awq(name, rows, columns, columns,
            is_symmetric ? std::optional(static_cast<std::int32_t>(0x88888888)) : std::nullopt);
  });
  ExpertShape shape{kExperts, kHidden, kWidth, {{1, 2}, {0, kWidth}}};
  ASSERT_TRUE(load({.method = "awq", .bits = 4}, kKept, shape));
  EXPECT_EQ(w13_.format, Format::kInt4);
  expect_stored(1);
  shape.own.moves = true;
  ASSERT_TRUE(load({.method = "awq", .bits = 4}, kKept, shape));
  EXPECT_EQ(w13_.format, Format::kInt4Zero);
  expect_stored(1);
  shape.own.moves = false;
  in_common_ = std::make_unique<SharedExperts>(-1, 1, 3);
  ASSERT_TRUE(load({.method = "awq", .bits = 4}, kKept, shape));
  EXPECT_EQ(w13_.format, Format::kInt4Zero);
  EXPECT_EQ(w2_.format, Format::kInt4Zero);
  expect_stored(1);
}

TEST_F(ExpertFragmentsTest, GroupsThatDoNotFitAreWidened) {
  add_experts([&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    add_awq(name, rows, columns, 8);
  });
  EXPECT_FALSE(load({.method = "awq", .bits = 4}, kKept));
}

TEST_F(ExpertFragmentsTest, RandomWeightsAreRoundedToTheForm) {
  source_.emplace(WeightSource::dummy(1, 0.02));
  for (const Format format :
       {Format::kFp8, Format::kInt4, Format::kInt8, Format::kMxFp4, Format::kNvFp4}) {
    Numerics numerics = kKept;
    numerics.experts_rounded_to = format;
    numerics.quantization_group = 128;
    WeightLoader loader(*source_, numerics, DType::kBF16, ctx_);
    const Weights root = loader.root();
    ASSERT_TRUE(ExpertFragments(root, kNames, kShape).load(w13_, w2_));
    loader.finish([](std::string_view) { return false; });
    stores_.push_back(loader.take_store());
    EXPECT_EQ(w2_.format, format);
    std::vector<float> up(static_cast<std::size_t>(kWidth * kHidden));
    source_->load({.name = "experts.1.up_proj.weight", .shape = {kWidth, kHidden}}, DType::kF32,
                  std::as_writable_bytes(std::span(up)));
    // A group's largest number is below 6 sigma: half a step of e4m3, of a byte, or a step of four
    // bits at the end of their range. Scales are rounded to float16.
    const float step = 0.12f * (format == Format::kFp8    ? 1.0f / 16
                                : format == Format::kInt8 ? 0.5f / 127
                                                          : 1.0f / 4);
    for (std::int64_t n = 0; n < kWidth; ++n)
      for (std::int64_t k = 0; k < kHidden; ++k)
        ASSERT_NEAR(value(w13_, 1, ops::up_row_of_fragments(n), k),
                    up[static_cast<std::size_t>(n * kHidden + k)], step * 1.01f);
  }
}

}  // namespace
}  // namespace sluice
