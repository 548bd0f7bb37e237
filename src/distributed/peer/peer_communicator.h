// Collectives of GPUs of one host that reach each other's memory: sums and gatherings by kernels of
// our own (kernels/cuda/ranks/peer_sum.h), all else by NCCL.
//
//   PeerCommunicator communicator(host, nccl, device, {.wire = DType::kBF16});
//   communicator.all_reduce(x);   // in the order of the stream, also recorded
//
// A sum of which each rank needs some rows sends it these rows alone, at any length. It is a whole
// sum where a rank needs hardly any, or rows are no whole vectors.
//
// Sums of float32 are taken in rank order, of numbers that were rounded to the type in which they
// travel. Among more than two ranks long whole sums are NCCL's, in float32, unless `any_length` is
// set: then bits depend neither on the tensor's size nor on the GPU. One thread. A failure of the
// ranks ends the waits of kernels within 50 ms.
#pragma once

#include <optional>
#include <string>

#include "distributed/nccl.h"
#include "distributed/peer/peer_memory.h"
#include "kernels/cuda/ranks/peer_sum.h"
#include "tensor/residual_sum.h"

namespace sluice {

struct PeerSumOptions {
  DType wire = DType::kF32;  // float32 or bfloat16
  bool any_length = false;   // long sums are not NCCL's
};

class PeerCommunicator final : public Communicator, public ResidualSum {
 public:
  // All ranks at once. `host` and `nccl` outlive it. Error{kNoResources}: no memory for slots.
  PeerCommunicator(SharedMemoryCommunicator& host, NcclCommunicator& nccl, Device device,
                   const PeerSumOptions& options);

  // Why NCCL takes all; empty where kernels take what they can. The same on all ranks.
  const std::string& refusal() const { return refusal_; }

  int rank() const override { return nccl_.rank(); }
  int size() const override { return nccl_.size(); }
  void all_reduce(const Tensor& x) override;
  void reduce_scatter(const Tensor& x, std::span<const RowPart> parts) override;
  bool add_sum(const Tensor& x, const Tensor& to) override;
  void all_gather(const Tensor& x, const Tensor& out) override;
  void broadcast(const Tensor& x, int root) override { nccl_.broadcast(x, root); }
  void barrier() override { nccl_.barrier(); }
  // The stream in which the collectives of the GPU's memory take their turn.
  void bind(const Stream& stream);

 private:
  // Whether kernels sum x.
  bool sums(const Tensor& x) const;
  // Piece by piece. `to`: undefined, or what the sum is added to.
  void sum(const Tensor& x, const Tensor& to);

  NcclCommunicator& nccl_;
  const PeerSumOptions options_;
  const Stream* stream_ = nullptr;
  std::string refusal_;
  std::optional<PeerMemory> memory_;  // the slots of all ranks
  cuda::PeerSum sum_;
};

}  // namespace sluice
