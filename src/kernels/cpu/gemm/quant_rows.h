// How floats become groups of small integers. AVX2, the same on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/gemm/quant_layout.h"
#include "tensor/dtype.h"

namespace sluice::cpu {

// `count` floats as bytes q and one scale e. With a = max |x|: e = a / 127 and q = x * (127 / a),
// rounded to nearest even. Where e would be below the normal numbers of float32 all is zero. NaN or
// infinity among them gives the scale NaN and q = 0: what they are multiplied with becomes NaN, as
// in a plain product.
struct Bytes {
  float scale = 0;
  std::int32_t sum = 0;  // of q
};
Bytes quantize_bytes(const float* x, std::int64_t count, std::int8_t* q);

// Columns [first, last) of the row `out`, group by group; x is that of column `first`, where a
// group begins. A group that ends after `last` is filled up.
void quantize_columns(QuantKind kind, const QuantLayout& layout, const float* x, std::int64_t first,
                      std::int64_t last, std::byte* out);

// `count` <= group weights as bytes u[count] and a scale, in float16 before it is used:
//   kInt8: d = max |w| / 127, u = 128 + w / d within [1, 255];   kInt4: d = v / -8 where v is the
//   first weight of the largest magnitude, u = 8 + w / d within [0, 15]. Rounded to nearest even. d
//   = 0: every weight becomes 0.
// NaN or infinity among the weights gives scale NaN. Error{kBadInput}: d is larger than float16
// holds.
F16 quantize_group(QuantKind kind, const float* w, std::int64_t count, std::uint8_t* u);

}  // namespace sluice::cpu
