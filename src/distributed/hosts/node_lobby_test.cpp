// How nodes meet: who may join, who is refused, and what all are told.
#include "distributed/hosts/node_lobby.h"

#include <gtest/gtest.h>

#include <future>

#include "distributed/hosts/testing/nodes_in_process.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
using testing::free_address;
using testing::kSecret;
using testing::launch_of_node;
constexpr std::chrono::seconds kPatience{20};

std::string error_of(const std::function<void()>& body, ErrorKind kind) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.message();
    return error.message();
  }
  return "no error";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class Lobby : public ::testing::Test {
 protected:
  std::future<std::string> joins(const NodeLaunch& launch, std::string_view secret = kSecret,
                                 bool stays = true) {
    return std::async(std::launch::async, [=, this, secret = std::string(secret)] {
      try {
        auto socket = join(address_, NodeKey(secret), launch, kPatience);
        if (!stays) return std::string();
        say_ready(*socket);
        await_start(*socket);
        return std::string();
      } catch (const Error& error) {
        return error.message();
      }
    });
  }
  int connect() {
    std::string why;
    const int fd = connect_to(address_, Clock::now() + kPatience, why);
    EXPECT_GE(fd, 0) << why;
    return fd;
  }

  const HostAddress address_ = free_address();
  const NodeKey key_{kSecret};
};

TEST_F(Lobby, NodesMeetAndThePortIsClosed) {
  NodeLobby lobby(address_, key_, launch_of_node(0, 3), kPatience);
  auto second = joins(launch_of_node(2, 3)), first = joins(launch_of_node(1, 3));
  const std::vector<JoinedNode> nodes = lobby.wait();
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].node + nodes[1].node, 3);
  EXPECT_EQ(first.get(), "");
  EXPECT_EQ(second.get(), "");
  std::string why;
  EXPECT_EQ(connect_to(address_, Clock::now() + kPatience, why), -1);
}

TEST_F(Lobby, ANodeMayComeBeforeItListens) {
  auto early = joins(launch_of_node(1, 2));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  NodeLobby lobby(address_, key_, launch_of_node(0, 2), kPatience);
  EXPECT_EQ(lobby.wait().size(), 1u);
  EXPECT_EQ(early.get(), "");
}

TEST_F(Lobby, StrangersDisturbNothing) {
  NodeLobby lobby(address_, key_, launch_of_node(0, 2), kPatience);
  // One has another key, one speaks HTTP, one says nothing, one leaves at once.
  const std::string refused =
      joins(launch_of_node(1, 2), "another secret of the same number of characters").get();
  EXPECT_HAS(refused, "it does not have the same key");
  EXPECT_HAS(refused, "--dist-key-file");
  const int http = connect(), silent = connect();
  close(connect());
  constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
  ASSERT_GT(write(http, kRequest.data(), kRequest.size()), 0);
  const auto start = Clock::now();
  auto right = joins(launch_of_node(1, 2));
  EXPECT_EQ(lobby.wait().size(), 1u);
  EXPECT_EQ(right.get(), "");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(4));
  close(http);
  close(silent);
}

TEST_F(Lobby, ASecondNodeOfOneNumberIsRefusedAlone) {
  NodeLobby lobby(address_, key_, launch_of_node(0, 3), kPatience);
  auto first = joins(launch_of_node(1, 3));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_HAS(joins(launch_of_node(1, 3)).get(), "--node-rank 1 is taken by 127.0.0.1:");
  auto second = joins(launch_of_node(2, 3));
  EXPECT_EQ(lobby.wait().size(), 2u);
  EXPECT_EQ(first.get(), "");
  EXPECT_EQ(second.get(), "");
}

TEST_F(Lobby, ADifferenceIsNamedOnBothSides) {
  const std::pair<NodeLaunch, std::string> cases[] = {
      {{.num_nodes = 2, .node = 1, .properties = {{"version", "2"}}},
       "version: 1 on node 0, 2 on node 1"},
      {{.num_nodes = 2, .node = 1, .properties = {{"version", "1"}, {"--dtype", "float32"}}},
       "--dtype: not given on node 0, float32 on node 1"},
      {launch_of_node(1, 3), "--nnodes: 2 on node 0, 3 on node 1"},
      {launch_of_node(2, 2), "--node-rank 2 (127.0.0.1:"},
  };
  for (const auto& [launch, text] : cases) {
    const HostAddress address = free_address();
    NodeLobby lobby(address, key_, launch_of_node(0, 2), kPatience);
    auto other = std::async(std::launch::async, [&, launch = launch] {
      return error_of([&] { (void)join(address, key_, launch, kPatience); }, ErrorKind::kBadInput);
    });
    EXPECT_HAS(error_of([&] { (void)lobby.wait(); }, ErrorKind::kBadInput), text);
    const std::string there = other.get();
    EXPECT_HAS(there, "refuses this node");
    EXPECT_HAS(there, text);
  }
}

TEST_F(Lobby, WhoIsMissingIsSaidInTime) {
  NodeLobby lobby(address_, key_, launch_of_node(0, 4), std::chrono::milliseconds(700));
  auto there = joins(launch_of_node(2, 4));
  (void)joins(launch_of_node(1, 4), "another secret of the same number of characters").get();
  const std::string why = error_of([&] { (void)lobby.wait(); }, ErrorKind::kFatal);
  EXPECT_HAS(why, "nodes 1, 3 of 4 did not come to 127.0.0.1:");
  EXPECT_HAS(why, "refused was a connection from 127.0.0.1:");
  EXPECT_HAS(there.get(), "node 0: nodes 1, 3 of 4 did not come");
}

TEST_F(Lobby, ANodeThatLeavesOrFailsBeforeTheStartEndsTheLaunch) {
  {
    NodeLobby lobby(address_, key_, launch_of_node(0, 3), kPatience);
    EXPECT_EQ(joins(launch_of_node(1, 3), kSecret, false).get(), "");
    EXPECT_HAS(error_of([&] { (void)lobby.wait(); }, ErrorKind::kFatal),
               "closed the connection before the start");
  }
  NodeLobby lobby(address_, key_, launch_of_node(0, 2), kPatience);
  auto socket = join(address_, key_, launch_of_node(1, 2), kPatience);
  std::thread failing(
      [&] { say_failure(*socket, Error(ErrorKind::kBadInput, "there is no such model")); });
  const std::string why = error_of([&] { (void)lobby.wait(); }, ErrorKind::kBadInput);
  EXPECT_HAS(why, "node 1 (127.0.0.1:");
  EXPECT_HAS(why, "there is no such model");
  failing.join();
}

TEST_F(Lobby, ANodeWithoutNodeZeroEndsInTime) {
  const auto start = Clock::now();
  EXPECT_HAS(
      error_of(
          [&] { (void)join(address_, key_, launch_of_node(1, 2), std::chrono::milliseconds(500)); },
          ErrorKind::kFatal),
      "Connection refused");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

TEST_F(Lobby, APortInUseAndAnAddressOfAnotherHostAreRefused) {
  const NodeLobby lobby(address_, key_, launch_of_node(0, 2), kPatience);
  EXPECT_HAS(error_of([&] { listen_at(address_); }, ErrorKind::kBadInput),
             "Address already in use");
  EXPECT_HAS(
      error_of([] { listen_at({.host = "192.0.2.1", .port = 20000}); }, ErrorKind::kBadInput),
      "this host has no such address");
}

TEST(HostAddress, IsHostAndPort) {
  EXPECT_EQ(HostAddress::parse("node-0.example:20000").host, "node-0.example");
  EXPECT_EQ(HostAddress::parse("10.0.0.1:20000").port, 20000);
  EXPECT_EQ(HostAddress::parse("[fd00::1]:1").host, "fd00::1");
  EXPECT_EQ(HostAddress::parse("[fd00::1]:1").text(), "[fd00::1]:1");
  for (const std::string_view text :
       {"", ":1", "host", "host:", "host:0", "host:65536", "host:1x", "fd00::1:20000"})
    EXPECT_THROW(HostAddress::parse(text), Error) << text;
}

}  // namespace
}  // namespace sluice
