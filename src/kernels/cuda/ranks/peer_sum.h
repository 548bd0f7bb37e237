// Sums and gatherings of ranks whose GPUs write into each other's memory: one kernel, no copy
// engine, in one shot: a vector crosses each link once.
//
// A sum: every rank writes its vector into a slot of its own at each other rank, and adds what it
// received, in rank order. The data are their own flags, as in TensorRT-LLM's "Lamport" kernels: a
// word of 0 has not come yet, and a value of +0 is sent as -0. Three sets of slots take turns. A
// sum clears the set of the one before, which all ranks have left when they fill it again.
//
// A sum of which each rank needs a part sends each rank its part alone.
//
// A gathering keeps what it received. Its data may be any bytes, so each CTA raises a flag behind
// them. Two sets of slots take turns. A rank that fills a set for the second time has seen the
// flags between, which the others raise only when they have read the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/communicator.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace sluice::cuda {

inline constexpr int kMaxPeers = 8;
inline constexpr int kGatherBlocks = 128;  // CTAs of a gathering at most
inline constexpr int kSumBlocks = 264;     // CTAs of a sum at most
inline constexpr int kSumSets = 3;
inline constexpr int kGatherSets = 2;

// The words behind the slots.
struct PeerWords {
  std::uint32_t flags[kGatherBlocks][kMaxPeers];  // of gatherings: by CTA, and rank that raises it
  std::uint32_t num_gathered, gathering_ctas;     // gatherings that are over, CTAs of one that are
  std::uint32_t sum_set, summing_ctas;            // the set of the next sum
  std::uint32_t last_vectors;                     // of the last sum
};

// The memory of one rank that takes part, zeroed before the first kernel: slots of the others for
// sums [sets][others], the same for gatherings, then PeerWords. Sizes in vectors of 16 bytes.
struct PeerLayout {
  int num_peers = 0;
  std::int64_t sum_vectors = 0;     // of a slot
  std::int64_t gather_vectors = 0;  // of a slot

  constexpr std::int64_t sums_vectors() const { return kSumSets * (num_peers - 1) * sum_vectors; }
  constexpr std::int64_t slots_bytes() const {
    return 16 * (sums_vectors() + kGatherSets * (num_peers - 1) * gather_vectors);
  }
  constexpr std::int64_t bytes() const {
    return slots_bytes() + static_cast<std::int64_t>(sizeof(PeerWords));
  }
  // Which slot of `to` is that of rank `from`.
  constexpr int slot_of(int from, int to) const { return (from - to + num_peers) % num_peers - 1; }
};

struct PeerSum {
  PeerLayout layout;
  int rank = 0;
  int sm = 0;                         // compute capability x 10 of this GPU
  std::byte* memory[kMaxPeers] = {};  // of every rank, as this GPU reaches it
  // Host memory that the GPU reads: not 0 ends all waits, and the results are worthless.
  const int* stop = nullptr;
};

// CTAs for `vectors` of 16 bytes.
int peer_sum_blocks(std::int64_t vectors, int most);

// Into how many pieces each part, in elements, is cut, so that none is longer than a slot. 0: a
// part has no multiple of 8 elements, or a piece would be empty, and no sum may leave a rank out.
std::int64_t peer_part_pieces(const PeerLayout& layout, std::span<const RowPart> parts, DType wire);

// Numbers of a vector of 16 bytes on its way.
inline std::int64_t numbers_of_vector(DType wire) {
  return 16 / dtype_size(wire);
}

// The sum over the ranks of x, as float32 of numbers that were rounded to `wire` (float32 or
// bfloat16), in rank order. It is added to `to`; where that is undefined, it takes x's place. x,
// to: dense float32 on the GPU, 16-byte aligned, of one size: a multiple of 8 elements, at most the
// numbers of a slot. Every rank gives the same shape. A sum of zeros may be -0. Error{kFatal}: the
// launch failed.
void sum_over_peers(const PeerSum& sum, const Tensor& x, const Tensor& to, DType wire,
                    const Stream& stream);
// The same of a part for each rank: parts[r] of x, in elements, is replaced on rank r, and the rest
// of x is of no use then. peer_part_pieces() is not 0.
void sum_parts_over_peers(const PeerSum& sum, const Tensor& x, std::span<const RowPart> parts,
                          DType wire, const Stream& stream);
// out := the x of every rank, in rank order. On the GPU, 16-byte aligned; x is dense, and `out` is,
// or it is [ranks, M, N] with gaps where x is [M, N]. A row with gaps, else x, has a multiple of 16
// bytes; x may be longer than a slot. Error{kFatal}: the launch failed.
void gather_over_peers(const PeerSum& sum, const Tensor& x, const Tensor& out,
                       const Stream& stream);

}  // namespace sluice::cuda
