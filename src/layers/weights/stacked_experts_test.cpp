#include "layers/weights/stacked_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/testing/errors.h"
#include "base/testing/folder.h"
#include "checkpoint/testing/safetensors_writer.h"
#include "kernels/types/fp4.h"
#include "kernels/types/int_fragments.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kExperts = 3, kHidden = 160, kWidth = 64;
const Numerics kKept{.compute = DType::kBF16, .int_fragments = true};

class StackedExpertsTest : public ::testing::Test {
 protected:
  void add(const std::string& name, std::int64_t rows, std::int64_t columns) {
    std::vector<std::uint8_t> blocks(static_cast<std::size_t>(kExperts * rows * columns / 2)),
        scales(static_cast<std::size_t>(kExperts * rows * columns / 32));
    for (std::uint8_t& byte : blocks) byte = static_cast<std::uint8_t>(random_());
    for (std::uint8_t& byte : scales) byte = static_cast<std::uint8_t>(100 + random_() % 60);
    if (has_nan_) scales[scales.size() / 2] = 0xFF;  // of expert 1
    writer_.add(name + "_blocks", "U8", {kExperts, rows, columns / 32, 16}, blocks);
    writer_.add(name + "_scales", "U8", {kExperts, rows, columns / 32}, scales);
  }
  void open() {
    add("gate_up", 2 * kWidth, kHidden);
    add("down", kHidden, kWidth);
    writer_.write_to(folder_, "model.safetensors");
    source_.emplace(WeightSource::checkpoint(
        folder_.path(), {.quantization = QuantizationConfig{.method = "mxfp4"}}));
  }
  bool load(bool interleaved, AxisRange columns, const Numerics& numerics = kKept,
            std::vector<std::int64_t> experts = {0, 1, 2}, bool transposed = false) {
    WeightLoader loader(*source_, numerics, DType::kBF16, ctx_);
    const Weights root = loader.root();
    if (!StackedExperts(root, {"gate_up_blocks", "down_blocks", interleaved, transposed},
                        {kExperts, kHidden, kWidth, {std::move(experts), columns}})
             .load(w13_, w2_))
      return false;
    EXPECT_TRUE(loader.finish([](std::string_view) { return false; }).empty());
    stores_.push_back(loader.take_store());
    return true;
  }
  static float value(const ops::Weight& w, std::int64_t expert, std::int64_t n, std::int64_t k) {
    const ops::FragmentUnit form = fragment_unit(w);
    const std::uint8_t* unit = static_cast<const std::uint8_t*>(w.at(expert).data.data) +
                               (n / 16 * ops::fragment_units(w.columns) + k / 128) * form.bytes();
    const int row = static_cast<int>(n % 16), column = static_cast<int>(k % 128);
    const auto [byte, shift] = form.code_at(row, column);
    return ops::kE2M1[unit[byte] >> shift & 15] *
           ops::mx_scale(unit[form.scale_at(column / 32, row)]);
  }
  std::vector<float> widened(const std::string& name, std::int64_t expert, std::int64_t rows,
                             std::int64_t columns) const {
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    source_->load(
        {.name = name, .shape = {kExperts, rows, columns}, .ranges = {{expert, 1}, {}, {}}},
        DType::kF32, std::as_writable_bytes(std::span(values)));
    return values;
  }

  std::mt19937 random_{7};
  bool has_nan_ = false;
  SafetensorsWriter writer_;
  TestFolder folder_;
  std::optional<WeightSource> source_;
  Context ctx_;
  ops::Weight w13_, w2_;
  std::vector<WeightStore> stores_;
};

// Every number is that of the widened matrices, bit for bit, also of a rank's share.
TEST_F(StackedExpertsTest, Mxfp4KeepsItsNumbers) {
  open();
  for (const bool interleaved : {false, true})
    for (const AxisRange share : {AxisRange{0, kWidth}, AxisRange{32, 32}}) {
      ASSERT_TRUE(load(interleaved, share));
      EXPECT_EQ(w13_.format, ops::Format::kMxFp4);
      EXPECT_EQ(w13_.group, 32);
      EXPECT_EQ(w13_.rows, 2 * share.count);
      for (std::int64_t e = 0; e < kExperts; ++e) {
        const std::vector<float> both = widened("gate_up_blocks", e, 2 * kWidth, kHidden),
                                 down = widened("down_blocks", e, kHidden, kWidth);
        for (std::int64_t n = 0; n < share.count; ++n)
          for (std::int64_t k = 0; k < kHidden; ++k) {
            const std::int64_t at = share.begin + n, gate = interleaved ? 2 * at : at,
                               up = interleaved ? 2 * at + 1 : kWidth + at;
            ASSERT_EQ(value(w13_, e, ops::gate_row_of_fragments(n), k),
                      both[static_cast<std::size_t>(gate * kHidden + k)]);
            ASSERT_EQ(value(w13_, e, ops::up_row_of_fragments(n), k),
                      both[static_cast<std::size_t>(up * kHidden + k)]);
            ASSERT_EQ(value(w2_, e, k, n),
                      down[static_cast<std::size_t>(k * kWidth + share.begin + n)]);
          }
      }
    }
  // A rank's columns are whole groups.
  EXPECT_FALSE(load(true, {16, 16}));
  EXPECT_FALSE(load(true, {0, kWidth}, {.compute = DType::kBF16}));
  EXPECT_FALSE(load(true, {0, kWidth}, {.compute = DType::kF32, .int_fragments = true}));
}

TEST_F(StackedExpertsTest, AScaleThatIsNanIsRefused) {
  has_nan_ = true;
  open();
  EXPECT_THAT(message_of([&] { load(true, {0, kWidth}); }),
              HasSubstr("gate_up_blocks (MXFP4): a scale of row"));
  // A rank without that expert reads none of its bytes.
  ASSERT_TRUE(load(true, {0, kWidth}, kKept, {0, 2}));
  ASSERT_EQ(w13_.count, 2);
  const std::vector<float> down = widened("down_blocks", 2, kHidden, kWidth);
  for (std::int64_t n = 0; n < kHidden; ++n)
    for (std::int64_t k = 0; k < kWidth; ++k)
      ASSERT_EQ(value(w2_, 1, n, k), down[static_cast<std::size_t>(n * kWidth + k)]);
}

TEST_F(StackedExpertsTest, RandomWeightsAreRounded) {
  source_.emplace(WeightSource::dummy(1, 0.02));
  Numerics numerics = kKept;
  numerics.experts_rounded_to = ops::Format::kMxFp4;
  ASSERT_TRUE(load(true, {0, kWidth}, numerics));
  const std::vector<float> both = widened("gate_up_blocks", 1, 2 * kWidth, kHidden);
  // A group's largest number is below 6 sigma, and the largest error a quarter of it.
  for (std::int64_t n = 0; n < kWidth; ++n)
    for (std::int64_t k = 0; k < kHidden; ++k)
      ASSERT_NEAR(value(w13_, 1, ops::up_row_of_fragments(n), k),
                  both[static_cast<std::size_t>((2 * n + 1) * kHidden + k)], 0.12f / 4);
}

// Gate rows before up rows, in a rank's share of the columns, stored either way round.
TEST_F(StackedExpertsTest, GateRowsBeforeUpRowsAreRounded) {
  source_.emplace(WeightSource::dummy(1, 0.02));
  Numerics numerics = kKept;
  numerics.experts_rounded_to = ops::Format::kMxFp4;
  const AxisRange share{32, 32};
  for (const bool transposed : {false, true}) {
    ASSERT_TRUE(load(false, share, numerics, {0, 1, 2}, transposed));
    const std::vector<float> both = transposed ? widened("gate_up_blocks", 1, kHidden, 2 * kWidth)
                                               : widened("gate_up_blocks", 1, 2 * kWidth, kHidden);
    const auto number = [&](std::int64_t row, std::int64_t column) {
      return both[static_cast<std::size_t>(transposed ? column * 2 * kWidth + row
                                                      : row * kHidden + column)];
    };
    for (std::int64_t n = 0; n < share.count; ++n)
      for (std::int64_t k = 0; k < kHidden; ++k) {
        ASSERT_NEAR(value(w13_, 1, ops::gate_row_of_fragments(n), k), number(share.begin + n, k),
                    0.12f / 4);
        ASSERT_NEAR(value(w13_, 1, ops::up_row_of_fragments(n), k),
                    number(kWidth + share.begin + n, k), 0.12f / 4);
      }
  }
}

}  // namespace
}  // namespace sluice
