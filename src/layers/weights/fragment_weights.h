// A matrix in fragments (kernels/types/int_fragments.h): integers as AWQ, GPTQ,
// compressed-tensors or a GGUF file store them, or rounded while they are loaded; on a CPU e4m3,
// too.
//
//   if (const auto w = FragmentWeights(weights, parts, columns, shard).load()) ...
//
// Stored integers keep their values, so all parts of the matrix need a common form:
//
// - at most 4 bits, or 8 bits with the middle as zero point, or e4m3;
// - groups of 32, 64 or a multiple of 128 columns, or of the row;
// - scales that are all float16 or all bfloat16 numbers, on a GPU;
// - one order of columns (GPTQ's act-order), whose columns lie group by group in the weight;
// - a multiple of 16 rows, but for the last part, and of 8 columns.
//
// Otherwise the matrix is widened, and the log says why. A fused layer has a weight for each run of
// parts that have such a form (layers/linear.cpp). Blocks of a GGUF file have units of their own
// on a GPU (kernels/types/block_units.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layers/weights/fragments.h"
#include "layers/weights/matrix_parts.h"

namespace sluice {

class FragmentWeights : MatrixParts {
 public:
  // As of Weights::packed; the references must outlive the object.
  FragmentWeights(const Weights& weights, const WeightParts& parts, std::int64_t columns,
                  Shard shard, bool may_round = true);

  // Nothing: the matrix has another form. Error{kBadInput}: a scale is not positive.
  std::optional<ops::Weight> load() const;
  std::int64_t rows() const { return rows_; }  // of this rank
  // What load() gives, or the reason why it gives nothing; nothing: another form. Errors likewise.
  std::optional<FragmentForm> form() const;

 private:
  void add_stored(const ops::Weight& w, const Part& part, const ColumnOrder& order) const;
  void add_blocks(const ops::Weight& w, const Part& part) const;
  void add_numbers(const ops::Weight& w, const Part& part) const;

  bool may_round_;
};

}  // namespace sluice
