// Common parts of the quantised formats: reading rectangles of a tensor, and fields of a bit
// stream. Private to checkpoint/quantized/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/quantized/quant_formats.h"

namespace sluice {

// Throws: "the matrix NAME (awq): the tensor X is int32 [4, 4]; WANTED".
[[noreturn]] void reject_part(const QuantMatrix& matrix, const TensorInfo& part,
                              std::string_view wanted);

// A rectangle of a tensor [..., rows, columns] or [columns], read densely: rows [row, +num_rows)
// counted over all leading extents.
class PartReader {
 public:
  PartReader(const Checkpoint& checkpoint, const TensorInfo& part)
      : checkpoint_(checkpoint), part_(part) {}
  std::vector<std::byte> bytes(std::int64_t row, std::int64_t num_rows, std::int64_t column,
                               std::int64_t num_columns) const;
  // As float32, from float32, bfloat16, float16 or (uint8) e8m0.
  std::vector<float> floats(std::int64_t row, std::int64_t num_rows, std::int64_t column,
                            std::int64_t num_columns) const;
  std::vector<std::uint32_t> words(std::int64_t row, std::int64_t num_rows, std::int64_t column,
                                   std::int64_t num_columns) const;

 private:
  const Checkpoint& checkpoint_;
  const TensorInfo& part_;
};

// The number of each nibble as e2m1.
inline constexpr float kE2M1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// 2^(byte - 127), a number of e8m0; 255 is NaN. The smallest one is subnormal.
float e8m0_value(unsigned byte);

// require_scale() of some scales of a matrix.
void require_scales(const QuantMatrix& matrix, std::span<const float> scales);

// Field i of `bits` bits, lowest first, in words with a distance of `stride`; 1 <= bits <= 8. A
// field may cross into the next word.
inline std::uint32_t bit_field(const std::uint32_t* words, std::int64_t stride, std::int64_t i,
                               int bits) {
  const std::int64_t at = i * bits;
  const int shift = static_cast<int>(at & 31);
  const std::uint32_t* word = words + (at >> 5) * stride;
  std::uint32_t value = *word >> shift;
  if (shift + bits > 32) value |= word[stride] << (32 - shift);
  return value & ((1u << bits) - 1);
}

// The words that hold the fields [first, first + count).
struct WordRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};
inline WordRange words_of(std::int64_t first, std::int64_t count, int bits) {
  const std::int64_t begin = first * bits / 32, end = ((first + count) * bits + 31) / 32;
  return {begin, end - begin};
}

void bind_scaled(const QuantizationConfig& config, QuantMatrix& matrix);
void widen_scaled(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                  float* out);
void codes_of_bytes(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                    QuantCodes& out);
void bind_packed(const QuantizationConfig& config, QuantMatrix& matrix);
void codes_of_packed(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                     QuantCodes& out);
void bind_awq(const QuantizationConfig& config, QuantMatrix& matrix);
void codes_of_awq(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                  QuantCodes& out);
void bind_gptq(const QuantizationConfig& config, QuantMatrix& matrix);
void codes_of_gptq(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                   QuantCodes& out);
// By the format's `codes`.
void widen_codes(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                 float* out);
void bind_mxfp4(const QuantizationConfig& config, QuantMatrix& matrix);
void widen_mxfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                 float* out);
void codes_of_mxfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                    QuantCodes& out);
void check_scales_of_mxfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix,
                           const QuantTile& tile);
void bind_nvfp4(const QuantizationConfig& config, QuantMatrix& matrix);
void widen_nvfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                 float* out);
void codes_of_nvfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                    QuantCodes& out);
void check_scales_of_nvfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix,
                           const QuantTile& tile);

}  // namespace sluice
