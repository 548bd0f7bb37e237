#include "checkpoint/tensors/quantized_super_blocks.h"

#include <cstring>

#include "tensor/dtype.h"

namespace sluice {
namespace {

// d and d_min are float16; a sub-block has a scale s and, where it is not symmetric, a minimum m:
//   Q2_K    16 sub-blocks of 16   (d s) v - (d_min m), v of 2 bits, s and m of 4
//   Q3_K    16 of 16              (d (s - 32)) (v - 4), v of 3 bits, s of 6
//   Q4_K    8 of 32               (d s) v - (d_min m), v of 4 bits, s and m of 6
//   Q5_K    8 of 32               as Q4_K with v of 5 bits
//   Q6_K    16 of 16              (d s) (v - 32), v of 6 bits, s of 8 with a sign
//   IQ4_XS  8 of 32               (d (s - 32)) table[v], v of 4 bits, s of 6
struct BlockQ2K {
  std::uint8_t scales[16];  // s in the low nibble, m in the high one
  std::uint8_t q[64];
  F16 d, d_min;
};
struct BlockQ3K {
  std::uint8_t high[32];  // bit 2 of v
  std::uint8_t q[64];
  std::uint8_t scales[12];
  F16 d;
};
struct BlockQ4K {
  F16 d, d_min;
  std::uint8_t scales[12];
  std::uint8_t q[128];
};
struct BlockQ5K {
  F16 d, d_min;
  std::uint8_t scales[12];
  std::uint8_t high[32];  // bit 4 of v
  std::uint8_t q[128];
};
struct BlockQ6K {
  std::uint8_t low[128];
  std::uint8_t high[64];  // bits 4 and 5 of v
  std::int8_t scales[16];
  F16 d;
};
struct BlockIQ4XS {
  F16 d;
  std::uint16_t scales_high;
  std::uint8_t scales_low[4];
  std::uint8_t q[128];
};
static_assert(sizeof(BlockQ2K) == 84 && sizeof(BlockQ3K) == 110 && sizeof(BlockQ4K) == 144 &&
              sizeof(BlockQ5K) == 176 && sizeof(BlockQ6K) == 210 && sizeof(BlockIQ4XS) == 136);

// Scale and minimum of sub-block j of Q4_K and Q5_K. The first four of each use the low six bits of
// a byte. The others are split into a nibble and the two upper bits of the first four.
struct ScaleMin {
  int scale, min;
};
ScaleMin scale_min(const std::uint8_t (&s)[12], int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | (s[j - 4] >> 6) << 4, s[j + 4] >> 4 | (s[j] >> 6) << 4};
}

// Scale k of Q3_K: low nibbles first, then high nibbles, plus two further bits.
int scale_of_q3(const std::uint8_t (&s)[12], int k) {
  const int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4;
  return (low | (s[8 + k % 4] >> 2 * (k / 4) & 3) << 4) - 32;
}

void widen(const BlockQ2K& b, float* out) {
  const auto d = static_cast<float>(b.d), d_min = static_cast<float>(b.d_min);
  for (int k = 0; k < 16; ++k) {  // two halves of 128; each half has four shifts of two sub-blocks
    const float scale = d * static_cast<float>(b.scales[k] & 15),
                min = d_min * static_cast<float>(b.scales[k] >> 4);
    const std::uint8_t* q = b.q + k / 8 * 32 + k % 2 * 16;
    for (int i = 0; i < 16; ++i)
      *out++ = scale * static_cast<float>(q[i] >> k % 8 / 2 * 2 & 3) - min;
  }
}

void widen(const BlockQ3K& b, float* out) {
  const auto d = static_cast<float>(b.d);
  for (int k = 0; k < 16; ++k) {
    const float scale = d * static_cast<float>(scale_of_q3(b.scales, k));
    const std::uint8_t *q = b.q + k / 8 * 32 + k % 2 * 16, *high = b.high + k % 2 * 16;
    for (int i = 0; i < 16; ++i)
      *out++ =
          scale * static_cast<float>((q[i] >> k % 8 / 2 * 2 & 3) - (high[i] >> k / 2 & 1 ? 0 : 4));
  }
}

void widen(const BlockQ4K& b, float* out) {
  const auto d = static_cast<float>(b.d), d_min = static_cast<float>(b.d_min);
  for (int k = 0; k < 8; ++k) {
    const auto [s, m] = scale_min(b.scales, k);
    const float scale = d * static_cast<float>(s), min = d_min * static_cast<float>(m);
    for (int i = 0; i < 32; ++i)
      *out++ = scale * static_cast<float>(b.q[k / 2 * 32 + i] >> k % 2 * 4 & 15) - min;
  }
}

void widen(const BlockQ5K& b, float* out) {
  const auto d = static_cast<float>(b.d), d_min = static_cast<float>(b.d_min);
  for (int k = 0; k < 8; ++k) {
    const auto [s, m] = scale_min(b.scales, k);
    const float scale = d * static_cast<float>(s), min = d_min * static_cast<float>(m);
    for (int i = 0; i < 32; ++i)
      *out++ = scale * static_cast<float>((b.q[k / 2 * 32 + i] >> k % 2 * 4 & 15) +
                                          (b.high[i] >> k & 1) * 16) -
               min;
  }
}

void widen(const BlockQ6K& b, float* out) {
  const auto d = static_cast<float>(b.d);
  for (int k = 0; k < 16; ++k) {  // two halves of four quarters of 32
    const int half = k / 8, quarter = k % 8 / 2, at = k % 2 * 16;
    const float scale = d * static_cast<float>(b.scales[k]);
    const std::uint8_t *low = b.low + half * 64 + quarter % 2 * 32 + at,
                       *high = b.high + half * 32 + at;
    for (int i = 0; i < 16; ++i)
      *out++ =
          scale * static_cast<float>(
                      ((low[i] >> quarter / 2 * 4 & 15) | (high[i] >> quarter * 2 & 3) << 4) - 32);
  }
}

void widen(const BlockIQ4XS& b, float* out) {
  const auto d = static_cast<float>(b.d);
  for (int k = 0; k < 8; ++k) {
    const int s = (b.scales_low[k / 2] >> k % 2 * 4 & 15) | (b.scales_high >> 2 * k & 3) << 4;
    const float scale = d * static_cast<float>(s - 32);
    for (int i = 0; i < 16; ++i) {
      out[i] = scale * kIQ4Values[b.q[k * 16 + i] & 15];
      out[i + 16] = scale * kIQ4Values[b.q[k * 16 + i] >> 4];
    }
    out += 32;
  }
}

template <class Block>
void widen_all(const std::byte* blocks, std::int64_t num_blocks, float* out) {
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    Block block;
    std::memcpy(&block, blocks + i * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
    widen(block, out + i * 256);
  }
}

}  // namespace

void dequantize_q2_k(const std::byte* blocks, std::int64_t num_blocks, float* out) {
  widen_all<BlockQ2K>(blocks, num_blocks, out);
}
void dequantize_q3_k(const std::byte* blocks, std::int64_t num_blocks, float* out) {
  widen_all<BlockQ3K>(blocks, num_blocks, out);
}
void dequantize_q4_k(const std::byte* blocks, std::int64_t num_blocks, float* out) {
  widen_all<BlockQ4K>(blocks, num_blocks, out);
}
void dequantize_q5_k(const std::byte* blocks, std::int64_t num_blocks, float* out) {
  widen_all<BlockQ5K>(blocks, num_blocks, out);
}
void dequantize_q6_k(const std::byte* blocks, std::int64_t num_blocks, float* out) {
  widen_all<BlockQ6K>(blocks, num_blocks, out);
}
void dequantize_iq4_xs(const std::byte* blocks, std::int64_t num_blocks, float* out) {
  widen_all<BlockIQ4XS>(blocks, num_blocks, out);
}

}  // namespace sluice
