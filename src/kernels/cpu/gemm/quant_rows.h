// Quantisation of floats to groups of small integers. AVX2; the same results on every instruction
// set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/gemm/quant_layout.h"
#include "tensor/dtype.h"

namespace sluice::cpu {

// Quantises `count` floats to bytes q with one scale e. With a = max |x|: e = a / 127, and q = x *
// (127 / a) rounded to nearest even. If e is below the normal float32 range, everything is zero.
// NaN or infinity in x gives scale NaN and q = 0, so the GEMM result is NaN, as with unquantised x.
struct Bytes {
  float scale = 0;
  std::int32_t sum = 0;  // of q
};
Bytes quantize_bytes(const float* x, std::int64_t count, std::int8_t* q);

// Quantises columns [first, last) into the row `out`, group by group. x points at column `first`,
// where a group begins. If the last group ends after `last`, it is padded.
void quantize_columns(QuantKind kind, const QuantLayout& layout, const float* x, std::int64_t first,
                      std::int64_t last, std::byte* out);

// Quantises `count` <= group weights to bytes u[count] and a scale d, which is rounded to float16
// before it is used. Rounding is to nearest even.
// - kInt8: d = max |w| / 127, u = 128 + w / d within [1, 255].
// - kInt4: d = v / -8 with v the first weight of the largest magnitude, u = 8 + w / d within [0,
//   15].
// - d = 0: every weight becomes 0.
//
// NaN or infinity among the weights gives scale NaN. Error{kBadInput}: d exceeds the float16 range.
F16 quantize_group(QuantKind kind, const float* w, std::int64_t count, std::uint8_t* u);

}  // namespace sluice::cpu
