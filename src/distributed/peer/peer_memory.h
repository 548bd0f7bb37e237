// One allocation of GPU memory a rank, which the GPUs of all ranks of a host map.
//
//   PeerMemory memory(host, bytes, device);     // all ranks at once
//   if (memory.refusal().empty()) use(memory.of(rank));
//
// The memory is zeroed. A thread sees the failure of the ranks and raises the word stop(), which
// ends the waits of kernels within 50 ms. Error{kNoResources}: there is no such memory.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "distributed/shared_memory.h"
#include "tensor/buffer.h"

namespace sluice {

class PeerMemory {
 public:
  // `host` outlives it.
  PeerMemory(SharedMemoryCommunicator& host, std::int64_t bytes, Device device);
  ~PeerMemory();

  // Why a rank does not reach the memory of all others; empty: all do. The same on all ranks.
  const std::string& refusal() const { return refusal_; }
  // Of any rank, as this GPU reaches it.
  std::byte* of(int rank) const { return memory_[static_cast<std::size_t>(rank)]; }
  // Host memory that the GPU reads: 0 until a rank has failed.
  const int* stop() const { return static_cast<const int*>(stop_.data()); }

 private:
  void watch();

  SharedMemoryCommunicator& host_;
  std::string refusal_;
  Buffer own_, stop_;
  std::vector<std::byte*> memory_;  // [ranks]
  std::atomic<bool> stopping_{false};
  std::thread watcher_;
};

}  // namespace sluice
