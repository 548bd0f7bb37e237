#include "ops/arguments.h"

#include <algorithm>
#include <string>

#include "tensor/format.h"

namespace sluice::ops {
namespace {

std::string describe(Shape shape, DTypes dtypes) {
  std::string text;
  for (DType dtype : dtypes)
    text += fmt::format("{}{}", text.empty() ? "" : "|", dtype_name(dtype));
  text += " [";
  bool first = true;
  for (std::int64_t extent : shape) {
    text += fmt::format("{}{}", first ? "" : ", ",
                        extent < 0 ? std::string("any") : std::to_string(extent));
    first = false;
  }
  return text + "]";
}

}  // namespace

void expect(const Context& ctx, std::string_view what, const Tensor& x, Shape shape,
            DTypes dtypes) {
  bool fits = x.rank == static_cast<int>(shape.size()) && x.device == ctx.device &&
              std::find(dtypes.begin(), dtypes.end(), x.dtype) != dtypes.end();
  int axis = 0;
  for (std::int64_t extent : shape) {
    fits = fits && (extent < 0 || x.shape[axis] == extent);
    ++axis;
  }
  if (fits && (x.dense_rows() || x.numel() == 0)) return;
  fail(ErrorKind::kBug, "{}: got {}{}, want {}{}", what,
       x.defined() ? x.describe() : std::string("nothing"),
       fits ? " with a strided last dimension" : "", describe(shape, dtypes),
       x.device == ctx.device ? "" : " on another device");
}

void expect_dense(const Context& ctx, std::string_view what, const Tensor& x, Shape shape,
                  DTypes dtypes) {
  expect(ctx, what, x, shape, dtypes);
  check(x.dense() || x.numel() == 0, "{}: {} has gaps between its rows", what, x);
}

}  // namespace sluice::ops
