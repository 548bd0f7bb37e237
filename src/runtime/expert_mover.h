// Moves experts between the places of a layer, as the plan of a step says (batch/batch.h).
//
//   ExpertMover mover(model.expert_layers, communicator);
//   mover.run(step.expert_moves);          // before the forward; every rank makes the same calls
//
// A part of an expert's weights is copied from place to place; between groups of ranks it is sent
// by the rank that has the same columns. A place serves no token from the first part on, until the
// last part is there. So every step computes with whole experts, at all ranks by the same map.
//
// Host memory. One thread. Errors: Error{kBug} where a move does not fit the map; the failure of
// the ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "batch/batch.h"
#include "layers/weights/expert_layer.h"
#include "tensor/communicator.h"

namespace sluice {

class ExpertMover {
 public:
  // `communicator`: of all ranks that share the experts. Both outlive the mover.
  // Error{kBadInput} on all ranks where their experts differ in form or place.
  ExpertMover(std::vector<ExpertLayer>& layers, Communicator& communicator);

  void run(std::span<const ExpertMove> moves);
  // What the copies of the last run() took, without the wait for ranks that began later.
  double seconds() const { return seconds_; }

  // Bytes of an expert of a layer at the first rank of a group, which has most.
  static std::int64_t expert_bytes(const ExpertLayer& layer) { return layer.first_rank_bytes; }

 private:
  void move(ExpertLayer& layer, const ExpertMove& move);
  // Bytes [begin, end) of an expert from rank to rank, or within this one.
  void copy(const ExpertLayer& layer, const ExpertMove& move, std::int64_t end, int from, int to);

  std::vector<ExpertLayer>& layers_;
  Communicator& communicator_;
  std::vector<std::byte> passing_;  // what this rank takes part in and neither sends nor keeps
  double seconds_ = 0;
};

}  // namespace sluice
