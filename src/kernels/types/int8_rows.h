// Rows of x as int8 for weights of W8A8 checkpoints (Weight::int8_rows). A row becomes
// q[k] = rint(x[k] (127 / max |x|)) and has the scale max |x| / 127. Sums of q[k] times the
// weight's codes are exact in 32 bits:
//
//   out[m, n] = float(sum over k of q[m, k] code[n, k]) (scale of row m * scale of row n)
//
// So the bits depend on nothing but the two rows. Rows are bfloat16, or float32 where a norm is
// fused. A row with a number that is not finite has NaN as its scale, and zeros.
//
// A GPU has the weights in rows (Layout::kRows of Format::kInt8): int8 [rows, columns], and scales
// [rows] in float32. A prepared row of x has the bytes of kernels/types/fp8.h without groups.
#pragma once

#include <cstdint>

namespace sluice::ops {

inline constexpr float kMaxInt8Row = 127;
// A row of smaller numbers is rounded as if it had this one, whose inverse is finite.
inline constexpr float kSmallestInt8Row = 0x1p-100f;
// More columns could make a sum of more than 31 bits.
inline constexpr std::int64_t kMaxInt8Columns = 65536;

}  // namespace sluice::ops
