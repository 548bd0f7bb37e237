// Collectives of GPUs of one host that reach each other's memory: short sums by kernels of our own
// (kernels/cuda/ranks/peer_sum.h), all else by NCCL.
//
//   PeerCommunicator communicator(host, nccl, device);
//   communicator.all_reduce(x);   // in the order of the stream, also recorded
//
// Sums of float32 are taken in rank order: their bits depend neither on the tensor's size nor on
// the GPU. One thread. A failure of the ranks ends the waits of kernels within 50 ms.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "distributed/nccl.h"
#include "kernels/cuda/ranks/peer_sum.h"
#include "tensor/buffer.h"

namespace sluice {

class PeerCommunicator final : public Communicator {
 public:
  // All ranks at once. `host` and `nccl` outlive it. Error{kNoResources}: no memory for slots.
  PeerCommunicator(SharedMemoryCommunicator& host, NcclCommunicator& nccl, Device device);
  ~PeerCommunicator() override;

  // Why NCCL takes all sums; empty where kernels take the short ones. The same on all ranks.
  const std::string& refusal() const { return refusal_; }

  int rank() const override { return nccl_.rank(); }
  int size() const override { return nccl_.size(); }
  void all_reduce(const Tensor& x) override;
  void all_gather(const Tensor& x, const Tensor& out) override { nccl_.all_gather(x, out); }
  void broadcast(const Tensor& x, int root) override { nccl_.broadcast(x, root); }
  void barrier() override { nccl_.barrier(); }
  // The stream in which the collectives of the GPU's memory take their turn.
  void bind(const Stream& stream);

 private:
  void connect(Device device);
  bool takes(const Tensor& x) const;
  void watch();

  SharedMemoryCommunicator& host_;
  NcclCommunicator& nccl_;
  const Stream* stream_ = nullptr;
  std::string refusal_;
  Buffer memory_, stop_;  // this rank's slots; a word that ends waits
  cuda::PeerSum sum_;
  std::atomic<bool> stopping_{false};
  std::thread watcher_;
};

// The longest sum, in bytes, that kernels take among `size` ranks; 0: none.
std::int64_t peer_sum_limit(int size);

}  // namespace sluice
