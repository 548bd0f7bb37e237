// How a plane of keys or values of the KV pool lies in memory: as rows, or in the form in which
// products read it.
//
// Panels (on a CPU, bfloat16) keep what one head has in one page together: 64 tokens by `dim`
// elements, head after head, page after page, in as many bytes as the rows would take. So attention
// over a long context reads memory as a stream and multiplies what it finds, without interleaving
// it first (kernels/cpu/isa/tiles.h):
//   kKeyPanels    line of 256 bytes i: columns 2 i and 2 i + 1 of each of the 64 tokens, in turn
//   kValuePanels  64 columns (the last ones: as many as there are) after the other, and of these in
//   turn
//                 line of 4 bytes a column i: tokens 2 i and 2 i + 1 of each of them, in turn
//
// Scaled pages (everywhere, index keys) keep keys of eight bits: 64 keys of `dim` e4m3 numbers,
// then their 64 float32 scales, powers of two. Key i is its numbers times its scale, and a NaN in
// it makes the scale one.
#pragma once

#include <cstdint>

#include "kernels/types/op_params.h"
#include "tensor/tensor.h"

namespace sluice::ops {

// Columns of values that lie together in a panel.
inline constexpr std::int64_t kValueColumns = 64;

enum class PlaneForm : std::uint8_t { kRows, kKeyPanels, kValuePanels, kScaledPages };

inline constexpr std::int64_t kKeyScaleBytes = 4;  // of a key in scaled pages

// A view of one plane of one layer: copied freely, never frees. Row s of `data` is slot s; in
// panels its elements lie elsewhere, but a page's bytes are those of its 64 rows.
struct KvPlane {
  Tensor data;  // [S, n]; scaled pages: uint8 [S, dim + kKeyScaleBytes]
  PlaneForm form = PlaneForm::kRows;
  std::int64_t heads = 1;  // of a row of panels

  KvPlane() = default;
  KvPlane(const Tensor& rows) : data(rows) {}  // NOLINT: a tensor of rows is a plane
  KvPlane(const Tensor& rows, PlaneForm made, std::int64_t num_heads)
      : data(rows), form(made), heads(num_heads) {}

  bool panels() const { return form == PlaneForm::kKeyPanels || form == PlaneForm::kValuePanels; }
  bool scaled() const { return form == PlaneForm::kScaledPages; }
  std::int64_t head_dim() const { return data.dim(1) / heads; }
  std::int64_t page_elements() const { return kPageSize * data.dim(1); }
};

// Whether heads of `dim` elements can lie in panels: whole pairs, and whole vectors of sixteen
// columns.
constexpr bool fits_panels(DType dtype, std::int64_t dim) {
  return dtype == DType::kBF16 && dim % 16 == 0;
}

}  // namespace sluice::ops
