#include <algorithm>

#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/ranks/peer_flags.cuh"
#include "kernels/cuda/ranks/peer_link.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 512;

// What both kernels need of a piece.
struct Piece {
  std::int64_t bytes;
  std::uint32_t number;
  const std::uint32_t* awaited;  // the word that tells that the piece can be moved
  std::uint32_t awaited_number;
  std::uint32_t* raised;  // the other GPU's, once the piece was moved
  std::uint32_t* count;   // of CTAs that are done
  const int* stop;
};

__device__ void begin_piece(const Piece& piece) {
  if (threadIdx.x == 0) wait_for_flag(piece.awaited, piece.awaited_number, piece.stop);
  __syncthreads();
}

// The last CTA to come tells the other GPU.
__device__ void end_piece(const Piece& piece) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  if (atomicAdd(piece.count, 1) != gridDim.x - 1) return;
  __threadfence_system();
  *piece.count = 0;
  raise_flag(piece.raised, piece.number);
}

// This CTA's share of the vectors of 16 bytes; the words behind them are the first CTA's.
template <class Read>
__device__ void copy_share(const std::byte* from, std::byte* to, std::int64_t bytes, Read read) {
  const std::int64_t vectors = bytes / 16, step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < vectors; i += step)
    reinterpret_cast<float4*>(to)[i] = read(reinterpret_cast<const float4*>(from) + i);
  const std::int64_t words = bytes % 16 / 4;
  if (blockIdx.x == 0 && threadIdx.x < words) {
    const std::int64_t at = vectors * 16 + threadIdx.x * 4;
    *reinterpret_cast<volatile std::uint32_t*>(to + at) =
        *reinterpret_cast<const volatile std::uint32_t*>(from + at);
  }
}

__global__ void __launch_bounds__(kThreads)
    send(const std::byte* x, std::byte* place, Piece piece) {
  begin_piece(piece);
  copy_share(x, place, piece.bytes, [](const float4* v) { return *v; });
  end_piece(piece);
}

__global__ void __launch_bounds__(kThreads)
    receive(std::byte* x, const std::byte* place, Piece piece) {
  begin_piece(piece);
  copy_share(place, x, piece.bytes, [](const float4* v) { return read_slot(v); });
  end_piece(piece);
}

std::byte* place_of(const PeerLinkMemory& receiver, std::uint32_t number) {
  return receiver.ring + (number % kPeerLinkPieces) * kPeerLinkPieceBytes;
}

unsigned blocks_for(std::int64_t bytes) {
  constexpr std::int64_t kBytesOfBlock = kThreads * 16;
  return static_cast<unsigned>(
      std::clamp<std::int64_t>((bytes + kBytesOfBlock - 1) / kBytesOfBlock, 1, kPeerLinkBlocks));
}

}  // namespace

void send_piece(const PeerLinkMemory& own, const PeerLinkMemory& peer, const Tensor& x,
                std::uint32_t number, const int* stop, const Stream& stream) {
  const Piece piece{.bytes = x.bytes(),
                    .number = number,
                    .awaited = own.drained(),
                    .awaited_number = number - kPeerLinkPieces,
                    .raised = peer.filled(),
                    .count = own.senders_done(),
                    .stop = stop};
  send<<<blocks_for(x.bytes()), kThreads, 0, static_cast<cudaStream_t>(stream.handle())>>>(
      static_cast<const std::byte*>(x.data), place_of(peer, number), piece);
  check_launch("send to a peer");
}

void receive_piece(const PeerLinkMemory& own, const PeerLinkMemory& peer, const Tensor& x,
                   std::uint32_t number, const int* stop, const Stream& stream) {
  const Piece piece{.bytes = x.bytes(),
                    .number = number,
                    .awaited = own.filled(),
                    .awaited_number = number,
                    .raised = peer.drained(),
                    .count = own.receivers_done(),
                    .stop = stop};
  receive<<<blocks_for(x.bytes()), kThreads, 0, static_cast<cudaStream_t>(stream.handle())>>>(
      static_cast<std::byte*>(x.data), place_of(own, number), piece);
  check_launch("receive from a peer");
}

}  // namespace sluice::cuda
