// In which form each quantised matrix of a checkpoint is computed, for logs and `sluice show`.
#pragma once

#include <string>
#include <vector>

namespace sluice {

struct MatrixForm {
  std::string name;    // of the tensor
  std::string stored;  // "Q4_K", "fp8", "AWQ"
  // Why it is not computed as it is stored; empty: it is.
  std::string widened_because = {};

  bool operator==(const MatrixForm&) const = default;
};

// "Q4_K in 24 matrices, Q6_K in 5"; empty where none is.
std::string computed_as_stored(const std::vector<MatrixForm>& forms);
// The others: "fp8 in 2 matrices, among them lm_head.weight: REASON; ..."; empty where there are
// none.
std::string widened_when_read(const std::vector<MatrixForm>& forms);

}  // namespace sluice
