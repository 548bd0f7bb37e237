// Reference for tests and `sluice doctor`: blocks of GGUF files and their dot products as
// kernels/cpu/gemm/super_layout.h defines them, in plain loops over single weights. Shares no code
// with the kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "kernels/types/quantize_model.h"
#include "kernels/types/super_formats.h"

namespace sluice::ops::testing {

// Every type of blocks, as a file names it.
struct BlockKind {
  Format format;
  const char* name;
};
inline constexpr BlockKind kBlockKinds[] = {
    {kQ2K, "Q2_K"},     {kQ3K, "Q3_K"},           {kQ4K, "Q4_K"}, {kQ5K, "Q5_K"},
    {kQ6K, "Q6_K"},     {kIQ4XS, "IQ4_XS"},       {kQ50, "Q5_0"}, {kQ51, "Q5_1"},
    {kIQ4NL, "IQ4_NL"}, {Format::kMxFp4, "MXFP4"}};

// Rows of blocks as a file has them. Source: ggml, `block_q*`, `block_iq4_*` and `block_mxfp4` of
// ggml-common.h.
struct SuperBlockMatrix {
  Format format;
  std::int64_t rows, columns;
  std::vector<std::uint8_t> bytes;  // [rows, columns / block_columns() * block_bytes()]

  SuperBlockMatrix(Format kind, std::int64_t num_rows, std::int64_t num_columns)
      : format(kind),
        rows(num_rows),
        columns(num_columns),
        bytes(static_cast<std::size_t>(num_rows * row_bytes())) {}

  std::int64_t block_columns() const { return is_of_32() ? 32 : 256; }
  bool is_of_32() const {
    return format == kQ50 || format == kQ51 || format == kIQ4NL || format == Format::kMxFp4;
  }
  bool has_table() const {
    return format == kIQ4XS || format == kIQ4NL || format == Format::kMxFp4;
  }
  std::int64_t block_bytes() const {
    if (format == kQ2K) return 84;
    if (format == kQ3K) return 110;
    if (format == kQ4K) return 144;
    if (format == kQ5K) return 176;
    if (format == kQ6K) return 210;
    if (format == kIQ4XS) return 136;
    if (format == kQ50) return 22;
    if (format == kQ51) return 24;
    return format == kIQ4NL ? 18 : 17;
  }
  std::int64_t row_bytes() const { return columns / block_columns() * block_bytes(); }
  bool has_minima() const { return format == kQ2K || format == kQ4K || format == kQ5K; }
  // Columns that share a scale.
  std::int64_t sub_columns() const {
    return format == kQ2K || format == kQ3K || format == kQ6K ? 16 : 32;
  }
  int offset() const { return format == kQ3K ? 4 : format == kQ50 ? 16 : format == kQ6K ? 32 : 0; }

  // Random bytes, with d and d_min of about `scale`.
  static SuperBlockMatrix random(Format kind, std::int64_t rows, std::int64_t columns,
                                 unsigned seed, float scale = 0.01f) {
    SuperBlockMatrix out(kind, rows, columns);
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> byte(0, 255);
    std::uniform_real_distribution<float> number(-scale, scale);
    for (std::uint8_t& value : out.bytes) value = static_cast<std::uint8_t>(byte(random));
    for (std::size_t at = 0; at < out.bytes.size();
         at += static_cast<std::size_t>(out.block_bytes())) {
      // Powers of two about `scale`.
      if (kind == Format::kMxFp4)
        out.bytes[at] = static_cast<std::uint8_t>(128 + std::ilogb(scale) - byte(random) % 5);
      for (const std::size_t half : out.halves()) {
        const F16 d(number(random));
        out.bytes[at + half] = static_cast<std::uint8_t>(d.bits & 255);
        out.bytes[at + half + 1] = static_cast<std::uint8_t>(d.bits >> 8);
      }
    }
    return out;
  }

  // Places of the float16 numbers of a block: d, then d_min or m.
  std::vector<std::size_t> halves() const {
    if (format == kQ2K) return {80, 82};
    if (format == kQ3K) return {108};
    if (format == kQ6K) return {208};
    if (format == kQ4K || format == kQ5K || format == kQ51) return {0, 2};
    return format == Format::kMxFp4 ? std::vector<std::size_t>{} : std::vector<std::size_t>{0};
  }
  const std::uint8_t* block(std::int64_t n, std::int64_t k) const {
    return bytes.data() + n * row_bytes() + k / block_columns() * block_bytes();
  }
  float half(std::int64_t n, std::int64_t k, std::size_t which) const {
    const std::uint8_t* at = block(n, k) + halves()[which];
    F16 value;
    value.bits = static_cast<std::uint16_t>(at[0] + 256 * at[1]);
    return static_cast<float>(value);
  }
  // Of MXFP4 half of the scale, as its numbers are counted in halves.
  float d(std::int64_t n, std::int64_t k) const {
    return format == Format::kMxFp4 ? static_cast<float>(std::pow(2.0, *block(n, k) - 128))
                                    : half(n, k, 0);
  }
  float d_min(std::int64_t n, std::int64_t k) const { return has_minima() ? half(n, k, 1) : 0; }
  // m of Q5_1, which is added as it is.
  float addend(std::int64_t n, std::int64_t k) const { return format == kQ51 ? half(n, k, 1) : 0; }

  // u of one weight.
  int level(std::int64_t n, std::int64_t k) const {
    const std::uint8_t* b = block(n, k);
    const int i = static_cast<int>(k % block_columns()), of_32 = i % 32, group = i / 32;
    const auto pair = [&](const std::uint8_t* q) {  // two bits, four groups in a byte
      return q[group / 4 * 32 + of_32] >> (2 * (group % 4)) & 3;
    };
    const auto nibble = [&](const std::uint8_t* q) {  // two groups in a byte
      return group % 2 == 0 ? q[group / 2 * 32 + of_32] & 15 : q[group / 2 * 32 + of_32] >> 4;
    };
    const auto own = [&](const std::uint8_t* q) {  // two halves of a group in a byte
      return of_32 < 16 ? q[group * 16 + of_32] & 15 : q[group * 16 + of_32 - 16] >> 4;
    };
    if (format == kQ2K) return pair(b + 16);
    if (format == kQ3K) return pair(b + 32) + 4 * (b[of_32] >> group & 1);
    if (format == kQ4K) return nibble(b + 16);
    if (format == kQ5K) return nibble(b + 48) + 16 * (b[16 + of_32] >> group & 1);
    if (format == kIQ4XS) return own(b + 8);
    if (format == kIQ4NL) return own(b + 2);
    if (format == Format::kMxFp4) return own(b + 1);
    if (format == kQ50) return own(b + 6) + 16 * (b[2 + i / 8] >> (i % 8) & 1);
    if (format == kQ51) return own(b + 8) + 16 * (b[4 + i / 8] >> (i % 8) & 1);
    // A half of 128 has four groups: low nibbles of two rows of 32 bytes, then high ones.
    const std::uint8_t *low = b + group / 4 * 64 + group % 2 * 32, *high = b + 128 + group / 4 * 32;
    const int four = group % 4 < 2 ? low[of_32] & 15 : low[of_32] >> 4;
    return four + 16 * (high[of_32] >> (2 * (group % 4)) & 3);
  }

  // The integer of a weight.
  int integer(std::int64_t n, std::int64_t k) const {
    constexpr int kIQ4[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                            1,    13,   25,  38,  53,  69,  89,  113};
    constexpr int kHalves[] = {0, 1, 2, 3, 4, 6, 8, 12};
    const int u = level(n, k);
    if (format == Format::kMxFp4) return u < 8 ? kHalves[u] : -kHalves[u - 8];
    return has_table() ? kIQ4[u] : u - offset();
  }

  // Scale and minimum of the sub-block of column k.
  int scale(std::int64_t n, std::int64_t k) const { return scale_or_min(n, k, false); }
  int minimum(std::int64_t n, std::int64_t k) const { return scale_or_min(n, k, true); }

  float value(std::int64_t n, std::int64_t k) const {
    if (is_of_32()) {
      const float product = d(n, k) * static_cast<float>(integer(n, k));
      return format == kQ51 ? product + addend(n, k) : product;
    }
    const float product =
        d(n, k) * static_cast<float>(scale(n, k)) * static_cast<float>(integer(n, k));
    return has_minima() ? product - d_min(n, k) * static_cast<float>(minimum(n, k)) : product;
  }

  // x . w[n], without bias.
  float product(const float* x, std::int64_t n) const {
    const ModelRow row(x, columns, 32);
    const auto sums = [&](std::int64_t begin, std::int64_t count) {
      long dot = 0, total = 0;
      for (std::int64_t k = begin; k < begin + count; ++k) {
        const int q = row.q[static_cast<std::size_t>(k)];
        dot += static_cast<long>(integer(n, k)) * q;
        total += q;
      }
      return std::pair(dot, static_cast<float>(total));
    };
    const auto scale_of_x = [&](std::int64_t k) {
      return row.scales[static_cast<std::size_t>(k / 32)];
    };
    float acc = 0;
    for (std::int64_t b = 0; b < columns; b += block_columns()) {
      if (is_of_32()) {
        const auto [dot, total] = sums(b, 32);
        acc = std::fma(static_cast<float>(dot) * scale_of_x(b), d(n, b), acc);
        if (format == kQ51) acc = std::fma(scale_of_x(b) * total, addend(n, b), acc);
        continue;
      }
      float scaled = 0, lowered = 0;
      for (std::int64_t g = b; g < b + 256; g += 32) {
        const float e = scale_of_x(g);
        long sum = 0;
        for (std::int64_t s = g; s < g + 32; s += sub_columns()) {
          const auto [dot, total] = sums(s, sub_columns());
          sum += scale(n, s) * dot;
          if (has_minima())
            lowered = std::fma(static_cast<float>(minimum(n, s)), e * total, lowered);
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
    const int j = static_cast<int>(k % block_columns() / sub_columns());
    if (is_of_32()) return 1;
    if (format == kQ2K) return is_min ? b[j] >> 4 : b[j] & 15;
    if (format == kQ3K) {
      const int low = j < 8 ? b[96 + j] & 15 : b[96 + j - 8] >> 4;
      return low + 16 * (b[104 + j % 4] >> (2 * (j / 4)) & 3) - 32;
    }
    if (format == kIQ4XS) {
      const int low = j % 2 == 0 ? b[4 + j / 2] & 15 : b[4 + j / 2] >> 4;
      return low + 16 * ((b[2] + 256 * b[3]) >> (2 * j) & 3) - 32;
    }
    if (format == kQ6K) return static_cast<std::int8_t>(b[192 + j]);
    const std::uint8_t* s = b + 4;
    if (j < 4) return s[is_min ? j + 4 : j] & 63;
    const int low = is_min ? s[j + 4] >> 4 : s[j + 4] & 15;
    return low + 16 * (s[is_min ? j : j - 4] >> 6);
  }
};

}  // namespace sluice::ops::testing
