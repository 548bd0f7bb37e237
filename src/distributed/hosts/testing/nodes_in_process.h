// For tests: the nodes of a launch in one process, which meet over 127.0.0.1. Ranks are threads.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "distributed/hosts/host_bridge.h"
#include "distributed/hosts/node_lobby.h"

namespace sluice::testing {

inline constexpr std::string_view kSecret = "a secret of thirty-two characters";

// A port of 127.0.0.1 that nobody has.
inline HostAddress free_address() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return {.host = "127.0.0.1", .port = ntohs(address.sin_port)};
}

inline NodeLaunch launch_of_node(int node, int num_nodes) {
  return {.num_nodes = num_nodes, .node = node, .properties = {{"version", "1"}}};
}

// Nodes that have met, each with a region of all ranks.
struct Nodes {
  explicit Nodes(const NodeLayout& wanted) : layout(wanted), bridges(count()), processes(count()) {
    const HostAddress address = free_address();
    const NodeKey key(kSecret);
    NodeLobby lobby(address, key, launch_of_node(0, layout.num_nodes), std::chrono::seconds(20));
    std::vector<std::thread> joining;
    for (int node = 1; node < layout.num_nodes; ++node)
      joining.emplace_back([&, node] {
        auto socket =
            join(address, key, launch_of_node(node, layout.num_nodes), std::chrono::seconds(20));
        say_ready(*socket);
        await_start(*socket);
        std::vector<JoinedNode> peers;
        peers.push_back({.node = 0, .socket = std::move(socket)});
        start(node, std::move(peers));
      });
    start(0, lobby.wait());
    for (std::thread& thread : joining) thread.join();
  }
  // Each in a thread, since node 0 waits for the others.
  ~Nodes() {
    std::vector<std::thread> ending;
    for (int node = 0; node < layout.num_nodes; ++node)
      ending.emplace_back([this, node] {
        SharedRegion& own = region(node);
        HostBridge* bridge = bridges[static_cast<std::size_t>(node)].get();
        while (node > 0 && bridge && !bridge->has_ended() && !own.failure())
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        bridges[static_cast<std::size_t>(node)].reset();
      });
    for (std::thread& thread : ending) thread.join();
  }
  std::size_t count() const { return static_cast<std::size_t>(layout.num_nodes); }
  SharedRegion& region(int node) { return processes[static_cast<std::size_t>(node)]->region(); }
  HostBridge& bridge(int node) { return *bridges[static_cast<std::size_t>(node)]; }

  // Calls body(region, rank) for each rank in a thread; the sum of what they return.
  int run(const std::function<int(SharedRegion& region, int rank)>& body) {
    std::vector<int> results(static_cast<std::size_t>(layout.num_ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < layout.num_ranks; ++rank)
      threads.emplace_back([&, rank] {
        SharedRegion& own = region(layout.node_of(rank));
        try {
          results[static_cast<std::size_t>(rank)] = body(own, rank);
        } catch (const Error& error) {
          results[static_cast<std::size_t>(rank)] = 1'000'000;
          own.fail(error.kind(), error.message());
        }
      });
    for (std::thread& thread : threads) thread.join();
    int sum = 0;
    for (const int result : results) sum += result;
    return sum;
  }

  const NodeLayout layout;
  std::vector<std::unique_ptr<HostBridge>> bridges;
  std::vector<std::unique_ptr<RankProcesses>> processes;  // of no processes: for the regions

 private:
  void start(int node, std::vector<JoinedNode> peers) {
    auto& own = processes[static_cast<std::size_t>(node)];
    own = std::make_unique<RankProcesses>(layout.num_ranks, 0, 0, [] { return 0; });
    bridges[static_cast<std::size_t>(node)] =
        std::make_unique<HostBridge>(*own, layout, node, std::move(peers));
  }
};

}  // namespace sluice::testing
