// The parts of a linear layer's matrix, and this rank's box of each: what loaders of quantised
// forms share.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/quantized/quant_formats.h"
#include "checkpoint/tensors/quantized_blocks.h"
#include "layers/weights/weights.h"

namespace sluice {

class MatrixParts {
 protected:
  struct Part {
    const WeightPart* part = nullptr;
    std::string name;                      // of the tensor, below the cursor
    AxisRange rows;                        // of the tensor
    std::int64_t first = 0;                // row of the weight
    const QuantMatrix* stored = nullptr;   // what `find` gave
    std::optional<BlockType> blocks = {};  // of a GGUF file
  };
  // Gives the stored matrix of a path; null: it has another form.
  using Find = std::function<const QuantMatrix*(const WeightSource&, std::string_view)>;

  // As of Weights::packed; the references must outlive the object.
  MatrixParts(const Weights& weights, const WeightParts& parts, std::int64_t columns, Shard shard,
              const Find& find);

  const Weights& weights_;
  std::int64_t all_columns_;
  AxisRange columns_;      // of this rank
  std::int64_t rows_ = 0;  // of this rank
  std::vector<Part> parts_;
};

}  // namespace sluice
