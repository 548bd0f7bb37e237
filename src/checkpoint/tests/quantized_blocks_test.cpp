#include "checkpoint/tensors/quantized_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "checkpoint/gguf/gguf_types.h"

namespace sluice {
namespace {

// Bit for bit: the sign of a zero counts.
void expect_bits(float seen, float wanted) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(seen), std::bit_cast<std::uint32_t>(wanted))
      << seen << " " << wanted;
}

TEST(QuantizedBlocks, EachByteOfQ80) {
  BlockQ8_0 block{F16(0.37f), {}};
  for (int first = -128; first < 128; first += 32) {
    for (int i = 0; i < 32; ++i) block.q[i] = static_cast<std::int8_t>(first + i);
    std::array<float, 32> out{};
    dequantize(block, out.data());
    for (int i = 0; i < 32; ++i)
      expect_bits(out[i], static_cast<float>(first + i) * static_cast<float>(F16(0.37f)));
  }
}

TEST(QuantizedBlocks, NibblesOfQ40LieSixteenApart) {
  BlockQ4_0 block{F16(-1.5f), {}};
  for (int i = 0; i < 16; ++i) block.q[i] = static_cast<std::uint8_t>(i | ((15 - i) << 4));
  std::array<float, 32> out{};
  dequantize(block, out.data());
  for (int i = 0; i < 16; ++i) {
    expect_bits(out[i], static_cast<float>(i - 8) * -1.5f);
    expect_bits(out[i + 16], static_cast<float>(7 - i) * -1.5f);
  }
}

// A nibble times a float16 is exact in float32. So only the sum rounds, and a fused multiply-add
// gives the same.
TEST(QuantizedBlocks, Q41RoundsOnce) {
  BlockQ4_1 block{};
  std::array<float, 32> out{};
  for (const float scale : {0.1f, 0.37f, 3.3e-4f, 1234.5f, 6e-8f})
    for (const float minimum : {-0.77f, 0.031f, -900.0f}) {
      block.d = F16(scale);
      block.m = F16(minimum);
      for (int i = 0; i < 16; ++i) block.q[i] = static_cast<std::uint8_t>(i | ((15 - i) << 4));
      dequantize(block, out.data());
      for (int i = 0; i < 16; ++i) {
        const float wanted = std::fma(static_cast<float>(i), static_cast<float>(block.d),
                                      static_cast<float>(block.m));
        expect_bits(out[i], wanted);
        expect_bits(out[31 - i], wanted);
      }
    }
}

TEST(QuantizedBlocks, ManyBlocksFromAnyAddress) {
  for (const BlockType type : {BlockType::kQ8_0, BlockType::kQ4_0, BlockType::kQ4_1}) {
    const auto bytes = static_cast<std::size_t>(block_bytes(type));
    std::vector<std::byte> raw(3 * bytes + 1);
    for (std::size_t i = 0; i < raw.size(); ++i)
      raw[i] = static_cast<std::byte>(i * 37 % 61);  // no scale is inf or NaN
    std::vector<float> together(96), single(32);
    dequantize_blocks(type, raw.data() + 1, 3, together.data());
    for (int b = 0; b < 3; ++b) {
      dequantize_blocks(type, raw.data() + 1 + b * bytes, 1, single.data());
      EXPECT_EQ(std::memcmp(single.data(), together.data() + b * 32, 128), 0)
          << block_type_name(type) << " " << b;
    }
  }
}

TEST(QuantizedBlocks, ADamagedScaleIsFound) {
  for (const GgufTensorType& type : kGgufTensorTypes) {
    if (!type.blocks) continue;
    const auto bytes = static_cast<std::size_t>(block_bytes(*type.blocks));
    std::vector<std::byte> blocks(3 * bytes, std::byte{1});
    EXPECT_EQ(first_damaged_block(*type.blocks, blocks.data(), 3), std::nullopt);
    // Infinity, or NaN of a power of two, at one place after the other.
    int found = 0;
    for (std::size_t at = 0; at < bytes; ++at) {
      std::vector<std::byte> damaged = blocks;
      damaged[bytes + at] = static_cast<std::byte>(*type.blocks == BlockType::kMxFp4 ? 0xFF : 0x7C);
      const auto bad = first_damaged_block(*type.blocks, damaged.data(), 3);
      EXPECT_EQ(bad.value_or(1), 1);
      found += bad.has_value();
    }
    const bool has_two = *type.blocks == BlockType::kQ4_1 || *type.blocks == BlockType::kQ5_1 ||
                         *type.blocks == BlockType::kQ2K || *type.blocks == BlockType::kQ4K ||
                         *type.blocks == BlockType::kQ5K;
    EXPECT_EQ(found, has_two ? 2 : 1) << block_type_name(*type.blocks);
  }
}

// Every type against the gguf package, which shares no code with this one: tests/data/gguf/make.py.
TEST(QuantizedBlocks, EveryTypeAsTheGgufPackageHasIt) {
  const auto bytes_of = [](const std::string& hex) {
    std::string out;
    for (std::size_t i = 0; i < hex.size(); i += 2)
      out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return out;
  };
  const auto text = read_text_beneath(source_dir() + "/tests/data/gguf", "blocks.json", 1 << 20);
  const Json rows = parse_json_or_throw(*text, "blocks.json");
  EXPECT_EQ(rows.size(), std::size(kGgufTensorTypes) - 3);  // all but float32, float16 and bfloat16
  for (const GgufTensorType& type : kGgufTensorTypes) {
    if (!type.blocks) continue;
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Json& r) {
      return r["type"] == block_type_name(*type.blocks);
    });
    ASSERT_NE(row, rows.end()) << block_type_name(*type.blocks);
    const std::string blocks = bytes_of((*row)["blocks"]), values = bytes_of((*row)["values"]);
    const auto count = static_cast<std::int64_t>(blocks.size()) / block_bytes(*type.blocks);
    ASSERT_EQ(count * block_bytes(*type.blocks), static_cast<std::int64_t>(blocks.size()));
    std::vector<float> wanted(values.size() / 4),
        seen(static_cast<std::size_t>(count * block_values(*type.blocks)));
    ASSERT_EQ(seen.size(), wanted.size()) << block_type_name(*type.blocks);
    std::memcpy(wanted.data(), values.data(), values.size());
    dequantize_blocks(*type.blocks, reinterpret_cast<const std::byte*>(blocks.data()), count,
                      seen.data());
    for (std::size_t i = 0; i < seen.size(); ++i)
      ASSERT_EQ(seen[i], wanted[i]) << block_type_name(*type.blocks) << " value " << i;
  }
}

}  // namespace
}  // namespace sluice
