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

#include "checkpoint/quantized/quant_formats.h"
#include "layers/weights/weights.h"

namespace sluice {

class Int8Weights {
 public:
  // As of Weights::packed; the references must outlive the object.
  Int8Weights(const Weights& weights, const WeightParts& parts, std::int64_t columns, Shard shard);

  // Whether load() gives the weight, unless codes have zero points.
  bool has_form() const;
  // Nothing: the matrix has another form. Error{kBadInput}: a scale is no positive number.
  std::optional<ops::Weight> load() const;

 private:
  struct Part {
    std::string name;
    AxisRange rows;
    std::int64_t first = 0;  // row of the weight
    std::int64_t stored_rows = 0;
    bool transposed = false;
    const QuantMatrix* stored = nullptr;
  };
  bool rounds() const;
  bool read_scales(const Part& part, std::vector<float>& scales) const;
  void add_stored(const ops::Weight& w, const Part& part) const;
  void add_numbers(const ops::Weight& w, const Part& part,
                   const std::shared_ptr<std::vector<float>>& scales) const;

  const Weights& weights_;
  std::int64_t all_columns_;
  AxisRange columns_;
  std::int64_t rows_ = 0;
  std::vector<Part> parts_;
};

}  // namespace sluice
