#include "runtime/rank.h"

#include "ops/session.h"

namespace sluice {

Rank::Rank(const RankOptions& options, Communicator* communicator)
    : pool_(options.num_threads, options.numa_nodes),
      stream_(options.device),
      session_(ops::open_session(options.device)) {
  ctx_.device = options.device;
  ctx_.stream = &stream_;
  ctx_.cuda = session_.get();
  ctx_.deterministic = options.deterministic;
  ctx_.pool = &pool_;
  ctx_.communicator = communicator != nullptr ? communicator : &alone_;
  ctx_.rank = ctx_.communicator->rank();
  ctx_.cpu_isa = detect_cpu_isa();
}

}  // namespace sluice
