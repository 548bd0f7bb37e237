// Checks of an op's arguments. A failure is a bug of the caller: Error{kBug} with the op, the
// argument and both shapes.
#pragma once

#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "tensor/context.h"

namespace sluice::ops {

using Shape = std::initializer_list<std::int64_t>;
using DTypes = std::initializer_list<DType>;

inline constexpr DTypes kFloat = {DType::kF32};
inline constexpr DTypes kPlane = {DType::kF32, DType::kBF16};
inline constexpr DTypes kWeight = {DType::kF32, DType::kBF16, DType::kF16};
inline constexpr DTypes kIndex = {DType::kI32};
inline constexpr DTypes kSlot = {DType::kI64};
inline constexpr DTypes kBytes = {DType::kU8};

// x has this shape (-1: any extent), one of the dtypes, lies on ctx's device, and its last
// dimension has stride 1.
void expect(const Context& ctx, std::string_view what, const Tensor& x, Shape shape, DTypes dtypes);

// The same, and without gaps between rows.
void expect_dense(const Context& ctx, std::string_view what, const Tensor& x, Shape shape,
                  DTypes dtypes);

// Whether the body is to run; false while memory is measured.
inline bool runs(const Context& ctx) {
  return !ctx.dry_run;
}

}  // namespace sluice::ops
