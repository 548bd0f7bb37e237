#include "layers/weights/fragment_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/testing/errors.h"
#include "base/testing/folder.h"
#include "checkpoint/testing/gguf_writer.h"
#include "checkpoint/testing/safetensors_writer.h"
#include "kernels/types/int_fragments.h"
#include "layers/linear.h"
#include "ops/gemm.h"

namespace sluice {
namespace {

using ops::Format;
using ::testing::HasSubstr;

constexpr std::int64_t kColumns = 256;

const QuantizationConfig kAwq{.method = "awq"};
const QuantizationConfig kGptq{.method = "gptq", .zero_plus_one = true};
const QuantizationConfig kPacked{
    .method = "compressed-tensors", .format = "pack-quantized", .bits = 4};

class FragmentWeightsTest : public ::testing::Test {
 protected:
  std::vector<std::int32_t> words(std::int64_t count) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(count));
    for (std::int32_t& word : out) word = static_cast<std::int32_t>(random_());
    return out;
  }
  // Positive numbers that float16 and bfloat16 have, or with `fine` float16 alone.
  std::vector<std::uint16_t> scales(std::int64_t count, bool in_bf16 = false, bool fine = false) {
    std::vector<std::uint16_t> out;
    for (std::int64_t i = 0; i < count; ++i) {
      const float scale = std::ldexp(
          static_cast<float>(fine ? 1025 + random_() % 500 * 2 : (128 + random_() % 128) * 8), -16);
      out.push_back(in_bf16 ? std::bit_cast<std::uint16_t>(BF16(scale))
                            : std::bit_cast<std::uint16_t>(F16(scale)));
    }
    return out;
  }
  void add_awq(const std::string& name, std::int64_t rows, std::int64_t group, bool fine = false) {
    const std::int64_t groups = kColumns / group;
    writer_.add(name + ".qweight", "I32", {kColumns, rows / 8}, words(kColumns * rows / 8));
    writer_.add(name + ".qzeros", "I32", {groups, rows / 8}, words(groups * rows / 8));
    writer_.add(name + ".scales", "F16", {groups, rows}, scales(groups * rows, false, fine));
  }
  // `index`: of columns; empty: there is none.
  void add_gptq(const std::string& name, std::int64_t rows, std::int64_t group, bool symmetric,
                const std::vector<std::int32_t>& index = {}) {
    const std::int64_t groups = kColumns / group;
    writer_.add(name + ".qweight", "I32", {kColumns / 8, rows}, words(kColumns / 8 * rows));
    writer_.add(name + ".qzeros", "I32", {groups, rows / 8},
                symmetric ? std::vector<std::int32_t>(static_cast<std::size_t>(groups * rows / 8),
                                                      0x77777777)
                          : words(groups * rows / 8));
    writer_.add(name + ".scales", "F16", {groups, rows}, scales(groups * rows));
    if (!index.empty()) writer_.add(name + ".g_idx", "I32", {kColumns}, index);
  }
  void add_packed(const std::string& name, std::int64_t rows, std::int64_t group, bool symmetric,
                  int bits = 4) {
    const std::int64_t groups = kColumns / group;
    writer_.add(name + ".weight_packed", "I32", {rows, kColumns / (32 / bits)},
                words(rows * kColumns / (32 / bits)));
    writer_.add(name + ".weight_scale", "BF16", {rows, groups}, scales(rows * groups, true));
    writer_.add(name + ".weight_shape", "I64", {2}, std::vector<std::int64_t>{rows, kColumns});
    if (!symmetric)
      writer_.add(name + ".weight_zero_point", "I32", {rows / 8, groups}, words(rows / 8 * groups));
  }
  void open(const QuantizationConfig& config) {
    writer_.write_to(folder_, "model.safetensors");
    source_.emplace(WeightSource::checkpoint(folder_.path(), {.quantization = config}));
  }
  Linear load(const WeightParts& parts, Numerics numerics = kept(), bool may_round = true) {
    WeightLoader loader(*source_, numerics, DType::kBF16, ctx_);
    const Linear linear =
        Linear::load(loader.root(), parts, kColumns, Shard::kReplicated, false, may_round);
    loader.finish([](std::string_view) { return true; });
    stores_.push_back(loader.take_store());
    return linear;
  }
  static Numerics kept() { return {.compute = DType::kBF16, .int_fragments = true}; }

  // The value that a GEMM gives the weight at a row and a column of x.
  static std::vector<float> values_of(const ops::Weight& w) {
    const ops::FragmentUnit form = fragment_unit(w);
    const std::int64_t units = ops::fragment_units(w.columns);
    std::vector<float> values(static_cast<std::size_t>(w.rows * w.columns));
    for (std::int64_t n = 0; n < w.rows; ++n)
      for (std::int64_t k = 0; k < w.columns; ++k) {
        const std::uint8_t* unit = static_cast<const std::uint8_t*>(w.data.data) +
                                   (n / 16 * units + k / 128) * form.bytes();
        const int row = static_cast<int>(n % 16), column = static_cast<int>(k % 128),
                  group = column * form.groups / 128;
        const auto [byte, shift] = form.code_at(row, column);
        std::uint16_t bits;
        float scale;
        std::memcpy(&bits, unit + form.scale_at(group, row), 2);
        if (w.scale == DType::kF32)
          std::memcpy(&scale, unit + form.scale_at(group, row), 4);
        else
          scale = w.scale == DType::kBF16 ? static_cast<float>(std::bit_cast<BF16>(bits))
                                          : static_cast<float>(std::bit_cast<F16>(bits));
        const int zero = form.has_zeros ? unit[form.zero_at(group, row)] : form.middle();
        const std::int64_t of_x = w.order.defined() ? w.order.ptr<std::int32_t>()[k] : k;
        values[static_cast<std::size_t>(n * w.columns + of_x)] =
            static_cast<float>((unit[byte] >> shift & ((1 << form.bits) - 1)) - zero) * scale;
      }
    return values;
  }
  // The weight is that of the widened parts, bit for bit.
  void expect_stored(const ops::Weight& w, const WeightParts& parts) {
    ASSERT_EQ(w.layout, ops::Layout::kFragments);
    EXPECT_EQ(w.input, DType::kBF16);
    std::vector<float> wanted;
    for (const WeightPart& part : parts) {
      std::vector<float> own(static_cast<std::size_t>(part.rows * w.columns));
      source_->load({.name = std::string(part.name) + ".weight",
                     .shape = {part.stored_rows(), w.columns},
                     .ranges = {{part.first_row, part.rows}, {}}},
                    DType::kF32, std::as_writable_bytes(std::span(own)));
      wanted.insert(wanted.end(), own.begin(), own.end());
    }
    EXPECT_EQ(values_of(w), wanted);
  }

  std::mt19937 random_{11};
  SafetensorsWriter writer_;
  TestFolder folder_;
  std::optional<WeightSource> source_;
  Context ctx_;
  std::vector<WeightStore> stores_;
};

TEST_F(FragmentWeightsTest, AwqKeepsItsNumbers) {
  add_awq("q", 48, 128, true);
  add_awq("k", 24, 64, true);
  open(kAwq);
  const WeightParts parts{{"q", 48}, {"k", 24}};
  const Linear linear = load(parts);
  EXPECT_EQ(linear.weight.format, Format::kInt4Zero);
  EXPECT_EQ(linear.weight.group, 64);  // of both parts
  EXPECT_EQ(linear.weight.scale, DType::kF16);
  expect_stored(linear.weight, parts);
  expect_stored(load({{"q", 16, 24, 48}}).weight, {{"q", 16, 24, 48}});
}

TEST_F(FragmentWeightsTest, GptqKeepsItsNumbersInTheOrderOfItsGroups) {
  std::vector<std::int32_t> index(kColumns), in_order(kColumns);
  for (std::size_t i = 0; i < index.size(); ++i) {
    index[i] = static_cast<std::int32_t>(i * 37 % 256 / 64);
    in_order[i] = static_cast<std::int32_t>(i / 64);
  }
  add_gptq("act", 32, 64, false, index);
  add_gptq("act_too", 16, 64, true, index);
  add_gptq("plain", 32, 64, true, in_order);
  add_gptq("row", 24, kColumns, true);
  open(kGptq);
  const Linear act = load({{"act", 32}, {"act_too", 16}});
  EXPECT_EQ(act.weight.format, Format::kInt4Zero);
  ASSERT_TRUE(act.weight.order.defined());
  expect_stored(act.weight, {{"act", 32}, {"act_too", 16}});
  const Linear plain = load({{"plain", 32}});
  EXPECT_EQ(plain.weight.format, Format::kInt4);
  EXPECT_FALSE(plain.weight.order.defined());
  expect_stored(plain.weight, {{"plain", 32}});
  const Linear row = load({{"row", 24}});
  EXPECT_EQ(row.weight.group, 128);
  expect_stored(row.weight, {{"row", 24}});
  const Linear both = load({{"act", 32}, {"plain", 32}});  // orders of their own
  ASSERT_EQ(both.pieces.size(), 2u);
  expect_stored(both.pieces[0].weight, {{"act", 32}});
  expect_stored(both.pieces[1].weight, {{"plain", 32}});
}

TEST_F(FragmentWeightsTest, PackedIntegersKeepTheirNumbers) {
  add_packed("q", 32, 32, true);
  add_packed("k", 16, 32, false);
  open(kPacked);
  const Linear q = load({{"q", 32}});
  EXPECT_EQ(q.weight.format, Format::kInt4);
  EXPECT_EQ(q.weight.group, 32);
  expect_stored(q.weight, {{"q", 32}});
  expect_stored(load({{"q", 32}, {"k", 16}}).weight, {{"q", 32}, {"k", 16}});
}

TEST_F(FragmentWeightsTest, BytesKeepTheirNumbersUnlessTheyHaveZeroPoints) {
  add_packed("q", 32, 128, true, 8);
  QuantizationConfig bytes = kPacked;
  bytes.bits = 8;
  open(bytes);
  const Linear q = load({{"q", 32}});
  EXPECT_EQ(q.weight.format, Format::kInt8);
  expect_stored(q.weight, {{"q", 32}});
}

TEST_F(FragmentWeightsTest, SignedBytesKeepTheirNumbers) {
  std::vector<std::int8_t> bytes(static_cast<std::size_t>(48 * kColumns));
  for (std::int8_t& byte : bytes) byte = static_cast<std::int8_t>(random_());
  writer_.add("row.weight", "I8", {48, kColumns}, bytes);
  writer_.add("row.weight_scale", "BF16", {48, 1}, scales(48, true));
  writer_.add("fine.weight", "I8", {48, kColumns}, bytes);
  writer_.add("fine.weight_scale", "F32", {48, 1}, std::vector<float>(48, 0.1f));
  open({.method = "compressed-tensors", .format = "int-quantized", .bits = 8});
  const Linear row = load({{"row", 48}});
  EXPECT_EQ(row.weight.format, Format::kInt8);
  expect_stored(row.weight, {{"row", 48}});
  const Linear fine = load({{"fine", 48}});  // 0.1f has more than 16 bits
  EXPECT_EQ(fine.weight.scale, DType::kF32);
  expect_stored(fine.weight, {{"fine", 48}});
}

// One group in all of the row, and a configuration that wants it.
TEST_F(FragmentWeightsTest, RowsOfInt8AreForScalesOfRows) {
  std::vector<std::int8_t> bytes(static_cast<std::size_t>(32 * kColumns));
  for (std::int8_t& byte : bytes) byte = static_cast<std::int8_t>(random_());
  for (const char* name : {"row", "next"}) {
    writer_.add(std::string(name) + ".weight", "I8", {32, kColumns}, bytes);
    writer_.add(std::string(name) + ".weight_scale", "BF16", {32, 1}, scales(32, true));
  }
  writer_.add("grouped.weight", "I8", {32, kColumns}, bytes);
  writer_.add("grouped.weight_scale", "BF16", {32, kColumns / 64},
              scales(32 * kColumns / 64, true));
  QuantizationConfig config{.method = "compressed-tensors", .format = "int-quantized", .bits = 8};
  open(config);
  EXPECT_FALSE(load({{"row", 32}}).weight.int8_rows);
  config.int8_rows = true;
  open(config);
  EXPECT_TRUE(load({{"row", 32}, {"next", 32}}).weight.int8_rows);
  EXPECT_FALSE(load({{"grouped", 32}}).weight.int8_rows);
  EXPECT_FALSE(load({{"row", 32}, {"grouped", 32}}).weight.int8_rows);
}

TEST_F(FragmentWeightsTest, OtherFormsAreWidened) {
  add_awq("next", 16, 64);
  add_awq("narrow", 16, 16);
  open(kAwq);
  EXPECT_EQ(load({{"narrow", 16}}).weight.format, Format::kBf16);
  EXPECT_EQ(load({{"next", 16}}, kept(), false).weight.format, Format::kBf16);
  EXPECT_EQ(load({{"next", 16}}, {.compute = DType::kBF16}).weight.format, Format::kBf16);
  EXPECT_NE(load({{"next", 16}}, {.compute = DType::kF32, .int_fragments = true}).weight.layout,
            ops::Layout::kFragments);
}

TEST_F(FragmentWeightsTest, PartsWithoutACommonFormAreWeightsOfTheirOwn) {
  add_awq("odd", 24, 64);  // the next part would begin within 16 rows
  add_awq("next", 16, 64);
  add_awq("last", 16, 64);
  writer_.add("plain.weight", "F16", {16, kColumns},
              std::vector<F16>(static_cast<std::size_t>(16 * kColumns), F16(0.5f)));
  open(kAwq);
  const Linear linear = load({{"odd", 24}, {"next", 16}, {"last", 16}, {"plain", 16}});
  ASSERT_EQ(linear.pieces.size(), 3u);
  EXPECT_EQ(linear.rows(), 72);
  expect_stored(linear.pieces[0].weight, {{"odd", 24}});
  expect_stored(linear.pieces[1].weight, {{"next", 16}, {"last", 16}});
  EXPECT_EQ(linear.pieces[2].weight.format, Format::kBf16);
}

TEST_F(FragmentWeightsTest, DamagedScalesAreRefusedByName) {
  for (const float broken : {0.0f, -1.0f, INFINITY, NAN}) {
    writer_ = {};
    writer_.add("q.qweight", "I32", {kColumns, 2}, words(kColumns * 2));
    writer_.add("q.qzeros", "I32", {1, 2}, words(2));
    std::vector<std::uint16_t> stored = scales(16);
    stored[5] = std::bit_cast<std::uint16_t>(F16(broken));
    writer_.add("q.scales", "F16", {1, 16}, stored);
    open(kAwq);
    EXPECT_THAT(message_of([&] { load({{"q", 16}}); }),
                ::testing::AllOf(HasSubstr("q.weight"), HasSubstr("scale of row 5")));
  }
}

TEST_F(FragmentWeightsTest, NumbersAreRoundedToIntegers) {
  std::vector<float> numbers(static_cast<std::size_t>(40 * kColumns));
  for (float& number : numbers)
    number = static_cast<float>(static_cast<int>(random_() % 2001) - 1000) / 1000.0f;
  writer_.add("plain.weight", "F32", {40, kColumns}, numbers);
  writer_.write_to(folder_, "model.safetensors");
  source_.emplace(WeightSource::checkpoint(folder_.path()));
  for (const Format format : {Format::kInt8, Format::kInt4, Format::kInt4Zero}) {
    Numerics numerics = kept();
    numerics.quantization = format;
    numerics.quantization_group = 32;
    const Linear linear = load({{"plain", 40}}, numerics);
    EXPECT_EQ(linear.weight.format, format);
    const std::vector<float> values = values_of(linear.weight);
    // Half a step of a group whose largest number is below 1; 4 bits cut the end of the range that
    // has one level less by up to a step. The scale is rounded to float16.
    const float step = format == Format::kInt8 ? 0.5f / 127 : 1.0f / 8;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      ASSERT_NEAR(values[i], numbers[i], step * 1.001f + 0.001f) << i;
  }
  // As W8A8 has them: all units of a row have its scale.
  Numerics numerics = kept();
  numerics.quantization = Format::kInt8;
  numerics.quantization_group = 128;
  numerics.int8_rows = true;
  const ops::Weight w = load({{"plain", 40}}, numerics).weight;
  EXPECT_TRUE(w.int8_rows);
  const std::vector<float> values = values_of(w);
  const ops::FragmentUnit form = fragment_unit(w);
  const std::int64_t units = ops::fragment_units(kColumns);
  ASSERT_GT(units, 1);
  for (std::int64_t r = 0; r < 40; ++r)
    for (std::int64_t u = 1; u < units; ++u) {
      const auto* const tile =
          static_cast<const std::uint8_t*>(w.data.data) + r / 16 * units * form.bytes();
      const std::int64_t at = form.scale_at(0, static_cast<int>(r % 16));
      EXPECT_EQ(std::memcmp(tile + at, tile + u * form.bytes() + at, 2), 0) << r << ", " << u;
    }
  for (std::size_t i = 0; i < numbers.size(); ++i)
    ASSERT_NEAR(values[i], numbers[i], 0.5f / 127 * 1.001f + 0.001f) << i;
}

TEST_F(FragmentWeightsTest, BlocksOfAGgufFileKeepTheirNumbers) {
  GgufWriter writer;
  writer.text("general.architecture", "qwen2");
  writer.number("qwen2.attention.head_count", std::uint32_t{4})
      .number("qwen2.attention.head_count_kv", std::uint32_t{4});
  const auto add = [&](const std::string& name, std::uint32_t type, std::size_t bytes) {
    std::string data;
    for (std::int64_t b = 0; b < 40 * kColumns / 32; ++b) {
      std::string block(bytes, '\0');
      for (char& c : block) c = static_cast<char>(random_() & 255);
      const F16 scale(static_cast<float>(random_() % 2000) / 50000.0f);
      std::memcpy(block.data(), &scale, sizeof scale);
      data += block;
    }
    writer.tensor(name, {40, kColumns}, type, std::move(data));
  };
  add("a.weight", 8, 34);
  add("b.weight", 2, 18);
  folder_.write("x.gguf", writer.bytes());
  source_.emplace(WeightSource::checkpoint(folder_.path() + "/x.gguf"));
  Numerics numerics = kept();
  numerics.keep_blocks = true;
  const Linear bytes = load({{"a", 40}}, numerics), nibbles = load({{"b", 40}}, numerics);
  EXPECT_EQ(bytes.weight.format, Format::kInt8);
  EXPECT_EQ(nibbles.weight.format, Format::kInt4);
  expect_stored(bytes.weight, {{"a", 40}});
  expect_stored(nibbles.weight, {{"b", 40}});
  EXPECT_EQ(load({{"a", 40}}, kept()).weight.format, Format::kBf16);
  // A head is never rounded, and blocks are what the file has.
  expect_stored(load({{"a", 40}}, numerics, false).weight, {{"a", 40}});
  numerics.quantization = Format::kInt4Zero;
  numerics.quantization_group = 32;
  EXPECT_EQ(load({{"a", 40}}, numerics).weight.format, Format::kInt4Zero);
  EXPECT_EQ(load({{"a", 40}}, numerics, false).weight.format, Format::kBf16);
}

}  // namespace
}  // namespace sluice
