// Ranks of several nodes: collectives, links, messages, and how a failure of one node reaches all.
#include "distributed/hosts/host_bridge.h"

#include <gtest/gtest.h>

#include "distributed/hosts/testing/nodes_in_process.h"
#include "distributed/testing/rank_cases.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
using testing::Nodes;

// Ranks, nodes.
class HostBridges : public ::testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Nodes, HostBridges,
                         ::testing::Values(std::pair(2, 2), std::pair(4, 2), std::pair(3, 3),
                                           std::pair(6, 3)));

TEST_P(HostBridges, HoldTheSameBitsInTheOrderOfRanks) {
  const auto [num_ranks, num_nodes] = GetParam();
  Nodes nodes({.num_ranks = num_ranks, .num_nodes = num_nodes, .num_sharers = num_ranks});
  EXPECT_EQ(nodes.run([](SharedRegion& region, int rank) {
    SharedMemoryCommunicator communicator(region, rank, 0);
    return testing::run_collectives(communicator, 100);
  }),
            0);
  for (int node = 0; node < num_nodes; ++node)
    EXPECT_FALSE(nodes.region(node).failure()) << nodes.region(node).failure()->text;
}

// Stages that lie on one node each, and stages whose ranks do not.
TEST(HostBridge, StagesMakeCollectivesAndLinksOfTheirOwn) {
  for (const int num_nodes : {2, 4}) {
    Nodes nodes({.num_ranks = 4, .num_nodes = num_nodes, .num_sharers = 2});
    EXPECT_EQ(nodes.run([](SharedRegion& region, int rank) {
      return testing::run_stages(region, rank, 30);
    }),
              0)
        << num_nodes;
    EXPECT_FALSE(nodes.region(0).failure()) << nodes.region(0).failure()->text;
  }
}

TEST(HostBridge, BringsMessagesToRanksAndTheirAnswersBack) {
  const NodeLayout layout{.num_ranks = 2, .num_nodes = 2, .num_sharers = 1};
  Nodes nodes(layout);
  // The rank's process holds the other end of the socket of node 1.
  auto [here, there] = MessageSocket::pair();
  nodes.processes[1]->socket(1) = std::move(here);
  const std::vector<std::byte> large(3 << 20, std::byte{7});
  nodes.bridge(0).send_message(1, 5, large);
  nodes.bridge(0).send_message(1, 6, {});
  Message message;
  ASSERT_TRUE(there.receive(message));
  EXPECT_EQ(message.kind, 5u);
  EXPECT_EQ(message.bytes, large);
  ASSERT_TRUE(there.receive(message));
  EXPECT_EQ(message.kind, 6u);
}

TEST(HostBridge, ResultsReachTheFirstNode) {
  Nodes nodes({.num_ranks = 3, .num_nodes = 3, .num_sharers = 3});
  for (std::uint32_t step = 0; step < 200; ++step) {
    nodes.region(1).put_result(1, step, 1000 + step);
    nodes.region(2).put_result(2, step, 2000 + step);
    for (const int rank : {1, 2}) {
      const auto deadline = Clock::now() + std::chrono::seconds(10);
      while (!nodes.region(0).result(rank, step) && Clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ASSERT_EQ(nodes.region(0).result(rank, step), 1000 * static_cast<unsigned>(rank) + step);
    }
    if (step == 3) step = 190;  // the naps between rings take a tenth of a second
  }
}

TEST(HostBridge, AFailureOfOneNodeIsSoonThatOfAll) {
  Nodes nodes({.num_ranks = 3, .num_nodes = 3, .num_sharers = 3});
  const auto start = Clock::now();
  nodes.region(2).fail(ErrorKind::kBadInput, "the file of rank 2");
  for (const int node : {0, 1}) {
    SharedMemoryCommunicator waiting(nodes.region(node), node, 0);
    try {
      waiting.barrier();
      FAIL() << "nobody else was there";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_EQ(error.message(), "node 2: the file of rank 2");
    }
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
}

TEST(HostBridge, ANodeThatClosesIsAFailureAtOnce) {
  Nodes nodes({.num_ranks = 2, .num_nodes = 2, .num_sharers = 2});
  const auto start = Clock::now();
  nodes.bridges[1].reset();
  SharedMemoryCommunicator waiting(nodes.region(0), 0, 0);
  EXPECT_THROW(waiting.barrier(), Error);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));
  EXPECT_NE(nodes.region(0).failure()->text.find("node 1 (127.0.0.1:"), std::string::npos);
  EXPECT_NE(nodes.region(0).failure()->text.find("closed the connection"), std::string::npos);
}

TEST(HostBridge, AnEndInOrderIsNoFailure) {
  Nodes nodes({.num_ranks = 2, .num_nodes = 2, .num_sharers = 2});
  std::thread ending([&] { nodes.bridges[0].reset(); });
  while (!nodes.bridge(1).has_ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  nodes.bridges[1].reset();
  ending.join();
  EXPECT_FALSE(nodes.region(0).failure());
  EXPECT_FALSE(nodes.region(1).failure());
}

// Node 0 with a node 1 that is played by the test.
class PlayedNode {
 public:
  PlayedNode() {
    const HostAddress address = testing::free_address();
    const NodeKey key(testing::kSecret);
    NodeLobby lobby(address, key, testing::launch_of_node(0, 2), std::chrono::seconds(20));
    std::thread joining([&] {
      socket = join(address, key, testing::launch_of_node(1, 2), std::chrono::seconds(20));
      say_ready(*socket);
    });
    std::vector<JoinedNode> nodes = lobby.wait();
    joining.join();
    await_start(*socket);
    processes = std::make_unique<RankProcesses>(4, 0, 0, [] { return 0; });
    bridge = std::make_unique<HostBridge>(
        *processes, NodeLayout{.num_ranks = 4, .num_nodes = 2, .num_sharers = 2}, 0,
        std::move(nodes));
  }
  ~PlayedNode() {
    socket.reset();
    bridge.reset();
  }
  std::string failure_within(std::chrono::seconds time) {
    const auto deadline = Clock::now() + time;
    while (!processes->region().failure() && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return processes->region().failure() ? processes->region().failure()->text : "";
  }

  std::unique_ptr<SecureSocket> socket;
  std::unique_ptr<RankProcesses> processes;
  std::unique_ptr<HostBridge> bridge;
};

TEST(HostBridge, RefusesFramesThatCannotCome) {
  using enum FrameKind;
  const std::uint32_t slot = SharedRegion::kSlotBytes, piece = SharedRegion::kPieceBytes;
  const FrameHead frames[] = {
      {.kind = kPost, .rank = 1},                       // a rank of node 0
      {.kind = kPost, .rank = 4},                       // there is none
      {.kind = kPost, .rank = 2, .lane = 2},            // there is none
      {.kind = kPost, .rank = 2, .number = 1},          // 0 is next
      {.kind = kPost, .rank = 2, .bytes = slot + 1},    // more than a slot
      {.kind = kPiece, .rank = 0, .bytes = piece + 1},  // more than a piece
      {.kind = kPiece, .rank = 2},                      // nobody sends to the first stage
      {.kind = kPiece, .rank = 0xffff},                 //
      {.kind = kPiece, .rank = 0, .number = 1},         //
      {.kind = kTaken, .rank = 2, .number = 1},         // the first stage receives nothing
      {.kind = kTaken, .rank = 0},                      // it is node 0's to say
      {.kind = kTaken, .rank = 2, .bytes = 8},          //
      {.kind = kResult, .rank = 2, .number = 1},        // 0 is next
      {.kind = kMessage, .rank = 1},                    // from a rank of node 0
      {.kind = kMessage, .rank = 2, .bytes = 0xffffffff},
      {.kind = kFailure, .bytes = 1 << 20},
      {.kind = kEnd},
      {.kind = kBeat, .bytes = 3},
      {.kind = kJoin},
      {.kind = FrameKind{999}, .bytes = 0xffffffff},
  };
  int number = 0;
  for (const FrameHead& head : frames) {
    PlayedNode node;
    node.socket->send(bytes_of(head), {});
    const std::string why = node.failure_within(std::chrono::seconds(3));
    EXPECT_NE(why.find("cannot be understood"), std::string::npos) << number << ": " << why;
    ++number;
  }
}

TEST(HostBridge, ASilentNodeCountsAsHung) {
  PlayedNode node;
  const auto start = Clock::now();
  const std::string why = node.failure_within(2 * NodeLink::kSilence);
  EXPECT_NE(why.find("node 1 (127.0.0.1:"), std::string::npos) << why;
  EXPECT_NE(why.find("shows no sign of life for 5 s"), std::string::npos) << why;
  EXPECT_GE(Clock::now() - start, NodeLink::kSilence - std::chrono::milliseconds(500));
}

}  // namespace
}  // namespace sluice
