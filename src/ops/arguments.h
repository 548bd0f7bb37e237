// Argument checks of ops. A failure is a bug of the caller: Error{kBug} that names the op, the
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

// x has this shape (-1: any extent) and one of the dtypes, is on ctx's device, and has stride 1 in
// its last dimension.
void expect(const Context& ctx, std::string_view what, const Tensor& x, Shape shape, DTypes dtypes);

// The same, and rows have no gaps between them.
void expect_dense(const Context& ctx, std::string_view what, const Tensor& x, Shape shape,
                  DTypes dtypes);

// Whether the op runs; false while memory is measured.
inline bool runs(const Context& ctx) {
  return !ctx.dry_run;
}

}  // namespace sluice::ops
