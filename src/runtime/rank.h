// A rank before it has a model: its device, threads, stream and libraries, and the Context over
// them.
#pragma once

#include <memory>

#include "base/numa.h"
#include "base/thread_pool.h"
#include "distributed/single.h"
#include "tensor/context.h"
#include "tensor/stream.h"

namespace sluice {

struct RankOptions {
  Device device;
  int num_threads = 1;
  NumaNodes numa_nodes;  // over which workers and memory are dealt; empty: the system places both
  bool deterministic = false;
};

class Rank {
 public:
  // `communicator`: of the ranks that share the model's matrices; null: this rank has them all.
  explicit Rank(const RankOptions& options, Communicator* communicator = nullptr);
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
