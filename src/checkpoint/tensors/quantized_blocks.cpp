#include "checkpoint/tensors/quantized_blocks.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "checkpoint/tensors/quantized_super_blocks.h"

namespace sluice {
namespace {

struct BlockQ5_0 {
  F16 d;
  std::uint8_t h[4];
  std::uint8_t q[16];
};
struct BlockQ5_1 {
  F16 d, m;
  std::uint8_t h[4];
  std::uint8_t q[16];
};
struct BlockIQ4NL {
  F16 d;
  std::uint8_t q[16];
};
struct BlockMxFp4 {
  std::uint8_t s;
  std::uint8_t q[16];
};
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockIQ4NL) == 18 &&
              sizeof(BlockMxFp4) == 17);

// Nibbles with a fifth bit from h.
template <class Block>
void fifth_bit(const Block& block, int (&n)[32]) {
  std::uint32_t h;
  std::memcpy(&h, block.h, sizeof(h));
  for (int i = 0; i < 16; ++i) {
    n[i] = (block.q[i] & 15) | static_cast<int>(h >> i & 1) << 4;
    n[i + 16] = block.q[i] >> 4 | static_cast<int>(h >> (i + 16) & 1) << 4;
  }
}

void dequantize(const BlockQ5_0& block, float* out) {
  const auto d = static_cast<float>(block.d);
  int n[32];
  fifth_bit(block, n);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(n[i] - 16) * d;
}

void dequantize(const BlockQ5_1& block, float* out) {
  const auto d = static_cast<float>(block.d);
  const auto m = static_cast<float>(block.m);
  int n[32];
  fifth_bit(block, n);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(n[i]) * d + m;
}

void dequantize(const BlockIQ4NL& block, float* out) {
  const auto d = static_cast<float>(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * kIQ4Values[block.q[i] & 15];
    out[i + 16] = d * kIQ4Values[block.q[i] >> 4];
  }
}

void dequantize(const BlockMxFp4& block, float* out) {
  constexpr int kDoubled[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const float d = std::ldexp(1.0f, block.s - 128);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kDoubled[block.q[i] & 15]);
    out[i + 16] = d * static_cast<float>(kDoubled[block.q[i] >> 4]);
  }
}

template <class Block>
void dequantize_all(const std::byte* blocks, std::int64_t num_blocks, float* out) {
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    Block block;
    std::memcpy(&block, blocks + i * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
    dequantize(block, out + i * kBlockValues);
  }
}

struct Row {
  BlockType type;
  std::string_view name;
  std::int64_t values;
  std::int64_t bytes;
  void (*dequantize)(const std::byte*, std::int64_t, float*);
  std::array<int, 2> halves = {0, 0};  // places of float16 numbers in a block; -1: a byte of e8m0
};
constexpr Row kRows[] = {
    {BlockType::kQ8_0, "Q8_0", 32, sizeof(BlockQ8_0), dequantize_all<BlockQ8_0>},
    {BlockType::kQ4_0, "Q4_0", 32, sizeof(BlockQ4_0), dequantize_all<BlockQ4_0>},
    {BlockType::kQ4_1, "Q4_1", 32, sizeof(BlockQ4_1), dequantize_all<BlockQ4_1>, {0, 2}},
    {BlockType::kQ5_0, "Q5_0", 32, sizeof(BlockQ5_0), dequantize_all<BlockQ5_0>},
    {BlockType::kQ5_1, "Q5_1", 32, sizeof(BlockQ5_1), dequantize_all<BlockQ5_1>, {0, 2}},
    {BlockType::kIQ4NL, "IQ4_NL", 32, sizeof(BlockIQ4NL), dequantize_all<BlockIQ4NL>},
    {BlockType::kQ2K, "Q2_K", 256, 84, dequantize_q2_k, {80, 82}},
    {BlockType::kQ3K, "Q3_K", 256, 110, dequantize_q3_k, {108, 108}},
    {BlockType::kQ4K, "Q4_K", 256, 144, dequantize_q4_k, {0, 2}},
    {BlockType::kQ5K, "Q5_K", 256, 176, dequantize_q5_k, {0, 2}},
    {BlockType::kQ6K, "Q6_K", 256, 210, dequantize_q6_k, {208, 208}},
    {BlockType::kIQ4XS, "IQ4_XS", 256, 136, dequantize_iq4_xs},
    {BlockType::kMxFp4, "MXFP4", 32, sizeof(BlockMxFp4), dequantize_all<BlockMxFp4>, {-1, -1}}};

const Row& row_of(BlockType type) {
  for (const Row& row : kRows)
    if (row.type == type) return row;
  fail(ErrorKind::kBug, "block type {} has no row", static_cast<int>(type));
}

}  // namespace

std::int64_t block_values(BlockType type) {
  return row_of(type).values;
}

std::int64_t block_bytes(BlockType type) {
  return row_of(type).bytes;
}

std::optional<std::int64_t> first_damaged_block(BlockType type, const std::byte* blocks,
                                                std::int64_t num_blocks) {
  const Row& row = row_of(type);
  constexpr unsigned kExponent = 0x7C00;  // of float16: all bits set if it is NaN or infinite
  for (std::int64_t i = 0; i < num_blocks; ++i, blocks += row.bytes)
    for (const int at : row.halves) {
      const bool is_byte = at < 0;
      const unsigned low = std::to_integer<unsigned>(blocks[is_byte ? 0 : at]),
                     high = is_byte ? 0 : std::to_integer<unsigned>(blocks[at + 1]);
      if (is_byte ? low == 0xFF : ((high << 8 | low) & kExponent) == kExponent) return i;
    }
  return std::nullopt;
}

std::string_view block_type_name(BlockType type) {
  return row_of(type).name;
}

void dequantize(const BlockQ8_0& block, float* out) {
  const auto d = static_cast<float>(block.d);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(block.q[i]) * d;
}

void dequantize(const BlockQ4_0& block, float* out) {
  const auto d = static_cast<float>(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>((block.q[i] & 15) - 8) * d;
    out[i + 16] = static_cast<float>((block.q[i] >> 4) - 8) * d;
  }
}

void dequantize(const BlockQ4_1& block, float* out) {
  const auto d = static_cast<float>(block.d);
  const auto m = static_cast<float>(block.m);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(block.q[i] & 15) * d + m;
    out[i + 16] = static_cast<float>(block.q[i] >> 4) * d + m;
  }
}

void dequantize_blocks(BlockType type, const std::byte* blocks, std::int64_t num_blocks,
                       float* out) {
  row_of(type).dequantize(blocks, num_blocks, out);
}

}  // namespace sluice
