#include "layers/weights/fp8_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/testing/errors.h"
#include "base/testing/folder.h"
#include "checkpoint/testing/safetensors_writer.h"
#include "layers/linear.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kColumns = 256;

std::vector<std::uint8_t> codes_of(std::int64_t rows, unsigned seed) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * kColumns));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    seed = seed * 1664525 + 1013904223;
    codes[i] = static_cast<std::uint8_t>(seed >> 24) & 0xBF;  // below 2
  }
  return codes;
}

class Fp8WeightsTest : public ::testing::Test {
 protected:
  // A matrix with a scale for each of these blocks.
  void add(const std::string& name, std::int64_t rows, std::vector<std::int64_t> scale_shape,
           const std::string& scale_name = "_scale_inv", float broken = 1) {
    writer_.add(name + ".weight", "F8_E4M3", {rows, kColumns}, codes_of(rows, 7));
    std::int64_t count = 1;
    for (const std::int64_t extent : scale_shape) count *= extent;
    std::vector<float> scales;
    for (std::int64_t i = 0; i < count; ++i)
      scales.push_back(0.001f * static_cast<float>(i + 1) * (i == count - 1 ? broken : 1.0f));
    writer_.add(name + ".weight" + scale_name, "F32", scale_shape, scales);
  }
  WeightSource& source(const QuantizationConfig& config) {
    writer_.write_to(folder_, "model.safetensors");
    source_.emplace(WeightSource::checkpoint(folder_.path(), {.quantization = config}));
    return *source_;
  }
  Linear load(const Numerics& numerics, const WeightParts& parts, bool may_round = true) {
    WeightLoader loader(*source_, numerics, DType::kBF16, ctx_);
    const Linear linear =
        Linear::load(loader.root(), parts, kColumns, Shard::kReplicated, false, may_round);
    loader.finish([](std::string_view) { return true; });
    stores_.push_back(loader.take_store());
    return linear;
  }
  // The value that a GEMM gives the weight at a row and column.
  static float value(const ops::Weight& w, std::int64_t row, std::int64_t column) {
    const float code = ops::e4m3_values()[static_cast<const std::uint8_t*>(
        w.data.data)[row * w.data.stride[0] + column]];
    return code * (w.group == 0
                       ? w.scales.ptr<float>()[row]
                       : w.scales.ptr<float>()[column / w.group * w.scales.stride[0] + row / 16]);
  }
  // The weight is that of the widened parts, bit for bit.
  void expect_stored(const ops::Weight& w, const WeightParts& parts) {
    ASSERT_EQ(w.format, ops::Format::kFp8);
    std::int64_t first = 0;
    for (const WeightPart& part : parts) {
      std::vector<float> wanted(static_cast<std::size_t>(part.rows * kColumns));
      const std::string name = std::string(part.name) + ".weight";
      source_->load({.name = name,
                     .shape = {part.stored_rows(), kColumns},
                     .ranges = {{part.first_row, part.rows}, {}}},
                    DType::kF32, std::as_writable_bytes(std::span(wanted)));
      for (std::int64_t row = 0; row < part.rows; ++row)
        for (std::int64_t column = 0; column < kColumns; ++column)
          ASSERT_EQ(value(w, first + row, column),
                    wanted[static_cast<std::size_t>(row * kColumns + column)])
              << part.name << " " << row << ", " << column;
      first += part.rows;
    }
  }

  // As rows of the identity see it: of a weight in fragments.
  void expect_products(const Linear& linear, const WeightParts& parts) {
    Arena arena(1 << 20);
    ctx_.arena = &arena;
    std::vector<BF16> one(static_cast<std::size_t>(kColumns));
    std::vector<float> out(static_cast<std::size_t>(linear.rows()));
    for (std::int64_t column = 0; column < kColumns; ++column) {
      std::ranges::fill(one, BF16(0.0f));
      one[static_cast<std::size_t>(column)] = BF16(1.0f);
      linear.forward(ctx_, Tensor::dense(one.data(), DType::kBF16, {1, kColumns}),
                     Tensor::dense(out.data(), DType::kF32, {1, linear.rows()}));
      std::int64_t first = 0;
      for (const WeightPart& part : parts) {
        std::vector<float> wanted(static_cast<std::size_t>(part.rows));
        source_->load({.name = std::string(part.name) + ".weight",
                       .shape = {part.stored_rows(), kColumns},
                       .ranges = {{part.first_row, part.rows}, {column, 1}}},
                      DType::kF32, std::as_writable_bytes(std::span(wanted)));
        for (std::int64_t row = 0; row < part.rows; ++row)
          ASSERT_EQ(out[static_cast<std::size_t>(first + row)],
                    wanted[static_cast<std::size_t>(row)])
              << part.name << " " << row << ", " << column;
        first += part.rows;
      }
    }
  }

  static Numerics kept() { return {.compute = DType::kBF16, .keep_fp8 = true}; }

  SafetensorsWriter writer_;
  TestFolder folder_;
  std::optional<WeightSource> source_;
  Context ctx_;
  std::vector<WeightStore> stores_;
};

const QuantizationConfig kBlocks{.method = "fp8", .block_rows = 128, .block_columns = 128};
const QuantizationConfig kRowScales{.method = "compressed-tensors", .format = "float-quantized"};

TEST_F(Fp8WeightsTest, BlocksOfFusedPartsKeepTheirForm) {
  add("q", 320, {3, 2});
  add("k", 100, {1, 2});
  source(kBlocks);
  const WeightParts parts{{"q", 320}, {"k", 100}};
  const Linear linear = load(kept(), parts);
  EXPECT_EQ(linear.weight.group, 128);
  EXPECT_EQ(linear.input(), DType::kBF16);
  expect_stored(linear.weight, parts);
  expect_stored(load(kept(), {{"q", 64, 128, 320}}).weight, {{"q", 64, 128, 320}});
}

TEST_F(Fp8WeightsTest, ACpuHoldsThemInFragments) {
  const Numerics fragments{.compute = DType::kBF16, .keep_fp8 = true, .fp8_fragments = true};
  add("q", 320, {3, 2});
  add("k", 100, {1, 2});
  source(kBlocks);
  const WeightParts parts{{"q", 320}, {"k", 100}}, some{{"q", 64, 128, 320}};
  const Linear linear = load(fragments, parts);
  EXPECT_EQ(linear.weight.layout, ops::Layout::kFragments);
  EXPECT_EQ(linear.weight.format, ops::Format::kFp8);
  expect_products(linear, parts);
  expect_products(load(fragments, some), some);
}

TEST_F(Fp8WeightsTest, ScalesOfRowsAndMatricesKeepTheirForm) {
  add("row", 35, {35, 1}, "_scale");
  add("one", 20, {1}, "_scale");
  source(kRowScales);
  const WeightParts parts{{"row", 35}, {"one", 20}};
  const Linear linear = load(kept(), parts);
  EXPECT_EQ(linear.weight.group, 0);
  expect_stored(linear.weight, parts);
}

TEST_F(Fp8WeightsTest, OtherFormsAreWidened) {
  add("odd", 24, {1, 2});  // the next part would begin in a tile of 16 rows
  add("next", 16, {1, 2});
  writer_.add("plain.weight", "F32", {16, kColumns},
              std::vector<float>(static_cast<std::size_t>(16 * kColumns), 0.5f));
  source(kBlocks);
  EXPECT_EQ(load(kept(), {{"odd", 24}}).weight.format, ops::Format::kFp8);
  EXPECT_EQ(load(kept(), {{"odd", 24}, {"next", 16}}).weight.format, ops::Format::kBf16);
  EXPECT_EQ(load(kept(), {{"next", 16}, {"plain", 16}}).weight.format, ops::Format::kBf16);
  EXPECT_EQ(load(kept(), {{"next", 16}}, false).weight.format, ops::Format::kBf16);
  EXPECT_EQ(load({.compute = DType::kBF16}, {{"next", 16}}).weight.format, ops::Format::kBf16);
  EXPECT_NE(load({.compute = DType::kF32, .keep_fp8 = true}, {{"next", 16}}).weight.format,
            ops::Format::kFp8);
}

TEST_F(Fp8WeightsTest, DamagedScalesAndNumbersAreRefusedByName) {
  for (const float broken : {0.0f, -1.0f, INFINITY, NAN}) {
    writer_ = {};
    add("q", 128, {1, 2}, "_scale_inv", broken);
    source(kBlocks);
    EXPECT_THAT(message_of([&] { load(kept(), {{"q", 128}}); }),
                ::testing::AllOf(HasSubstr("q.weight_scale_inv"), HasSubstr("entry 1")));
  }
  writer_ = {};
  std::vector<std::uint8_t> codes = codes_of(128, 7);
  codes[300] = 0xFF;
  writer_.add("q.weight", "F8_E4M3", {128, kColumns}, codes);
  writer_.add("q.weight_scale_inv", "F32", {1, 2}, std::vector<float>{1, 1});
  source(kBlocks);
  EXPECT_THAT(message_of([&] { load(kept(), {{"q", 128}}); }),
              ::testing::AllOf(HasSubstr("q.weight"), HasSubstr("NaN at element 300")));
}

// Rounding while loading: every number is within half a step of e4m3 of the file's.
TEST_F(Fp8WeightsTest, RoundsAnyMatrix) {
  std::vector<float> numbers(static_cast<std::size_t>(300 * kColumns));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = std::sin(static_cast<float>(i)) * (i / kColumns == 7 ? 0.0f : 3.0f);
  writer_.add("a.weight", "F32", {300, kColumns}, numbers);
  writer_.write_to(folder_, "model.safetensors");
  source_.emplace(WeightSource::checkpoint(folder_.path()));
  for (const std::int64_t group : {std::int64_t{0}, ops::kFp8Group}) {
    const Linear linear = load(
        {.compute = DType::kBF16, .quantization = ops::Format::kFp8, .quantization_group = group},
        {{"a", 300}});
    ASSERT_EQ(linear.weight.format, ops::Format::kFp8);
    ASSERT_EQ(linear.weight.group, group);
    for (std::int64_t row = 0; row < 300; ++row)
      for (std::int64_t column = 0; column < kColumns; ++column) {
        const float wanted = numbers[static_cast<std::size_t>(row * kColumns + column)];
        // Half a step is 2^-4 of a number, or 2^-10 of the smallest normal number's scale; reading
        // as bfloat16 adds 2^-9.
        EXPECT_NEAR(value(linear.weight, row, column), wanted,
                    std::abs(wanted) * (0x1p-4 + 0x1p-8) + 3.0 / 448 * 0x1p-10)
            << group << ": " << row << ", " << column;
      }
  }
}

}  // namespace
}  // namespace sluice
