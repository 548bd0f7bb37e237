#include "hub/quantized_blocks.h"

#include <cstring>

#include "base/error.h"

namespace sluice {
namespace {

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
  std::int64_t bytes;
  void (*dequantize)(const std::byte*, std::int64_t, float*);
};
constexpr Row kRows[] = {{BlockType::kQ8_0, "Q8_0", sizeof(BlockQ8_0), dequantize_all<BlockQ8_0>},
                         {BlockType::kQ4_0, "Q4_0", sizeof(BlockQ4_0), dequantize_all<BlockQ4_0>},
                         {BlockType::kQ4_1, "Q4_1", sizeof(BlockQ4_1), dequantize_all<BlockQ4_1>}};

const Row& row_of(BlockType type) {
  for (const Row& row : kRows)
    if (row.type == type) return row;
  fail(ErrorKind::kBug, "block type {} has no row", static_cast<int>(type));
}

}  // namespace

std::int64_t block_bytes(BlockType type) {
  return row_of(type).bytes;
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

void dequantize_blocks(BlockType type, const std::byte* blocks, std::int64_t num_blocks, float* out) {
  row_of(type).dequantize(blocks, num_blocks, out);
}

}  // namespace sluice
