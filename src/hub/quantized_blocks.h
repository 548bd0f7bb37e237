// Weights stored as blocks of 32 values that share a scale, and what exactly they stand for.
//
//   type   bytes  stored                        value i of 32
//   Q8_0   34     f16 d, int8 q[32]             q[i] * d
//   Q4_0   18     f16 d, uint8 q[16]            (n[i] - 8) * d
//   Q4_1   20     f16 d, f16 m, uint8 q[16]     n[i] * d + m     (the product is exact in float32, the sum rounds once)
//
// n[i] is a nibble: the low one of q[i] for i < 16, the high one of q[i - 16] otherwise. The arithmetic is float32 with
// d and m widened from float16, which is exact; so a block has one meaning on every machine. A row of a matrix is
// columns / 32 blocks without padding, and rows follow one another: [rows, columns / 32] blocks.
//
// Raw blocks of a checkpoint come from WeightSource::load_blocks (weight_source.h), in the order of rows in which
// WeightSource::load gives values. Source: ggml, `block_q8_0`, `block_q4_0`, `block_q4_1` and `dequantize_row_*`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tensor/dtype.h"

namespace sluice {

inline constexpr std::int64_t kBlockValues = 32;  // of every type below

enum class BlockType : std::uint8_t { kQ8_0, kQ4_0, kQ4_1 };

// As they lie in a file: two-byte aligned at most, little-endian.
struct BlockQ8_0 {
  F16 d;
  std::int8_t q[32];
};
struct BlockQ4_0 {
  F16 d;
  std::uint8_t q[16];
};
struct BlockQ4_1 {
  F16 d;
  F16 m;
  std::uint8_t q[16];
};
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);

std::int64_t block_bytes(BlockType type);           // of one block
std::string_view block_type_name(BlockType type);   // "Q8_0"

// Writes the 32 values of one block. Any thread.
void dequantize(const BlockQ8_0& block, float* out);
void dequantize(const BlockQ4_0& block, float* out);
void dequantize(const BlockQ4_1& block, float* out);

// Writes num_blocks x 32 values. `blocks` needs no alignment.
void dequantize_blocks(BlockType type, const std::byte* blocks, std::int64_t num_blocks, float* out);

}  // namespace sluice
