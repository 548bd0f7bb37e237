#include "distributed/hosts/region_mirror.h"

#include "base/error.h"

namespace sluice {

using enum FrameKind;

RegionMirror::RegionMirror(SharedRegion& region, const NodeLayout& layout, int node, Send send)
    : region_(region), layout_(layout), node_(node), send_(std::move(send)) {
  const auto size = static_cast<std::size_t>(region.size());
  for (auto& counts : posted_) counts.resize(size);
  for (auto* counts : {&pieces_, &taken_, &results_}) counts->resize(size);
  region_.start_bell();
}

void RegionMirror::send_news() {
  for (int rank = 0; rank < layout_.num_ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const int sender = layout_.sender_to(rank);
    const bool has_sender = sender < layout_.num_ranks;
    if (!is_here(rank)) {
      if (has_sender && is_here(sender)) send_pieces(rank);
      continue;
    }
    send_posts(rank);
    while (const std::optional<std::uint64_t> hash = region_.result(rank, results_[r])) {
      if (node_ != 0)
        send_(0,
              {.kind = kResult,
               .rank = static_cast<std::uint16_t>(rank),
               .number = results_[r],
               .value = *hash},
              {});
      ++results_[r];
    }
    if (!has_sender || is_here(sender)) continue;
    const std::uint32_t taken = SharedRegion::count_of(region_.taken(rank));
    if (taken == taken_[r]) continue;
    taken_[r] = taken;
    send_(node_ == 0 ? layout_.node_of(sender) : 0,
          {.kind = kTaken, .rank = static_cast<std::uint16_t>(rank), .number = taken}, {});
  }
}

void RegionMirror::send_posts(int rank) {
  for (const SharedRegion::Lane lane : {SharedRegion::kAllRanks, SharedRegion::kStageRanks}) {
    std::uint32_t& sent = posted_[lane][static_cast<std::size_t>(rank)];
    const std::uint32_t count = SharedRegion::count_of(region_.posted(lane, rank));
    for (; sent != count; ++sent) {
      const FrameHead head{.kind = kPost,
                           .rank = static_cast<std::uint16_t>(rank),
                           .lane = lane,
                           .number = sent,
                           .bytes = region_.slot_bytes(lane, rank, sent)};
      const std::span<const std::byte> bytes(region_.slot(lane, rank, sent), head.bytes);
      bool to_any = false;
      for (int node = 0; node < layout_.num_nodes; ++node) {
        if (node == node_ || !layout_.joins(node, lane, rank)) continue;
        to_any = true;
        if (node_ == 0) send_(node, head, bytes);
      }
      if (node_ != 0 && to_any) send_(0, head, bytes);
    }
  }
}

void RegionMirror::send_pieces(int rank) {
  std::uint32_t& sent = pieces_[static_cast<std::size_t>(rank)];
  const std::uint32_t count = SharedRegion::count_of(region_.sent(rank));
  for (; sent != count; ++sent) {
    const FrameHead head{.kind = kPiece,
                         .rank = static_cast<std::uint16_t>(rank),
                         .number = sent,
                         .bytes = region_.piece_bytes(rank, sent)};
    send_(node_ == 0 ? layout_.node_of(rank) : 0, head, {region_.piece(rank, sent), head.bytes});
  }
}

bool RegionMirror::may_come(int rank, int from) const {
  if (rank >= layout_.num_ranks) return false;
  return node_ == 0 ? layout_.node_of(rank) == from : !is_here(rank);
}

void RegionMirror::expect(bool condition, const FrameHead& head, int from) const {
  if (!condition)
    fail(ErrorKind::kFatal, "node {} sent a frame of kind {} that cannot come now", from,
         static_cast<int>(head.kind));
}

std::span<std::byte> RegionMirror::place_of(const FrameHead& head, int from) {
  const auto bytes = static_cast<std::int64_t>(head.bytes);
  if (head.kind == kPost) {
    expect(head.lane < SharedRegion::kLanes && may_come(head.rank, from) &&
               bytes <= SharedRegion::kSlotBytes,
           head, from);
    const auto lane = static_cast<SharedRegion::Lane>(head.lane);
    expect(head.number == SharedRegion::count_of(region_.posted(lane, head.rank)), head, from);
    return {region_.slot(lane, head.rank, head.number), head.bytes};
  }
  if (head.kind == kPiece) {
    expect(head.rank < layout_.num_ranks && may_come(layout_.sender_to(head.rank), from) &&
               bytes <= SharedRegion::kPieceBytes &&
               head.number == SharedRegion::count_of(region_.sent(head.rank)),
           head, from);
    return {region_.piece(head.rank, head.number), head.bytes};
  }
  const bool is_known = (head.kind == kTaken || (head.kind == kResult && node_ == 0));
  expect(is_known && may_come(head.rank, from) && bytes == 0, head, from);
  return {};
}

void RegionMirror::arrived(const FrameHead& head, int from) {
  const int rank = head.rank;
  if (head.kind == kPost) {
    const auto lane = static_cast<SharedRegion::Lane>(head.lane);
    region_.slot_bytes(lane, rank, head.number) = head.bytes;
    pass_on(head, from);
    SharedRegion::set(region_.posted(lane, rank), head.number + 1);
  } else if (head.kind == kPiece) {
    region_.piece_bytes(rank, head.number) = head.bytes;
    pass_on(head, from);
    SharedRegion::set(region_.sent(rank), head.number + 1);
  } else if (head.kind == kTaken) {
    const int sender = layout_.sender_to(rank);
    const std::uint32_t before = SharedRegion::count_of(region_.taken(rank));
    expect(sender < layout_.num_ranks && head.number - before <= SharedRegion::kPieces, head, from);
    pass_on(head, from);
    SharedRegion::set(region_.taken(rank), head.number);
  } else {
    const bool is_next = !region_.result(rank, head.number) &&
                         (head.number == 0 || region_.result(rank, head.number - 1));
    expect(is_next, head, from);
    region_.put_result(rank, head.number, head.value);
  }
}

void RegionMirror::pass_on(const FrameHead& head, int from) {
  if (node_ != 0) return;
  if (head.kind == kPost) {
    const auto lane = static_cast<SharedRegion::Lane>(head.lane);
    for (int node = 1; node < layout_.num_nodes; ++node)
      if (node != from && layout_.joins(node, lane, head.rank))
        send_(node, head, {region_.slot(lane, head.rank, head.number), head.bytes});
    return;
  }
  const int node = layout_.node_of(head.kind == kPiece ? head.rank : layout_.sender_to(head.rank));
  if (node == 0) return;
  if (head.kind == kPiece)
    send_(node, head, {region_.piece(head.rank, head.number), head.bytes});
  else
    send_(node, head, {});
}

}  // namespace sluice
