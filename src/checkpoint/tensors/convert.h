// Conversion of elements between types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace sluice {

// Converts `count` elements; false if there is no conversion between the two types. The ranges do
// not overlap.
bool convert_elements(DType from, const std::byte* in, DType to, std::byte* out,
                      std::int64_t count);

// Whether convert_elements() supports a pair of different types.
bool has_conversion(DType from, DType to);

}  // namespace sluice
