// Filling weights in fragments (kernels/types/int_fragments.h) from numbers that a file stores as
// codes: what linear layers and experts share.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/weight_source.h"
#include "kernels/types/weight.h"

namespace sluice {

// This rank's box of a stored matrix.
struct StoredBox {
  const QuantMatrix* matrix = nullptr;
  AxisRange rows, columns;
  std::int64_t index = 0;  // of a stack
};

// Columns of x in the order of the weight's columns; null: ascending.
using ColumnOrder = std::shared_ptr<const std::vector<std::int32_t>>;

// The form that holds the codes of several boxes, or the reason why there is none.
struct FragmentForm {
  ops::Format format = ops::Format::kInt4;
  std::int64_t group = ops::kFragmentColumns;
  DType scale = DType::kF16;
  ColumnOrder order = nullptr;
  bool int8_rows = false;  // ops::Weight::int8_rows
  std::string reason = {};

  // Whether parts of both forms make a weight of this one.
  bool is_as(const FragmentForm& other) const {
    return format == other.format && group == other.group && scale == other.scale &&
           int8_rows == other.int8_rows && (order == nullptr) == (other.order == nullptr) &&
           (order == nullptr || *order == *other.order);
  }
};
// All boxes are of integers, of e2m1, or of e4m3 (only integers have an order). Error{kBadInput}: a
// scale is not positive.
// `device`: integers have scales of 32 bits on a CPU alone.
FragmentForm common_fragment_form(const WeightSource& source, std::span<const StoredBox> boxes,
                                  Device device);

// Codes without values for `rows` rows of w, in groups of w.group with zeros in the middle.
QuantCodes empty_codes(const ops::Weight& w, std::int64_t rows);

// Numbers [rows, w.columns], float32 and dense, rounded to the format of w in groups of w.group.
QuantCodes rounded_codes(const ops::Weight& w, const Tensor& numbers);

// A row of codes; null: zeros.
struct CodeRow {
  const QuantCodes* codes = nullptr;
  std::int64_t row = 0, rows = 0;  // the row, and all rows of `codes`
};
// Writes whole tiles of matrix `index` from row `first` on, which begins a tile. row_of(i) is row
// first + i. `order`: see ops::Weight::order; empty: ascending. Any thread; disjoint tiles.
void put_fragment_rows(const ops::Weight& w, std::int64_t index, std::int64_t first,
                       std::int64_t rows, const std::function<CodeRow(std::int64_t)>& row_of,
                       std::span<const std::int32_t> order);

}  // namespace sluice
