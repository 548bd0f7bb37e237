// Reference for tests and `sluice doctor`: super-blocks of GGUF files and their dot products as
// kernels/cpu/gemm/super_layout.h defines them, in plain loops over single weights. Shares no code
// with the kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/types/quantize_model.h"
#include "kernels/types/super_formats.h"

namespace sluice::ops::testing {

// Rows of super-blocks as a file has them. Source: ggml, `block_q*_K` of ggml-common.h.
struct SuperBlockMatrix {
  Format format;
  std::int64_t rows, columns;
  std::vector<std::uint8_t> bytes;  // [rows, columns / 256 * block_bytes()]

  SuperBlockMatrix(Format kind, std::int64_t num_rows, std::int64_t num_columns)
      : format(kind),
        rows(num_rows),
        columns(num_columns),
        bytes(static_cast<std::size_t>(num_rows * row_bytes())) {}

  // Of a weight: 2 to 6.
  int bits() const { return static_cast<int>(format) - kFirstSuperFormat + 2; }
  std::int64_t block_bytes() const {
    switch (bits()) {
      case 2:
        return 84;
      case 3:
        return 110;
      case 4:
        return 144;
      case 5:
        return 176;
      default:
        return 210;
    }
  }
  std::int64_t row_bytes() const { return columns / 256 * block_bytes(); }
  bool has_minima() const { return format == kQ2K || format == kQ4K || format == kQ5K; }
  // Columns that share a scale.
  std::int64_t sub_columns() const { return format == kQ4K || format == kQ5K ? 32 : 16; }
  int offset() const { return format == kQ3K ? 4 : format == kQ6K ? 32 : 0; }

  // Random bytes, with d and d_min of about `scale`.
  static SuperBlockMatrix random(Format kind, std::int64_t rows, std::int64_t columns,
                                 unsigned seed, float scale = 0.01f) {
    SuperBlockMatrix out(kind, rows, columns);
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> byte(0, 255);
    std::uniform_real_distribution<float> number(-scale, scale);
    for (std::uint8_t& value : out.bytes) value = static_cast<std::uint8_t>(byte(random));
    for (std::size_t at = 0; at < out.bytes.size();
         at += static_cast<std::size_t>(out.block_bytes()))
      for (const std::size_t half : out.halves()) {
        const F16 d(number(random));
        out.bytes[at + half] = static_cast<std::uint8_t>(d.bits & 255);
        out.bytes[at + half + 1] = static_cast<std::uint8_t>(d.bits >> 8);
      }
    return out;
  }

  // Places of d and d_min in a block.
  std::vector<std::size_t> halves() const {
    switch (bits()) {
      case 2:
        return {80, 82};
      case 3:
        return {108};
      case 6:
        return {208};
      default:
        return {0, 2};
    }
  }
  const std::uint8_t* block(std::int64_t n, std::int64_t k) const {
    return bytes.data() + n * row_bytes() + k / 256 * block_bytes();
  }
  float half(std::int64_t n, std::int64_t k, std::size_t which) const {
    const std::uint8_t* at = block(n, k) + halves()[which];
    F16 value;
    value.bits = static_cast<std::uint16_t>(at[0] + 256 * at[1]);
    return static_cast<float>(value);
  }
  float d(std::int64_t n, std::int64_t k) const { return half(n, k, 0); }
  float d_min(std::int64_t n, std::int64_t k) const { return has_minima() ? half(n, k, 1) : 0; }

  // u of one weight.
  int level(std::int64_t n, std::int64_t k) const {
    const std::uint8_t* b = block(n, k);
    const int i = static_cast<int>(k % 256), of_32 = i % 32, group = i / 32;
    const auto pair = [&](const std::uint8_t* q) {  // two bits, four groups in a byte
      return q[group / 4 * 32 + of_32] >> (2 * (group % 4)) & 3;
    };
    const auto nibble = [&](const std::uint8_t* q) {  // two groups in a byte
      return group % 2 == 0 ? q[group / 2 * 32 + of_32] & 15 : q[group / 2 * 32 + of_32] >> 4;
    };
    switch (bits()) {
      case 2:
        return pair(b + 16);
      case 3:
        return pair(b + 32) + 4 * (b[of_32] >> group & 1);
      case 4:
        return nibble(b + 16);
      case 5:
        return nibble(b + 48) + 16 * (b[16 + of_32] >> group & 1);
      default: {
        // A half of 128 has four groups: low nibbles of two rows of 32 bytes, then high ones.
        const std::uint8_t *low = b + group / 4 * 64 + group % 2 * 32,
                           *high = b + 128 + group / 4 * 32;
        const int four = group % 4 < 2 ? low[of_32] & 15 : low[of_32] >> 4;
        return four + 16 * (high[of_32] >> (2 * (group % 4)) & 3);
      }
    }
  }

  // Scale and minimum of the sub-block of column k.
  int scale(std::int64_t n, std::int64_t k) const { return scale_or_min(n, k, false); }
  int minimum(std::int64_t n, std::int64_t k) const { return scale_or_min(n, k, true); }

  float value(std::int64_t n, std::int64_t k) const {
    const float product =
        d(n, k) * static_cast<float>(scale(n, k)) * static_cast<float>(level(n, k) - offset());
    return has_minima() ? product - d_min(n, k) * static_cast<float>(minimum(n, k)) : product;
  }

  // x . w[n], without bias.
  float product(const float* x, std::int64_t n) const {
    const ModelRow row(x, columns, 32);
    float acc = 0;
    for (std::int64_t b = 0; b < columns; b += 256) {
      float scaled = 0, lowered = 0;
      for (std::int64_t g = b; g < b + 256; g += 32) {
        const float e = row.scales[static_cast<std::size_t>(g / 32)];
        long sum = 0;
        for (std::int64_t s = g; s < g + 32; s += sub_columns()) {
          long dot = 0, total = 0;
          for (std::int64_t k = s; k < s + sub_columns(); ++k) {
            const int q = row.q[static_cast<std::size_t>(k)];
            dot += static_cast<long>(level(n, k) - offset()) * q;
            total += q;
          }
          sum += scale(n, s) * dot;
          if (has_minima())
            lowered =
                std::fma(static_cast<float>(minimum(n, s)), e * static_cast<float>(total), lowered);
        }
        scaled = std::fma(static_cast<float>(sum), e, scaled);
      }
      acc = std::fma(scaled, d(n, b), acc);
      if (has_minima()) acc = std::fma(-lowered, d_min(n, b), acc);
    }
    return acc;
  }

 private:
  int scale_or_min(std::int64_t n, std::int64_t k, bool is_min) const {
    const std::uint8_t* b = block(n, k);
    const int j = static_cast<int>(k % 256 / sub_columns());
    switch (bits()) {
      case 2:
        return is_min ? b[j] >> 4 : b[j] & 15;
      case 3: {
        const int low = j < 8 ? b[96 + j] & 15 : b[96 + j - 8] >> 4;
        return low + 16 * (b[104 + j % 4] >> (2 * (j / 4)) & 3) - 32;
      }
      case 4:
      case 5: {
        const std::uint8_t* s = b + 4;
        if (j < 4) return s[is_min ? j + 4 : j] & 63;
        const int low = is_min ? s[j + 4] >> 4 : s[j + 4] & 15;
        return low + 16 * (s[is_min ? j : j - 4] >> 6);
      }
      default:
        return static_cast<std::int8_t>(b[192 + j]);
    }
  }
};

}  // namespace sluice::ops::testing
