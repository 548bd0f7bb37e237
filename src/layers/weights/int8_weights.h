// A matrix of a linear layer of a W8A8 checkpoint on a GPU: int8 in rows, by which rows of int8 are
// multiplied (kernels/types/int8_rows.h).
//
//   if (const auto w = Int8Weights(weights, parts, columns, shard).load()) ...
//
// All parts are symmetric integers of 8 bits with one scale a row, whose configuration rounds rows
// of x to int8 (QuantMatrix::int8_rows); or random weights stand for them, and are rounded while
// they are loaded. Rows have a multiple of 16 columns. Otherwise the matrix has another form.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "layers/weights/matrix_parts.h"

namespace sluice {

class Int8Weights : MatrixParts {
 public:
  // As of Weights::packed; the references must outlive the object.
  Int8Weights(const Weights& weights, const WeightParts& parts, std::int64_t columns, Shard shard);

  // Whether load() gives the weight, unless codes have zero points.
  bool has_form() const;
  // Nothing: the matrix has another form. Error{kBadInput}: a scale is no positive number.
  std::optional<ops::Weight> load() const;

 private:
  bool rounds() const;
  bool read_scales(const Part& part, std::vector<float>& scales) const;
  void add_stored(const ops::Weight& w, const Part& part) const;
  void add_numbers(const ops::Weight& w, const Part& part,
                   const std::shared_ptr<std::vector<float>>& scales) const;
};

}  // namespace sluice
