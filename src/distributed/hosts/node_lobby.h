// How the nodes of a launch meet: node 0 listens at one address until all have joined.
//
//   NodeLobby lobby(address, key, launch, timeout);              // node 0, as early as it can
//   std::vector<JoinedNode> nodes = lobby.wait();                // closes the port
//
//   std::unique_ptr<SecureSocket> node_0 = join(address, key, launch, timeout);   // another node
//   say_ready(*node_0);
//   await_start(*node_0);
//
// Whoever has not the key is refused and logged, and disturbs nothing. A second node of one number
// is refused, too. A node that has the key and another version, option or processor ends the
// launch: both sides say what differs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "distributed/hosts/host_address.h"
#include "distributed/hosts/host_bridge.h"
#include "distributed/hosts/secure_socket.h"

namespace sluice {

// What a node is, and what all nodes must have alike.
struct NodeLaunch {
  int num_nodes = 1, node = 0;
  // {"version", "0.1.0"}, {"--tp-size", "4"}, ...: each name once.
  std::vector<std::pair<std::string, std::string>> properties = {};
};

class NodeLobby {
 public:
  // Error{kBadInput}: it cannot listen there.
  NodeLobby(const HostAddress& address, const NodeKey& key, NodeLaunch launch,
            std::chrono::duration<double> timeout);
  // Nodes that have joined see the connection close, unless wait() has given them away.
  ~NodeLobby();
  NodeLobby(const NodeLobby&) = delete;
  NodeLobby& operator=(const NodeLobby&) = delete;

  // All other nodes, once they are ready to start. They are told to. Error: a node did not come in
  // time, differs, has left, or could not get ready.
  std::vector<JoinedNode> wait();

 private:
  // One connection, in a thread of its own.
  struct Guest {
    std::unique_ptr<SecureSocket> socket;
    int node = 0;  // 0: it has not joined
    bool is_ready = false, has_left = false;
    std::thread thread;
  };
  void listen();
  void take(int fd);
  void meet(Guest& guest);
  // Whether the guest may join; says so to it.
  bool admit(Guest& guest);
  // Empty: it may. `ends_launch`: not only this guest is refused.
  std::string refusal(const NodeLaunch& theirs, const std::string& peer, bool& ends_launch);
  void note_failure(ErrorKind kind, const std::string& text);
  std::string missing_nodes() const;  // with the lock
  void close_port();

  const HostAddress address_;
  const NodeKey key_;
  const NodeLaunch launch_;
  const std::chrono::steady_clock::time_point deadline_;
  int listener_ = -1;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::list<Guest> guests_;
  std::string last_refused_;  // "10.0.0.9:4711: ..."
  bool is_stopping_ = false, has_failed_ = false;
  ErrorKind failure_kind_ = ErrorKind::kFatal;
  std::string failure_;
};

// A node beside the first joins, trying again until `timeout`. Error{kBadInput}: the key is another
// one, or node 0 refuses. Error{kFatal}: node 0 was not reached.
std::unique_ptr<SecureSocket> join(const HostAddress& address, const NodeKey& key,
                                   const NodeLaunch& launch, std::chrono::duration<double> timeout);
// The node can start its ranks, or cannot.
void say_ready(SecureSocket& node_0);
void say_failure(SecureSocket& node_0, const Error& error);
// Until all nodes are ready. Error{kFatal}: node 0 has left.
void await_start(SecureSocket& node_0);

}  // namespace sluice
