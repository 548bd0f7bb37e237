#include "kernels/cpu/gemm/quant_rows.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace sluice::cpu {
namespace {

constexpr float kMaxByte = 127.0f;

// Nearest integer, ties to even: adding 1.5 * 2^23 leaves it in the low mantissa bits. |v| < 2^22.
inline std::int32_t nearest(float v) {
  constexpr float kMagic = 12582912.0f;
  return std::bit_cast<std::int32_t>(v + kMagic) - std::bit_cast<std::int32_t>(kMagic);
}

// Bits of the largest magnitude. As integers, magnitudes keep their order, with infinity and NaN on
// top.
inline std::uint32_t largest_bits(const float* x, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFu);
  return largest;
}

constexpr std::uint32_t kInfinityBits = 0x7F800000u;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// 32 floats at a time. The results equal those of the scalar code, since maximum and integer sum do
// not depend on the order.
struct Thirty2 {
  static constexpr std::int64_t kCount = 32;

  static __m256i largest(const float* x, __m256i so_far) {
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    for (int i = 0; i < 4; ++i)
      so_far = _mm256_max_epu32(
          so_far, _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 8 * i)),
                                   magnitude));
    return so_far;
  }
  // Writes 32 bytes and adds them to the sums. The conversion uses the thread's rounding mode,
  // which is nearest even.
  static __m256i quantize(const float* x, __m256 factor, std::int8_t* q, __m256i sums) {
    __m256i v[4];
    for (int i = 0; i < 4; ++i)
      v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), factor));
    // vpacks works within 128-bit halves, so a permutation restores the order of the bytes.
    const __m256i low = _mm256_packs_epi32(v[0], v[1]), high = _mm256_packs_epi32(v[2], v[3]);
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                                      _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
    // Horizontal sums: bytes to 16-bit pairs to 32-bit lanes, by multiplying with ones.
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
};

}  // namespace

Bytes quantize_bytes(const float* x, std::int64_t count, std::int8_t* q) {
  const std::int64_t whole = count / Thirty2::kCount * Thirty2::kCount;
  __m256i magnitudes = _mm256_setzero_si256();
  for (std::int64_t i = 0; i < whole; i += Thirty2::kCount)
    magnitudes = Thirty2::largest(x + i, magnitudes);
  // Reduce eight lanes to one.
  __m128i four =
      _mm_max_epu32(_mm256_castsi256_si128(magnitudes), _mm256_extracti128_si256(magnitudes, 1));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4E));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xB1));
  const std::uint32_t bits = std::max(static_cast<std::uint32_t>(_mm_cvtsi128_si32(four)),
                                      largest_bits(x + whole, count - whole));
  const auto largest = std::bit_cast<float>(bits);
  const float scale = largest / kMaxByte;
  if (bits >= kInfinityBits || scale < std::numeric_limits<float>::min()) {
    std::memset(q, 0, static_cast<std::size_t>(count));
    return {bits >= kInfinityBits ? kNaN : 0.0f, 0};
  }
  const float factor = kMaxByte / largest;
  __m256i sums = _mm256_setzero_si256();
  for (std::int64_t i = 0; i < whole; i += Thirty2::kCount)
    sums = Thirty2::quantize(x + i, _mm256_set1_ps(factor), q + i, sums);
  four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
  std::int32_t sum = _mm_cvtsi128_si32(four);
  for (std::int64_t i = whole; i < count; ++i) {
    const std::int32_t value = nearest(x[i] * factor);
    q[i] = static_cast<std::int8_t>(value);
    sum += value;
  }
  return {scale, sum};
}

void quantize_columns(QuantKind kind, const QuantLayout& layout, const float* x, std::int64_t first,
                      std::int64_t last, std::byte* out) {
  auto* q = reinterpret_cast<std::int8_t*>(out);
  for (std::int64_t column = first; column < last; column += layout.group) {
    const std::int64_t g = column / layout.group;
    std::int8_t* to = q + column;
    const std::int64_t count = std::min(layout.group, last - column);
    const Bytes bytes = quantize_bytes(x + column - first, count, to);
    if (count < layout.group)
      std::memset(to + count, 0, static_cast<std::size_t>(layout.group - count));
    const XGroup info = {
        bytes.scale, kind == QuantKind::kInt4Min
                         ? std::bit_cast<std::int32_t>(bytes.scale * static_cast<float>(bytes.sum))
                         : -layout.traits.offset * bytes.sum};
    std::memcpy(out + layout.x_group_at() + g * static_cast<std::int64_t>(sizeof info), &info,
                sizeof info);
  }
}

// Group scale from the largest magnitude. An int4 group maps its largest weight to -8, the end of
// the range with one level more.
F16 quantize_group(QuantKind kind, const float* w, std::int64_t count, std::uint8_t* u) {
  check(kind != QuantKind::kInt4Min, "weights are not quantised to 4 bits with a minimum here");
  const int offset = quant_traits(kind).offset;
  const std::uint32_t bits = largest_bits(w, count);
  const auto largest = std::bit_cast<float>(bits);
  std::fill_n(u, std::max<std::int64_t>(count, 0), static_cast<std::uint8_t>(offset));
  if (bits >= kInfinityBits) return F16(kNaN);
  float exact = largest / kMaxByte;
  if (kind == QuantKind::kInt4) {
    std::int64_t at = 0;
    while (at + 1 < count && std::abs(w[at]) != largest) ++at;
    exact = (count > 0 ? w[at] : 0.0f) / -8.0f;
  }
  const F16 scale(exact);
  const auto d = static_cast<float>(scale);
  require(std::isfinite(d),
          "a weight of {} cannot be quantised: scales are float16, up to 65504, so weights may be "
          "up to {}; load the "
          "model without --quantization",
          largest, kind == QuantKind::kInt4 ? 65504.0f * 8 : 65504.0f * kMaxByte);
  if (d == 0.0f) return scale;
  const float low = kind == QuantKind::kInt4 ? -8.0f : -kMaxByte,
              high = kind == QuantKind::kInt4 ? 7.0f : kMaxByte;
  for (std::int64_t i = 0; i < count; ++i)
    u[i] = static_cast<std::uint8_t>(nearest(std::min(high, std::max(low, w[i] / d))) + offset);
  return scale;
}

}  // namespace sluice::cpu
