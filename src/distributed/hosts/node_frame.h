// What nodes send each other: a head of fixed layout, and as many bytes as it says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "distributed/shared_region.h"

namespace sluice {

enum class FrameKind : std::uint16_t {
  // Before the start (distributed/hosts/node_lobby.h).
  kJoin = 1,  // what the node is and has
  kWelcome,
  kRefusal,  // the payload says why
  kReady,
  kStart,
  // Afterwards.
  kBeat,     // a sign of life
  kEnd,      // node 0 ends in order
  kFailure,  // number: the kind of the error; the payload is its text
  kPost,     // of `rank` in `lane`; number: the operation
  kPiece,    // to `rank` from the stage before it; number: of the piece
  kTaken,    // number: of the pieces that `rank` has taken
  kResult,   // number: of the step; value: the hash
  kMessage,  // to `rank`, or on node 0 from it; number: the kind
};

struct FrameHead {
  FrameKind kind = FrameKind::kBeat;
  std::uint16_t rank = 0;
  std::uint32_t lane = 0;
  std::uint32_t number = 0;
  std::uint32_t bytes = 0;
  std::uint64_t value = 0;
};
static_assert(sizeof(FrameHead) == 24);

// The `number` of a failure; one that no kind has is that of a fault for good.
inline ErrorKind error_kind_of(std::uint32_t number) {
  const auto last = static_cast<std::uint32_t>(ErrorKind::kFatal);
  return static_cast<ErrorKind>(number < last ? number : last);
}

inline std::span<const std::byte> bytes_of(const FrameHead& head) {
  return std::as_bytes(std::span(&head, 1));
}

// Which ranks a launch has, and on which nodes: consecutive ranks share a node.
struct NodeLayout {
  int num_ranks = 1, num_nodes = 1;
  int num_sharers = 1;  // ranks of a stage, or of a group of data-parallel attention

  int ranks_of_node() const { return num_ranks / num_nodes; }
  int node_of(int rank) const { return rank / ranks_of_node(); }
  int first_rank(int node) const { return node * ranks_of_node(); }
  // Whether a node has ranks that make collectives of this lane with `rank`.
  bool joins(int node, SharedRegion::Lane lane, int rank) const {
    if (lane == SharedRegion::kAllRanks) return true;
    const int first = rank / num_sharers * num_sharers;
    return node >= node_of(first) && node <= node_of(first + num_sharers - 1);
  }
  // The rank of the stage before that sends to `rank`; num_ranks or more: there is none.
  int sender_to(int rank) const { return rank + num_sharers; }
};

}  // namespace sluice
