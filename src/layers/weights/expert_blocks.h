// Experts of a MoE layer in fragments as a GGUF file stores them: w13 and w2 in blocks of a type
// each.
//
//   if (ExpertBlocks(block, names, shape).load(w13, w2)) ...
//
// All gate/up projections of a layer need one type, and all down projections another one or the
// same. Otherwise the experts are widened, and the log says why.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "checkpoint/tensors/quantized_blocks.h"
#include "layers/weights/expert_fragments.h"

namespace sluice {

class ExpertBlocks {
 public:
  ExpertBlocks(const Weights& block, ExpertNames names, const ExpertShape& shape)
      : block_(block), names_(std::move(names)), shape_(shape) {}

  // False: the experts have another form; then nothing was taken.
  bool load(ops::Weight& w13, ops::Weight& w2) const;

 private:
  struct Types {
    BlockType up, down;
  };
  // Nothing: an expert is not in blocks, or a tensor has a wrong shape.
  std::optional<Types> types(std::string& reason) const;
  std::string why_not(const Types& types) const;
  void add(const std::string& name, std::function<void()> work) const;

  const Weights& block_;
  ExpertNames names_;
  ExpertShape shape_;
};

}  // namespace sluice
