// Finding weights that are NaN or infinite (--check-weights).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tensor/dtype.h"

namespace sluice {

// The index of the first of `count` elements that is NaN or infinite. Types other than float32,
// bfloat16, float16 and float64 have none.
std::optional<std::int64_t> first_not_finite(DType dtype, const std::byte* data,
                                             std::int64_t count);

}  // namespace sluice
