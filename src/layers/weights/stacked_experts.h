// Experts of a MoE layer in fragments (kernels/types/int_fragments.h) that a checkpoint stores as
// two stacks, as MXFP4 of gpt-oss; or numbers that are rounded while they are loaded.
//
//   if (StackedExperts(block, names, shape).load(w13, w2)) ...
//
// All matrices need a common form (layers/weights/fragments.h), without an order of columns, and a
// rank's columns whole groups. Otherwise they are widened, and the log says why.
#pragma once

#include <string>

#include "layers/weights/expert_fragments.h"

namespace sluice {

struct StackNames {
  // Below the block: [experts, 2 width, hidden], [experts, hidden, width]
  std::string gate_up, down;
  bool interleaved = false;  // gate and up rows alternate; else all gate rows come first
  bool transposed = false;   // of plain numbers: the file stores [experts, columns, rows]
};

class StackedExperts {
 public:
  StackedExperts(const Weights& block, StackNames names, const ExpertShape& shape)
      : block_(block), names_(std::move(names)), shape_(shape) {}

  // False: the experts have another form; then nothing was taken. Error{kBadInput}: as of
  // common_fragment_form().
  bool load(ops::Weight& w13, ops::Weight& w2) const;

 private:
  bool round(ops::Weight& w13, ops::Weight& w2) const;
  std::string why_not() const;
  void take(const FragmentForm& form, ops::Weight& w13, ops::Weight& w2) const;
  // Rows of gate and up of this rank, in one or two ranges.
  std::vector<AxisRange> gate_up_rows() const;

  const Weights& block_;
  StackNames names_;
  ExpertShape shape_;
};

}  // namespace sluice
