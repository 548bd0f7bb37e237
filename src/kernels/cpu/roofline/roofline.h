// Measured ceilings of this CPU: the loops behind ops/roofline.h, where they are documented.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tensor/context.h"

namespace sluice::ops {

// One way to read a buffer once, and its measured rate.
struct ReadPattern {
  std::string_view name;
  double bytes_per_s = 0;
};

inline constexpr int kReadPatterns = 8;

struct ReadBandwidth {
  std::array<ReadPattern, kReadPatterns> patterns;
  double bytes_per_s = 0;  // the best pattern's
  int best_pattern = 0;
};

// Instructions of GEMM inner loops. One operation is a multiplication or an addition.
enum class PeakInstruction : std::uint8_t {
  kFma,      // float32 multiply-add in the widest vector
  kMaddubs,  // vpmaddubsw in the widest vector and the addition of its 16-bit sums: unsigned
             // times signed bytes
  kDpbf16,   // vdpbf16ps, 512 bits
  kDpbusd,   // vpdpbusd, 512 bits: unsigned times signed bytes
  kAmxBf16,  // tdpbf16ps, a whole tile instruction of 16 x 16 x 32
  kAmxInt8,  // tdpbsud, 16 x 16 x 64: signed times unsigned bytes
};

}  // namespace sluice::ops

namespace sluice::cpu {

ops::ReadBandwidth read_bandwidth(Context& ctx, const Tensor& buffer, int passes);
double read_pass(Context& ctx, const Tensor& buffer, int pattern);
double peak_rate(Context& ctx, ops::PeakInstruction instruction, double seconds);

}  // namespace sluice::cpu
