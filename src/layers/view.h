// Views of activations.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "tensor/format.h"
#include "tensor/tensor.h"

namespace sluice {

// Rows [T, heads * d], possibly strided, seen as [T, heads, d].
inline Tensor split_heads(const Tensor& x, std::int64_t heads) {
  check(x.rank == 2 && x.stride[1] == 1 && x.shape[1] % heads == 0, "{} has no {} heads", x, heads);
  Tensor view = x;
  view.rank = 3;
  view.shape = {x.shape[0], heads, x.shape[1] / heads, 0};
  view.stride = {x.stride[0], x.shape[1] / heads, 1, 0};
  return view;
}

// [T, heads, d] as rows [T, heads * d]: the heads of a token are contiguous.
inline Tensor merge_heads(const Tensor& x) {
  check(x.rank == 3 && x.stride[2] == 1 && x.stride[1] == x.shape[2],
        "heads of {} do not lie together", x);
  Tensor rows = x;
  rows.rank = 2;
  rows.shape = {x.shape[0], x.shape[1] * x.shape[2], 0, 0};
  rows.stride = {x.stride[0], 1, 0, 0};
  return rows;
}

}  // namespace sluice
