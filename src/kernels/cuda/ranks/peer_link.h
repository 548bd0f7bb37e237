// The way of rows from one GPU to the next one, which maps the other's memory: a ring of pieces at
// the receiver.
//
// A sender waits until the piece's place has been read, writes there, and raises the number of
// pieces at the receiver. A receiver waits for that number, copies the piece, and raises the number
// of pieces read at the sender. Both number their pieces from 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace sluice::cuda {

inline constexpr int kPeerLinkPieces = 4;                                   // places of the ring
inline constexpr std::int64_t kPeerLinkPieceBytes = std::int64_t{8} << 20;  // of one place
inline constexpr int kPeerLinkBlocks = 32;                                  // CTAs of one piece

// The memory of a rank that takes part, zeroed before the first piece: the ring in which it
// receives, the number of pieces there, the number that the rank it sends to has read, and a count
// of CTAs for each kernel.
struct PeerLinkMemory {
  std::byte* ring = nullptr;

  static constexpr std::int64_t ring_bytes() { return kPeerLinkPieces * kPeerLinkPieceBytes; }
  static constexpr std::int64_t bytes() { return ring_bytes() + 4 * 4; }
  std::uint32_t* filled() const { return reinterpret_cast<std::uint32_t*>(ring + ring_bytes()); }
  std::uint32_t* drained() const { return filled() + 1; }
  std::uint32_t* senders_done() const { return filled() + 2; }
  std::uint32_t* receivers_done() const { return filled() + 3; }
};

// A piece x of at most kPeerLinkPieceBytes from `own` to `peer`, or from `peer` into x. x: dense,
// on the GPU, 16-byte aligned, a multiple of 4 bytes. `stop`: host memory that the GPU reads; not 0
// ends all waits, and the rows are worthless. Error{kFatal}: the launch failed.
void send_piece(const PeerLinkMemory& own, const PeerLinkMemory& peer, const Tensor& x,
                std::uint32_t number, const int* stop, const Stream& stream);
void receive_piece(const PeerLinkMemory& own, const PeerLinkMemory& peer, const Tensor& x,
                   std::uint32_t number, const int* stop, const Stream& stream);

}  // namespace sluice::cuda
