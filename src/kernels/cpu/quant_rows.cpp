#include "kernels/cpu/quant_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace sluice::cpu {
namespace {

constexpr float kMaxByte = 127.0f;

// Adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits; |v| < 2^22.
inline std::int32_t nearest(float v) {
  constexpr float kMagic = 12582912.0f;
  return std::bit_cast<std::int32_t>(v + kMagic) - std::bit_cast<std::int32_t>(kMagic);
}

// The bits of the largest magnitude: as integers, magnitudes keep their order, and NaN and infinity come out on top.
inline std::uint32_t largest_bits(const float* x, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFu);
  return largest;
}

constexpr std::uint32_t kInfinityBits = 0x7F800000u;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace

Bytes quantize_bytes(const float* x, std::int64_t count, std::int8_t* q) {
  const std::uint32_t bits = largest_bits(x, count);
  const auto largest = std::bit_cast<float>(bits);
  const float scale = largest / kMaxByte;
  if (bits >= kInfinityBits || scale < std::numeric_limits<float>::min()) {
    std::memset(q, 0, static_cast<std::size_t>(count));
    return {bits >= kInfinityBits ? kNaN : 0.0f, 0};
  }
  const float factor = kMaxByte / largest;
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t value = nearest(x[i] * factor);
    q[i] = static_cast<std::int8_t>(value);
    sum += value;
  }
  return {scale, sum};
}

void quantize_row(QuantKind kind, const QuantLayout& layout, std::int64_t columns, const float* x, std::byte* out) {
  auto* q = reinterpret_cast<std::int8_t*>(out);
  for (std::int64_t g = 0; g < layout.groups; ++g) {
    std::int8_t* to = q + g * layout.group;
    const std::int64_t count = std::min(layout.group, columns - g * layout.group);
    const Bytes bytes = quantize_bytes(x + g * layout.group, count, to);
    std::memset(to + count, 0, static_cast<std::size_t>(layout.group - count));
    const XGroup facts = {bytes.scale, kind == QuantKind::kInt4Min
                                           ? std::bit_cast<std::int32_t>(bytes.scale * static_cast<float>(bytes.sum))
                                           : -layout.traits.offset * bytes.sum};
    std::memcpy(out + layout.x_group_at() + g * static_cast<std::int64_t>(sizeof facts), &facts, sizeof facts);
  }
}

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
          "a weight of {} cannot be quantised: scales are float16, up to 65504, so weights may be up to {}; load the "
          "model without --quantization", largest, kind == QuantKind::kInt4 ? 65504.0f * 8 : 65504.0f * kMaxByte);
  if (d == 0.0f) return scale;
  const float low = kind == QuantKind::kInt4 ? -8.0f : -kMaxByte, high = kind == QuantKind::kInt4 ? 7.0f : kMaxByte;
  for (std::int64_t i = 0; i < count; ++i)
    u[i] = static_cast<std::uint8_t>(nearest(std::min(high, std::max(low, w[i] / d))) + offset);
  return scale;
}

}  // namespace sluice::cpu
