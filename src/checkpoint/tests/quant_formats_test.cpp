// Quantised matrices against their definitions in plain loops, whole and by boxes; and refused
// files.
#include "checkpoint/quantized/quant_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "base/testing/errors.h"
#include "checkpoint/testing/quant_folder.h"
#include "checkpoint/weight_source.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() { return mix64(state_++); }
  int below(int bound) { return static_cast<int>(bits() % static_cast<std::uint64_t>(bound)); }
  float scale() { return static_cast<float>(1 + below(1000)) / 512.0f; }

 private:
  std::uint64_t state_;
};

struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;
  float& at(std::int64_t r, std::int64_t c) {
    return values[static_cast<std::size_t>(r * columns + c)];
  }
};

Matrix zeros(std::int64_t rows, std::int64_t columns) {
  return {rows, columns, std::vector<float>(static_cast<std::size_t>(rows * columns))};
}

// The value of an 8-bit float, from the definition of the format.
float float8(unsigned byte, int exponent_bits) {
  const int mantissa_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(byte & 0x7F) >> mantissa_bits;
  const int mantissa = static_cast<int>(byte & 0x7F) & ((1 << mantissa_bits) - 1);
  const double part = static_cast<double>(mantissa) / (1 << mantissa_bits);
  const double size =
      exponent == 0 ? std::ldexp(part, 1 - bias) : std::ldexp(1 + part, exponent - bias);
  return static_cast<float>(byte & 0x80 ? -size : size);
}

// Checks the whole matrix and every box of it bit for bit; bfloat16 must be the values rounded
// once.
void expect_matrix(const WeightSource& source, std::string_view name, Matrix wanted) {
  const std::vector<std::int64_t> shape = {wanted.rows, wanted.columns};
  ASSERT_NE(source.find(name), nullptr) << name;
  EXPECT_EQ(source.find(name)->shape, shape);
  EXPECT_EQ(source.find(name)->numel(), wanted.rows * wanted.columns);
  const std::vector<float> seen = load_values(source, name, shape);
  for (std::size_t i = 0; i < seen.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(seen[i]), std::bit_cast<std::uint32_t>(wanted.values[i]))
        << name << " element " << i;
  Random random(5);
  for (int i = 0; i < 40; ++i) {
    const std::int64_t row = random.below(static_cast<int>(wanted.rows)),
                       column = random.below(static_cast<int>(wanted.columns));
    const std::int64_t rows = 1 + random.below(static_cast<int>(wanted.rows - row));
    const std::int64_t columns = 1 + random.below(static_cast<int>(wanted.columns - column));
    const std::vector<float> box =
        load_values(source, name, shape, {{row, rows}, {column, columns}});
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        ASSERT_EQ(box[static_cast<std::size_t>(r * columns + c)], wanted.at(row + r, column + c))
            << name << " box [" << row << ", +" << rows << ") x [" << column << ", +" << columns
            << ")";
  }
  const WeightRequest request{.name = name, .shape = shape};
  std::vector<BF16> narrow(seen.size());
  source.load(request, DType::kBF16, std::as_writable_bytes(std::span(narrow)));
  for (std::size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(narrow[i].bits, BF16(seen[i]).bits);
}

// Writes `value` to field i of a bit stream through words with a distance of `stride`.
void put_field(std::vector<std::int32_t>& words, std::size_t first, std::size_t stride,
               std::int64_t i, int bits, unsigned value) {
  for (int b = 0; b < bits; ++b) {
    const std::int64_t at = i * bits + b;
    auto word =
        static_cast<std::uint32_t>(words[first + static_cast<std::size_t>(at / 32) * stride]);
    word |= (value >> b & 1u) << (at % 32);
    words[first + static_cast<std::size_t>(at / 32) * stride] = static_cast<std::int32_t>(word);
  }
}

TEST(QuantFormats, EachByteOfAnEightBitFloat) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const float e4m3 = fp8_values(DType::kF8E4M3)[byte], e5m2 = fp8_values(DType::kF8E5M2)[byte];
    if ((byte & 0x7F) == 0x7F)
      EXPECT_TRUE(std::isnan(e4m3));
    else
      EXPECT_EQ(e4m3, float8(byte, 4)) << byte;
    if ((byte & 0x7F) == 0x7C)
      EXPECT_EQ(e5m2, byte == 0x7C ? INFINITY : -INFINITY);
    else if ((byte & 0x7F) > 0x7C)
      EXPECT_TRUE(std::isnan(e5m2));
    else
      EXPECT_EQ(e5m2, float8(byte, 5)) << byte;
  }
  EXPECT_EQ(fp8_values(DType::kF8E4M3)[0x7E], 448.0f);
}

TEST(QuantFormats, ScalesOfEveryShape) {
  struct Row {
    std::string method, format, dtype, ending;
    std::vector<std::int64_t> scale_shape;
    std::int64_t block_rows, block_columns;
  };
  constexpr std::int64_t kRows = 150, kColumns = 140;
  const std::vector<Row> rows = {
      {"fp8", "", "F8_E4M3", "_scale_inv", {2, 2}, 128, 128},
      {"fp8", "", "F8_E4M3", "_scale_inv", {3, 5}, 64, 32},
      {"fp8", "", "F8_E4M3", "_scale", {}, kRows, kColumns},
      {"fp8", "", "F8_E5M2", "_scale_inv", {1}, kRows, kColumns},
      {"modelopt", "", "F8_E4M3", "_scale", {}, kRows, kColumns},
      {"fbgemm_fp8", "", "F8_E4M3", "_scale", {kRows, 1}, 1, kColumns},
      {"compressed-tensors", "float-quantized", "F8_E4M3", "_scale", {kRows}, 1, kColumns},
      {"compressed-tensors", "float-quantized", "F8_E4M3", "_scale", {2, 2}, 128, 128},
      {"compressed-tensors", "int-quantized", "I8", "_scale", {kRows, 1}, 1, kColumns},
      {"compressed-tensors", "int-quantized", "I8", "_scale", {kRows, 7}, 1, 20}};
  for (const Row& row : rows) {
    Random random(3);
    std::vector<std::uint8_t> bytes(kRows * kColumns);
    for (std::uint8_t& byte : bytes)
      byte = static_cast<std::uint8_t>(random.below(120) | random.below(2) << 7);
    std::size_t num_scales = 1;
    for (const std::int64_t extent : row.scale_shape)
      num_scales *= static_cast<std::size_t>(extent);
    std::vector<float> scale(num_scales);
    for (float& value : scale) value = random.scale();
    Matrix wanted = zeros(kRows, kColumns);
    const std::int64_t per_row = (kColumns + row.block_columns - 1) / row.block_columns;
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t c = 0; c < kColumns; ++c) {
        const std::uint8_t byte = bytes[static_cast<std::size_t>(r * kColumns + c)];
        const float value = row.dtype == "I8" ? static_cast<float>(static_cast<std::int8_t>(byte))
                                              : float8(byte, row.dtype == "F8_E4M3" ? 4 : 5);
        wanted.at(r, c) =
            value *
            scale[static_cast<std::size_t>(r / row.block_rows * per_row + c / row.block_columns)];
      }
    QuantFolder folder;
    folder.writer.add("a.weight", row.dtype, {kRows, kColumns}, bytes)
        .add("a.weight" + row.ending, "F32", row.scale_shape, scale)
        .add("a.input_scale", "F32", {1}, std::vector<float>{1})
        .add("a.k_scale", "F32", {1}, std::vector<float>{1})
        .add("b.weight", "F32", {1, 2}, std::vector<float>{1, 2});
    QuantizationConfig config{.method = row.method, .format = row.format};
    if (row.block_rows > 1 && row.block_rows < kRows) {
      config.block_rows = static_cast<int>(row.block_rows);
      config.block_columns = static_cast<int>(row.block_columns);
    }
    const WeightSource source = folder.open(config);
    EXPECT_THAT(source.names(), testing::ElementsAre("a.weight", "b.weight"));
    EXPECT_EQ(source.find("a.weight" + row.ending), nullptr);
    EXPECT_THAT(load_values(source, "b.weight", {1, 2}), testing::ElementsAre(1, 2));
    expect_matrix(source, "a.weight", wanted);
  }
}

// As DeepSeek-V3.1 has them (scale_fmt), there in float32; e8m0 is a byte.
TEST(QuantFormats, ScalesThatAreExponents) {
  constexpr std::int64_t kRows = 20, kColumns = 40;
  Random random(6);
  std::vector<std::uint8_t> bytes(kRows * kColumns);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.below(120));
  std::vector<std::uint8_t> scale = {127, 120, 0, 130, 90, 1};
  for (const char* dtype : {"F8_E8M0", "U8"}) {
    Matrix wanted = zeros(kRows, kColumns);
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t c = 0; c < kColumns; ++c)
        wanted.at(r, c) = std::ldexp(float8(bytes[static_cast<std::size_t>(r * kColumns + c)], 4),
                                     scale[static_cast<std::size_t>(r / 16 * 3 + c / 16)] - 127);
    QuantFolder folder;
    folder.writer.add("a.weight", "F8_E4M3", {kRows, kColumns}, bytes)
        .add("a.weight_scale_inv", dtype, {2, 3}, scale);
    expect_matrix(folder.open({.method = "fp8", .block_rows = 16, .block_columns = 16}), "a.weight",
                  wanted);
  }
  scale[4] = 255;
  QuantFolder folder;
  folder.writer.add("a.weight", "F8_E4M3", {kRows, kColumns}, bytes)
      .add("a.weight_scale_inv", "F8_E8M0", {2, 3}, scale);
  const WeightSource source = folder.open({.method = "fp8", .block_rows = 16, .block_columns = 16});
  EXPECT_THAT(message_of([&] { load_values(source, "a.weight", {kRows, kColumns}); }),
              HasSubstr("a scale of a.weight_scale_inv is nan; a positive number was expected"));
}

TEST(QuantFormats, StackedExpertsHaveScalesOfTheirOwn) {
  constexpr std::int64_t kExperts = 3, kRows = 5, kColumns = 6;
  Random random(4);
  std::vector<std::uint8_t> bytes(kExperts * kRows * kColumns);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.below(120));
  std::vector<float> scale(kExperts * 3 * 2);
  for (float& value : scale) value = random.scale();
  QuantFolder folder;
  folder.writer.add("experts.gate_up_proj", "F8_E4M3", {kExperts, kRows, kColumns}, bytes)
      .add("experts.gate_up_proj_scale_inv", "F32", {kExperts, 3, 2}, scale);
  const WeightSource source = folder.open({.method = "fp8", .block_rows = 2, .block_columns = 4});
  const std::vector<float> seen = load_values(
      source, "experts.gate_up_proj", {kExperts, kRows, kColumns}, {{1, 2}, {1, 3}, {2, 4}});
  std::size_t i = 0;
  for (std::int64_t e = 1; e < 3; ++e)
    for (std::int64_t r = 1; r < 4; ++r)
      for (std::int64_t c = 2; c < 6; ++c)
        EXPECT_EQ(seen[i++],
                  float8(bytes[static_cast<std::size_t>((e * kRows + r) * kColumns + c)], 4) *
                      scale[static_cast<std::size_t>((e * 3 + r / 2) * 2 + c / 4)]);
}

TEST(QuantFormats, Gptq) {
  for (const int bits : {2, 3, 4, 8})
    for (const bool ordered : {false, true})
      for (const bool first_format : {false, true}) {
        constexpr std::int64_t kRows = 96, kColumns = 160, kGroups = 5;
        Random random(static_cast<std::uint64_t>(bits));
        std::vector<std::int32_t> words(kColumns * bits / 32 * kRows),
            zero_words(kGroups * kRows * bits / 32), index(kColumns);
        std::vector<F16> scale;
        std::vector<unsigned> zero;
        for (std::int64_t i = 0; i < kGroups * kRows; ++i) {
          scale.emplace_back(random.scale());
          zero.push_back(static_cast<unsigned>(random.below(1 << bits)));
          put_field(zero_words, static_cast<std::size_t>(i / kRows * kRows * bits / 32), 1,
                    i % kRows, bits, zero.back());
        }
        for (std::int64_t c = 0; c < kColumns; ++c)
          index[static_cast<std::size_t>(c)] =
              static_cast<std::int32_t>(ordered ? random.below(kGroups) : c / (kColumns / kGroups));
        Matrix wanted = zeros(kRows, kColumns);
        for (std::int64_t r = 0; r < kRows; ++r)
          for (std::int64_t c = 0; c < kColumns; ++c) {
            const auto q = static_cast<unsigned>(random.below(1 << bits));
            put_field(words, static_cast<std::size_t>(r), kRows, c, bits, q);
            const auto at =
                static_cast<std::size_t>(index[static_cast<std::size_t>(c)] * kRows + r);
            const int z = static_cast<int>(first_format ? (zero[at] + 1) % (1u << bits) : zero[at]);
            wanted.at(r, c) =
                static_cast<float>(static_cast<int>(q) - z) * static_cast<float>(scale[at]);
          }
        QuantFolder folder;
        folder.writer.add("x.qweight", "I32", {kColumns * bits / 32, kRows}, words)
            .add("x.qzeros", "I32", {kGroups, kRows * bits / 32}, zero_words)
            .add("x.scales", "F16", {kGroups, kRows}, scale)
            .add("x.bias", "F16", {1}, std::vector<F16>(1));
        if (ordered) folder.writer.add("x.g_idx", "I32", {kColumns}, index);
        const WeightSource source = folder.open({.method = "gptq", .zero_plus_one = first_format});
        EXPECT_THAT(source.names(), testing::UnorderedElementsAre("x.weight", "x.bias"));
        expect_matrix(source, "x.weight", wanted);
      }
}

TEST(QuantFormats, Awq) {
  constexpr std::int64_t kRows = 72, kColumns = 96, kGroups = 3;
  constexpr int kColumnOfNibble[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  Random random(8);
  std::vector<std::uint32_t> words(kColumns * kRows / 8), zero_words(kGroups * kRows / 8);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random.bits());
  for (std::uint32_t& word : zero_words) word = static_cast<std::uint32_t>(random.bits());
  std::vector<F16> scale;
  for (std::int64_t i = 0; i < kGroups * kRows; ++i) scale.emplace_back(random.scale());
  Matrix wanted = zeros(kRows, kColumns);
  for (std::int64_t c = 0; c < kColumns; ++c)
    for (std::int64_t word = 0; word < kRows / 8; ++word)
      for (int nibble = 0; nibble < 8; ++nibble) {
        const std::int64_t r = word * 8 + kColumnOfNibble[nibble], g = c / 32;
        const auto q = static_cast<int>(
            words[static_cast<std::size_t>(c * kRows / 8 + word)] >> (4 * nibble) & 15);
        const auto z = static_cast<int>(
            zero_words[static_cast<std::size_t>(g * kRows / 8 + word)] >> (4 * nibble) & 15);
        wanted.at(r, c) = static_cast<float>(q - z) *
                          static_cast<float>(scale[static_cast<std::size_t>(g * kRows + r)]);
      }
  QuantFolder folder;
  folder.writer.add("x.qweight", "I32", {kColumns, kRows / 8}, words)
      .add("x.qzeros", "I32", {kGroups, kRows / 8}, zero_words)
      .add("x.scales", "F16", {kGroups, kRows}, scale);
  expect_matrix(folder.open({.method = "awq"}), "x.weight", wanted);
}

TEST(QuantFormats, PackedByCompressedTensors) {
  for (const int bits : {4, 8})
    for (const bool with_zeros : {false, true})
      for (const bool with_index : {false, true}) {
        // neither fills its words completely
        constexpr std::int64_t kRows = 21, kColumns = 60, kGroups = 6;
        const std::int64_t words_a_row = (kColumns * bits + 31) / 32,
                           zero_rows = (kRows * bits + 31) / 32;
        Random random(11);
        std::vector<std::int32_t> words(static_cast<std::size_t>(kRows * words_a_row)),
            zero_words(static_cast<std::size_t>(zero_rows * kGroups)), index(kColumns);
        std::vector<BF16> scale;
        std::vector<unsigned> zero(kRows * kGroups, 1u << (bits - 1));
        for (std::int64_t i = 0; i < kRows * kGroups; ++i) {
          scale.emplace_back(random.scale());
          if (!with_zeros) continue;
          zero[static_cast<std::size_t>(i)] = static_cast<unsigned>(random.below(1 << bits));
          put_field(zero_words, static_cast<std::size_t>(i % kGroups), kGroups, i / kGroups, bits,
                    zero[static_cast<std::size_t>(i)]);
        }
        for (std::int64_t c = 0; c < kColumns; ++c)
          index[static_cast<std::size_t>(c)] =
              static_cast<std::int32_t>(with_index ? random.below(kGroups) : c / 10);
        Matrix wanted = zeros(kRows, kColumns);
        for (std::int64_t r = 0; r < kRows; ++r)
          for (std::int64_t c = 0; c < kColumns; ++c) {
            const auto q = static_cast<unsigned>(random.below(1 << bits));
            put_field(words, static_cast<std::size_t>(r * words_a_row), 1, c, bits, q);
            const auto at =
                static_cast<std::size_t>(r * kGroups + index[static_cast<std::size_t>(c)]);
            wanted.at(r, c) = static_cast<float>(static_cast<int>(q) - static_cast<int>(zero[at])) *
                              static_cast<float>(scale[at]);
          }
        QuantFolder folder;
        folder.writer.add("x.weight_packed", "I32", {kRows, words_a_row}, words)
            .add("x.weight_scale", "BF16", {kRows, kGroups}, scale)
            .add("x.weight_shape", "I64", {2}, std::vector<std::int64_t>{kRows, kColumns});
        if (with_zeros)
          folder.writer.add("x.weight_zero_point", "I32", {zero_rows, kGroups}, zero_words);
        if (with_index) folder.writer.add("x.weight_g_idx", "I32", {kColumns}, index);
        expect_matrix(
            folder.open({.method = "compressed-tensors", .format = "pack-quantized", .bits = bits}),
            "x.weight", wanted);
      }
}

TEST(QuantFormats, Mxfp4) {
  constexpr std::int64_t kRows = 7, kGroups = 3;
  constexpr float kE2M1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  Random random(12);
  std::vector<std::uint8_t> blocks(2 * kRows * kGroups * 16), scales(2 * kRows * kGroups);
  for (std::uint8_t& byte : blocks) byte = static_cast<std::uint8_t>(random.bits());
  for (std::uint8_t& byte : scales) byte = static_cast<std::uint8_t>(random.below(255));
  scales[0] = 0;  // 2^-127, a subnormal number
  for (const bool is_stack : {false, true}) {
    const std::int64_t rows = is_stack ? kRows : 2 * kRows;
    Matrix wanted = zeros(2 * kRows, kGroups * 32);
    for (std::int64_t r = 0; r < 2 * kRows; ++r)
      for (std::int64_t c = 0; c < kGroups * 32; ++c) {
        const unsigned pair = blocks[static_cast<std::size_t>((r * kGroups * 32 + c) / 2)];
        const unsigned code = c % 2 == 0 ? pair & 15 : pair >> 4;
        const float size = std::ldexp(kE2M1[code & 7],
                                      scales[static_cast<std::size_t>(r * kGroups + c / 32)] - 127);
        wanted.at(r, c) = code & 8 ? -size : size;
      }
    QuantFolder folder;
    std::vector<std::int64_t> shape = {rows, kGroups, 16}, scale_shape = {rows, kGroups};
    if (is_stack) shape.insert(shape.begin(), 2), scale_shape.insert(scale_shape.begin(), 2);
    folder.writer.add("e_blocks", "U8", shape, blocks).add("e_scales", "U8", scale_shape, scales);
    const WeightSource source = folder.open({.method = "mxfp4"});
    EXPECT_THAT(source.names(), testing::ElementsAre("e_blocks"));
    if (!is_stack) {
      expect_matrix(source, "e_blocks", wanted);
      continue;
    }
    const std::vector<float> seen =
        load_values(source, "e_blocks", {2, kRows, kGroups * 32}, {{1, 1}, {2, 3}, {5, 41}});
    for (std::int64_t r = 0; r < 3; ++r)
      for (std::int64_t c = 0; c < 41; ++c)
        ASSERT_EQ(seen[static_cast<std::size_t>(r * 41 + c)], wanted.at(kRows + 2 + r, 5 + c));
    // The codes and scales of the same box, whose groups are counted over the whole row.
    QuantCodes codes;
    source.read_codes(*source.find_integers("e_blocks"), {1, 2, 3, 5, 41}, codes);
    for (std::int64_t r = 0; r < 3; ++r)
      for (std::int64_t c = 0; c < 41; ++c) {
        const std::uint8_t code = codes.codes[static_cast<std::size_t>(r * 41 + c)];
        const float scale = codes.scales[static_cast<std::size_t>(
            codes.groups[static_cast<std::size_t>(c)] * 3 + r)];
        ASSERT_EQ((code & 8 ? -1 : 1) * kE2M1[code & 7] * scale, wanted.at(kRows + 2 + r, 5 + c));
      }
  }
  scales[3] = 0xFF;
  QuantFolder folder;
  folder.writer.add("e_blocks", "U8", {2 * kRows, kGroups, 16}, blocks)
      .add("e_scales", "U8", {2 * kRows, kGroups}, scales);
  const WeightSource source = folder.open({.method = "mxfp4"});
  EXPECT_THROW(load_values(source, "e_blocks", {2 * kRows, kGroups * 32}), Error);
}

TEST(QuantFormats, Nvfp4) {
  constexpr std::int64_t kRows = 9, kGroups = 5, kColumns = kGroups * 16;
  constexpr float kE2M1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6}, kGlobal = 0.37f;
  Random random(13);
  std::vector<std::uint8_t> values(kRows * kColumns / 2), scales(kRows * kGroups);
  for (std::uint8_t& byte : values) byte = static_cast<std::uint8_t>(random.bits());
  for (std::uint8_t& byte : scales) byte = static_cast<std::uint8_t>(random.below(0x7F));
  scales[1] = 0;     // a group of zeros
  scales[4] = 0x80;  // another one
  scales[2] = 1;     // 2^-9, a subnormal number
  scales[3] = 0x7E;  // 448
  const QuantizationConfig modelopt{.method = "modelopt", .format = "nvfp4", .bits = 4},
      packed{.method = "compressed-tensors", .format = "nvfp4-pack-quantized", .bits = 4};
  for (const QuantizationConfig& config : {modelopt, packed}) {
    const bool divides = config.method != "modelopt";
    Matrix wanted = zeros(kRows, kColumns);
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t c = 0; c < kColumns; ++c) {
        const unsigned pair = values[static_cast<std::size_t>((r * kColumns + c) / 2)],
                       code = c % 2 == 0 ? pair & 15 : pair >> 4;
        const float scale =
            float8(scales[static_cast<std::size_t>(r * kGroups + c / 16)] & 0x7F, 4);
        wanted.at(r, c) = (code & 8 ? -kE2M1[code & 7] : kE2M1[code & 7]) *
                          (divides ? scale / kGlobal : scale * kGlobal);
      }
    const auto open = [&](QuantFolder& folder, const std::vector<std::uint8_t>& of_groups,
                          float global) {
      folder.writer
          .add(divides ? "a.weight_packed" : "a.weight", "U8", {kRows, kColumns / 2}, values)
          .add("a.weight_scale", "F8_E4M3", {kRows, kGroups}, of_groups)
          .add(divides ? "a.weight_global_scale" : "a.weight_scale_2", "F32",
               divides ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{},
               std::vector{global})
          .add(divides ? "a.input_global_scale" : "a.input_scale", "F32", {1}, std::vector{7.0f});
      return folder.open(config);
    };
    QuantFolder folder;
    const WeightSource source = open(folder, scales, kGlobal);
    EXPECT_THAT(source.names(), testing::ElementsAre("a.weight"));
    expect_matrix(source, "a.weight", wanted);
    const QuantMatrix* matrix = source.find_integers("a.weight");
    ASSERT_NE(matrix, nullptr);
    QuantCodes codes;
    source.read_codes(*matrix, {.row = 2, .num_rows = 5, .column = 17, .num_columns = 40}, codes);
    EXPECT_EQ(codes.factor, divides ? 1 / kGlobal : kGlobal);
    for (std::int64_t r = 0; r < 5; ++r)
      for (std::int64_t c = 0; c < 40; ++c) {
        const auto group = static_cast<std::size_t>(codes.groups[static_cast<std::size_t>(c)]);
        ASSERT_EQ(group, static_cast<std::size_t>((17 + c) / 16));
        const unsigned code = codes.codes[static_cast<std::size_t>(r * 40 + c)];
        const float number = code & 8 ? -kE2M1[code & 7] : kE2M1[code & 7],
                    scale = codes.scales[group * 5 + static_cast<std::size_t>(r)],
                    value = number * (divides ? scale / kGlobal : scale * kGlobal);
        ASSERT_EQ(value, wanted.at(2 + r, 17 + c)) << r << ", " << c;
      }
    for (const float global :
         {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(), divides ? 1e-38f : 1e36f}) {
      QuantFolder damaged;
      EXPECT_THAT(message_of([&] { open(damaged, scales, global); }),
                  HasSubstr("a positive number whose products float32 holds"));
    }
    for (const int scale : {0x7F, 0x81}) {  // NaN, negative
      std::vector<std::uint8_t> wrong = scales;
      wrong[7] = static_cast<std::uint8_t>(scale);
      QuantFolder damaged;
      const WeightSource read = open(damaged, wrong, kGlobal);
      EXPECT_THAT(message_of([&] { load_values(read, "a.weight", {kRows, kColumns}); }),
                  HasSubstr("in row 1; a number that is not negative"));
    }
  }
}

}  // namespace
}  // namespace sluice
