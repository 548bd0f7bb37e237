// The way of a step's rows between the GPUs of two stages, by kernels that write into the next
// GPU's memory (kernels/cuda/ranks/peer_link.h), in the order of the rank's stream, outside of
// graphs.
//
//   PeerMemory memory(host, PeerLink::memory_bytes(), device);   // all ranks at once
//   PeerLink next(memory, rank, next_rank);                      // next.send(x)
//   PeerLink previous(memory, rank, previous_rank);              // previous.receive(x)
//   next.bind(stream);
//
// A rank sends to one rank and receives from one. A sender waits in its stream, not in its thread.
#pragma once

#include "distributed/peer/peer_memory.h"
#include "distributed/stage_link.h"
#include "kernels/cuda/ranks/peer_link.h"
#include "tensor/stream.h"

namespace sluice {

class PeerLink final : public StageLink {
 public:
  static std::int64_t memory_bytes() { return cuda::PeerLinkMemory::bytes(); }

  // `memory`, of memory_bytes(), outlives the link. All GPUs reach it.
  PeerLink(const PeerMemory& memory, int rank, int peer)
      : own_{memory.of(rank)}, peer_{memory.of(peer)}, stop_(memory.stop()) {}
  void bind(const Stream& stream) { stream_ = &stream; }
  void send(const Tensor& x) override;
  void receive(const Tensor& x) override;

 private:
  const cuda::PeerLinkMemory own_, peer_;
  const int* const stop_;
  const Stream* stream_ = nullptr;
  std::uint32_t num_pieces_ = 0;  // sent, or received
};

}  // namespace sluice
