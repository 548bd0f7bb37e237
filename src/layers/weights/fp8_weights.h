// A matrix of a linear layer in FP8 (kernels/types/fp8.h): as the checkpoint stores it, or rounded
// while it is loaded.
//
//   if (const auto w = Fp8Weights(weights, parts, columns, shard).load()) ...
//
// A stored matrix keeps its form when all parts are e4m3 with the same kind of scales: one for each
// block of rows and 128 columns, or one for each row or matrix. Parts begin at multiples of 16
// rows where scales are of blocks. Rows have a multiple of 16 columns. Otherwise it is widened.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "layers/weights/matrix_parts.h"

namespace sluice {

class Fp8Weights : MatrixParts {
 public:
  // As of Weights::packed; the references must outlive the object.
  Fp8Weights(const Weights& weights, const WeightParts& parts, std::int64_t columns, Shard shard);

  // Nothing: the matrix has another form. Error{kBadInput}: a scale is no positive number.
  std::optional<ops::Weight> load() const;

 private:
  std::optional<std::int64_t> group() const;
  void read_stored(const ops::Weight& w, const Part& part, std::vector<float>& scales) const;
  void round(const ops::Weight& w, const Part& part,
             const std::shared_ptr<std::vector<float>>& scales) const;
};

}  // namespace sluice
