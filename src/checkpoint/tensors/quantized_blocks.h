// Weights stored as blocks of 32 or 256 values with common scales, and their exact values.
//
//   type    values  bytes  stored                               value i
//   Q8_0    32      34     f16 d, int8 q[32]                    q[i] * d
//   Q4_0    32      18     f16 d, uint8 q[16]                   (n[i] - 8) * d
//   Q4_1    32      20     f16 d, f16 m, uint8 q[16]            n[i] * d + m
//   Q5_0    32      22     f16 d, uint32 h, uint8 q[16]         (n[i] + 16 h[i] - 16) * d
//   Q5_1    32      24     f16 d, f16 m, uint32 h, uint8 q[16]  (n[i] + 16 h[i]) * d + m
//   IQ4_NL  32      18     f16 d, uint8 q[16]                   d * table[n[i]]
//   MXFP4   32      17     uint8 s, uint8 q[16]                 2^(s - 128) * doubled[n[i]]
//   Q2_K .. Q6_K, IQ4_XS: 256 values in sub-blocks with scales (quantized_super_blocks.cpp)
//
// n[i] is a nibble: the low nibble of q[i] for i < 16, the high nibble of q[i - 16] otherwise; h[i]
// is bit i. The table `doubled` has the numbers of e2m1, twice. The arithmetic is float32 in the
// order of ggml's reference. d and m are widened from float16, which is exact. With m, the
// multiplication is exact and the sum rounds once. So a block has the same values on every machine.
// A row of a matrix is columns / block_values(type) blocks without padding, and rows follow one
// another.
//
// Raw blocks of a checkpoint come from WeightSource::load_blocks (weight_source.h), in the row
// order of WeightSource::load. Source: ggml, `block_*` of ggml-common.h and `dequantize_row_*` of
// ggml-quants.c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace sluice {

// of the types that are not super-blocks
inline constexpr std::int64_t kBlockValues = 32;

enum class BlockType : std::uint8_t {
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kIQ4NL,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIQ4XS,
  kMxFp4
};

// Layout in a file: aligned to at most two bytes, little-endian.
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

std::int64_t block_values(BlockType type);  // values of one block: 32 or 256
std::int64_t block_bytes(BlockType type);
std::string_view block_type_name(BlockType type);  // "Q8_0"

// Writes the 32 values of one block. Any thread.
void dequantize(const BlockQ8_0& block, float* out);
void dequantize(const BlockQ4_0& block, float* out);
void dequantize(const BlockQ4_1& block, float* out);

// The first of num_blocks with a scale or minimum that is NaN or infinite.
std::optional<std::int64_t> first_damaged_block(BlockType type, const std::byte* blocks,
                                                std::int64_t num_blocks);

// Writes num_blocks x block_values(type) values. `blocks` needs no alignment.
void dequantize_blocks(BlockType type, const std::byte* blocks, std::int64_t num_blocks,
                       float* out);

}  // namespace sluice
