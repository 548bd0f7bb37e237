// Experts of a MoE layer in fragments (kernels/types/int_fragments.h), as the checkpoint stores
// them: e4m3, or integers; or rounded while they are loaded. They are stored one by one, each as
// gate, up and down.
//
//   if (ExpertFragments(block, names, shape).load(w13, w2)) ...
//
// All matrices of this rank's experts need a common form (layers/weights/fragment_weights.h),
// without an order of columns. Otherwise they are widened, and the log says why. Where a rank may
// come to compute any expert of the layer, all experts need that form.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layers/weights/fragments.h"
#include "layers/weights/weights.h"

namespace sluice {

struct ExpertNames {
  std::string gate, up, down;  // of the tensors, below block.experts.<e>
};
struct ExpertShape {
  std::int64_t experts = 0, hidden = 0, width = 0;  // of the layer
  ExpertShare own;                                  // of this rank

  std::int64_t num_own() const { return static_cast<std::int64_t>(own.experts.size()); }
  // The experts that have one form in memory: all of them where they move between ranks, or are in
  // memory of all ranks.
  std::vector<std::int64_t> alike(const Weights& block) const;
};

// Memory for `experts` matrices of a form.
ops::Weight take_experts(const Weights& block, const FragmentForm& form, std::int64_t experts,
                         std::int64_t rows, std::int64_t columns);
// That of Numerics::experts_rounded_to, which is set.
FragmentForm rounded_form(const Numerics& numerics);
// Takers of the gate rows and the up rows of an expert, [width, hidden] float32 each. Each rounds
// its rows, on any thread, and the later one packs both.
std::array<std::function<void(const Tensor&)>, 2> round_gate_and_up(const ops::Weight& w13,
                                                                    std::int64_t expert);

class ExpertFragments {
 public:
  ExpertFragments(const Weights& block, ExpertNames names, const ExpertShape& shape)
      : block_(block), names_(std::move(names)), shape_(shape) {}

  // False: the experts have another form; then nothing was taken. Error{kBadInput}: as of
  // common_fragment_form().
  bool load(ops::Weight& w13, ops::Weight& w2) const;

 private:
  struct Boxes {
    StoredBox gate, up, down;
  };
  std::optional<std::vector<Boxes>> find(std::span<const std::int64_t> experts) const;
  void add_numbers(std::size_t expert, const ops::Weight& w13, const ops::Weight& w2) const;

  const Weights& block_;
  ExpertNames names_;
  ExpertShape shape_;
};

}  // namespace sluice
