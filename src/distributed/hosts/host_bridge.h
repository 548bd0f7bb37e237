// What joins the ranks of several hosts to one model: on each host it keeps the region like that of
// the others, brings messages to ranks elsewhere, and tells of failures.
//
//   HostBridge bridge(processes, layout, 0, std::move(peers));     // node 0
//   bridge.send_message(3, kind, bytes);                           // to a rank of another node
//   bridge.receive_message(3, message);
//
//   HostBridge bridge(processes, layout, 1, std::move(node_0));    // another node
//   while (!bridge.has_ended()) ...                                // or the region has failed
//
// A failure of one region is soon that of all. A node that closes, or is silent for
// NodeLink::kSilence, is a failure. Ranks know nothing of it: they use their region.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "distributed/hosts/node_link.h"
#include "distributed/hosts/region_mirror.h"
#include "distributed/rank_processes.h"

namespace sluice {

// A node that has joined the launch.
struct JoinedNode {
  int node = 0;
  std::unique_ptr<SecureSocket> socket;
};

class HostBridge {
 public:
  // `processes` are this host's, and outlive the bridge. `peers`: all other nodes on node 0; node 0
  // on the others.
  HostBridge(RankProcesses& processes, const NodeLayout& layout, int node,
             std::vector<JoinedNode> peers);
  // The other nodes end: in order, or with the failure, or because node 0 could not start.
  ~HostBridge();

  bool is_here(int rank) const { return layout_.node_of(rank) == node_; }
  // On node 0, by one thread. Error: the failure of the region.
  void send_message(int rank, std::uint32_t kind, std::span<const std::byte> bytes);
  void receive_message(int rank, Message& message);

  // On the other nodes: node 0 has ended in order.
  bool has_ended() const { return has_ended_; }
  // Ranks get no more messages. Before they are ended.
  void stop_messages();

 private:
  struct Peer {
    std::vector<std::byte> payload;  // of a frame that is no part of the region
    std::unique_ptr<NodeLink> link;
  };
  std::span<std::byte> place_of(Peer& peer, const FrameHead& head, int from);
  void arrived(Peer& peer, const FrameHead& head, int from);
  void send(int node, const FrameHead& head, std::span<const std::byte> payload);
  void watch_region();     // a thread
  void deliver();          // a thread of nodes beside the first: messages to ranks
  void collect_answers();  // the same: messages from ranks
  void tell_failure();

  RankProcesses& processes_;
  SharedRegion& region_;
  const NodeLayout layout_;
  const int node_, num_exceptions_;
  std::vector<Peer> peers_;  // by node on node 0, with nothing for itself; else one
  RegionMirror mirror_;
  std::atomic<bool> has_ended_{false}, is_stopping_{false};
  bool has_told_failure_ = false;  // of the thread that watches the region
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  struct Addressed {
    int rank = 0;
    Message message;
  };
  std::deque<Addressed> to_ranks_;
  std::vector<std::deque<Message>> from_ranks_;  // [ranks]
  std::string told_failure_;                     // by another node
  bool has_stopped_messages_ = false;
  std::thread watcher_, courier_, collector_;
};

}  // namespace sluice
