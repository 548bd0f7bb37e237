// Memory layout of a plane of keys or values of the KV pool: rows, or a form that GEMM reads in
// place.
//
// Panels (CPU, bfloat16) store a head's part of a page contiguously: 64 tokens by `dim` elements,
// head after head, page after page, in the same number of bytes as rows. So attention over a long
// context reads memory as a stream and multiplies it without repacking (kernels/cpu/isa/tiles.h):
// - kKeyPanels: line i of 256 bytes holds columns 2 i and 2 i + 1 of each of the 64 tokens,
//   interleaved.
// - kValuePanels: blocks of 64 columns (the last block may be narrower), one after the other. In a
//   block, line i holds tokens 2 i and 2 i + 1 of each column, interleaved: 4 bytes per column.
//
// Rows of e4m3 (all devices, keys or values of heads): a byte an element, and one scale a head for
// the whole plane. An element is its e4m3 number times that scale.
//
// Scaled pages (all devices, index keys) store FP8 keys: 64 keys of `dim` e4m3 numbers, then their
// 64 float32 scales, which are powers of two. A key is its numbers times its scale. A NaN in a key
// makes its scale NaN.
#pragma once

#include <cstdint>

#include "kernels/types/op_params.h"
#include "tensor/tensor.h"

namespace sluice::ops {

// Columns of values per block of a value panel.
inline constexpr std::int64_t kValueColumns = 64;

enum class PlaneForm : std::uint8_t { kRows, kKeyPanels, kValuePanels, kScaledPages };

inline constexpr std::int64_t kKeyScaleBytes = 4;  // bytes of the scale of one key in scaled pages

// A view of one plane of one layer: copied freely, never frees. Row s of `data` is slot s. In
// panels the elements of a slot are scattered, but a page takes the bytes of its 64 rows.
struct KvPlane {
  Tensor data;  // [S, n]; scaled pages: uint8 [S, dim + kKeyScaleBytes]
  PlaneForm form = PlaneForm::kRows;
  std::int64_t heads = 1;  // heads of a row of panels
  // Rows of e4m3: the scale of each head, f32 [heads], positive; undefined: 1.
  Tensor scales;

  KvPlane() = default;
  KvPlane(const Tensor& rows) : data(rows) {}  // NOLINT: a tensor of rows is a plane
  KvPlane(const Tensor& rows, PlaneForm made, std::int64_t num_heads)
      : data(rows), form(made), heads(num_heads) {}

  bool panels() const { return form == PlaneForm::kKeyPanels || form == PlaneForm::kValuePanels; }
  bool scaled() const { return form == PlaneForm::kScaledPages; }
  bool is_fp8() const { return data.dtype == DType::kF8E4M3; }
  // The scales on their device; null: all are 1.
  const float* head_scales() const { return scales.defined() ? scales.ptr<float>() : nullptr; }
  std::int64_t head_dim() const { return data.dim(1) / heads; }
  std::int64_t page_elements() const { return kPageSize * data.dim(1); }
};

// Whether heads of `dim` elements can be stored in panels: whole pairs, and whole vectors of
// sixteen columns.
constexpr bool fits_panels(DType dtype, std::int64_t dim) {
  return dtype == DType::kBF16 && dim % 16 == 0;
}

}  // namespace sluice::ops
