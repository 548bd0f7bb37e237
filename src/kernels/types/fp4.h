// MXFP4 (Format::kMxFp4): e2m1 numbers, 32 of which share a scale 2^(s - 127), where s is a byte
// (ue8m0). e2m1: sign, 2 exponent bits with bias 1, 1 mantissa bit. Source: OCP Microscaling
// Formats (MX) specification 1.0, 5.3.3, 5.4 and 6.3. NVFP4 (Format::kNvFp4): 16 of them share a
// scale of e4m3, and all of a matrix a float32. Source: NVIDIA ModelOpt, `NVFP4QTensor`.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace sluice::ops {

inline constexpr std::int64_t kMxGroup = 32, kNvGroup = 16;  // columns
inline constexpr int kMxNan = 255;                           // the scale that is no number

// The value of each code.
inline constexpr std::array<float, 16> kE2M1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                -2.0f, -3.0f, -4.0f, -6.0f};

// 2^(s - 127); exact, s < kMxNan.
inline float mx_scale(int s) {
  return std::ldexp(1.0f, s - 127);
}
// The byte of a scale; -1 where it is no power of two that a byte has.
inline int mx_scale_code(float scale) {
  int exponent = 0;
  if (!(scale > 0) || !std::isfinite(scale) || std::frexp(scale, &exponent) != 0.5f) return -1;
  const int code = exponent - 1 + 127;
  return code >= 0 && code < kMxNan ? code : -1;
}

// The nearest code, ties to even mantissas; beyond 6 it is 6.
inline std::uint8_t to_e2m1(float x) {
  const float size = std::abs(x);
  // Between two codes, from the largest down.
  constexpr float kMiddles[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  std::uint8_t code = 0;
  while (code < 7 && (code % 2 == 0 ? size > kMiddles[code] : size >= kMiddles[code])) ++code;
  return static_cast<std::uint8_t>(code | (std::signbit(x) ? 8 : 0));
}

// The scale of numbers up to `largest`: the specification's, by which they are below 8 and those
// above 6 become 6. 2^-127 for zeros.
inline float mx_scale_for(float largest) {
  int exponent = 0;
  std::frexp(largest, &exponent);  // in [0.5, 1)
  return largest == 0 ? mx_scale(0) : mx_scale(std::max(exponent - 1 - 2 + 127, 0));
}

}  // namespace sluice::ops
