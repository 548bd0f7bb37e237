// Keeps the regions of several hosts alike. Each host has a region of all ranks, which its own
// ranks write as those of one host do; the mirror brings what they wrote to the hosts that need it.
//
//   RegionMirror mirror(region, layout, node, send);
//   mirror.send_news();                          // one thread, whenever the bell has rung
//   std::span<std::byte> place = mirror.place_of(head, from);   // the reader of a link
//   mirror.arrived(head, from);                  // once the payload lies there
//
// Nodes send to node 0, which passes on what others need. A slot is free when its next content
// arrives: a rank posts operation n when it has seen all ranks post n - 1, also those of this host,
// and these have read n - 2 then. The same holds for pieces of a link, which wait until the
// receiver has taken the piece 16 before.
//
// Error{kFatal}: a frame is not what can come next.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "distributed/hosts/node_frame.h"
#include "distributed/shared_region.h"

namespace sluice {

class RegionMirror {
 public:
  // To a node that has a link to this one. The payload is read before the call returns.
  using Send = std::function<void(int node, const FrameHead& head, std::span<const std::byte>)>;

  // `region` outlives the mirror.
  RegionMirror(SharedRegion& region, const NodeLayout& layout, int node, Send send);

  void send_news();
  // Where the payload of a frame goes that came from `from`.
  std::span<std::byte> place_of(const FrameHead& head, int from);
  void arrived(const FrameHead& head, int from);

 private:
  bool is_here(int rank) const { return layout_.node_of(rank) == node_; }
  // Whether a frame about `rank` may come from that node: its own, or one that node 0 speaks for.
  bool may_come(int rank, int from) const;
  void expect(bool condition, const FrameHead& head, int from) const;
  void pass_on(const FrameHead& head, int from);
  void send_posts(int rank);
  void send_pieces(int rank);

  SharedRegion& region_;
  const NodeLayout layout_;
  const int node_;
  const Send send_;
  // What was sent, by rank. Of the thread that calls send_news().
  std::array<std::vector<std::uint32_t>, SharedRegion::kLanes> posted_;
  std::vector<std::uint32_t> pieces_, taken_, results_;
};

}  // namespace sluice
