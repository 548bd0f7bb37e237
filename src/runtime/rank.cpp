#include "runtime/rank.h"

#include "ops/session.h"

namespace sluice {

Rank::Rank(const Placement& placement, bool deterministic, Communicator* communicator)
    : pool_(placement.num_threads, placement.numa_nodes),
      stream_(placement.device),
      session_(ops::open_session(placement.device)) {
  ctx_.device = placement.device;
  ctx_.stream = &stream_;
  ctx_.cuda = session_.get();
  ctx_.deterministic = deterministic;
  ctx_.pool = &pool_;
  ctx_.communicator = communicator != nullptr ? communicator : &alone_;
  ctx_.rank = ctx_.communicator->rank();
  ctx_.cpu_isa = detect_cpu_isa();
}

}  // namespace sluice
