// A rank before it has a model: its device, threads, stream and libraries, and the Context over
// them.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "distributed/single.h"
#include "runtime/placement.h"
#include "tensor/context.h"
#include "tensor/stream.h"

namespace sluice {

class Rank {
 public:
  // `communicator`: of the ranks that share the model's matrices; null: this rank has them all.
  // `deterministic`: on a GPU, results do not depend on the batch.
  Rank(const Placement& placement, bool deterministic, Communicator* communicator = nullptr);
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Context& context() { return ctx_; }
  const Context& context() const { return ctx_; }
  const ThreadPool& pool() const { return pool_; }
  const Stream& stream() const { return stream_; }

 private:
  ThreadPool pool_;
  SingleCommunicator alone_;
  Stream stream_;  // of a GPU: all of a step's work
  std::shared_ptr<cuda::Session> session_;
  Context ctx_;
};

}  // namespace sluice
