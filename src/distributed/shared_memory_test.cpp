// Collectives between real processes, and what happens when one of them ends.
#include "distributed/shared_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"
#include "distributed/rank_processes.h"
#include "distributed/shared_memory_link.h"
#include "distributed/testing/rank_cases.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
using testing::receive_tensors;
using testing::run_collectives;
using testing::run_stages;
using testing::send_tensors;

// The other ranks' part of a test, in a process of its own; rank() is told through the socket.
RankEntry process(std::function<int(SharedRegion&, MessageSocket&, int rank)> body) {
  return [body = std::move(body)] {
    SharedRegion region = SharedRegion::attach(kRankRegionFd);
    MessageSocket socket(kRankSocketFd);
    Message message;
    if (!socket.receive(message)) return 0;
    const int rank = static_cast<int>(message.kind);
    const RankGuard guard(region, rank);
    try {
      return body(region, socket, rank);
    } catch (const Error&) {
      return 99;
    }
  };
}

void tell_ranks(RankProcesses& ranks) {
  for (int rank = 1; rank < ranks.size(); ++rank)
    ASSERT_TRUE(ranks.socket(rank).send(static_cast<std::uint32_t>(rank), {}));
}

class Processes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Processes, ::testing::Values(2, 3, 4));

TEST_P(Processes, HoldTheSameBitsInTheOrderOfRanks) {
  RankProcesses ranks(GetParam(),
                      process([](SharedRegion& region, MessageSocket& socket, int rank) {
                        SharedMemoryCommunicator communicator(region, rank);
                        const int mistakes = run_collectives(communicator);
                        if (mistakes > 0) region.fail(ErrorKind::kBug, "mistakes");
                        Message none;
                        while (socket.receive(none)) {
                        }
                        return 0;
                      }));
  tell_ranks(ranks);
  SharedMemoryCommunicator communicator(ranks.region(), 0, 0);
  EXPECT_EQ(run_collectives(communicator), 0);
  EXPECT_FALSE(ranks.region().failure().has_value()) << ranks.region().failure()->text;
}

TEST(Processes, ALinkKeepsTensorsInOrderAndItsSenderRunsAhead) {
  RankProcesses ranks(2, process([](SharedRegion& region, MessageSocket& socket, int) {
                        SharedMemoryLink link(region, 1, 0, 10);
                        std::vector<float> ahead(1000, 1.0f);
                        for (int i = 0; i < 3; ++i)
                          link.send(Tensor::dense(ahead.data(), DType::kF32, {1000}));
                        SharedMemoryCommunicator all(region, 1);
                        all.barrier();  // nothing was received yet
                        for (int i = 0; i < 3; ++i) send_tensors(link, 1);
                        Message none;
                        while (socket.receive(none)) {
                        }
                        return 0;
                      }));
  tell_ranks(ranks);
  SharedMemoryCommunicator all(ranks.region(), 0, 0);
  all.barrier();
  SharedMemoryLink link(ranks.region(), 1, 0, 0);
  std::vector<float> ahead(1000);
  for (int i = 0; i < 3; ++i) link.receive(Tensor::dense(ahead.data(), DType::kF32, {1000}));
  EXPECT_EQ(ahead, std::vector<float>(1000, 1.0f));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(receive_tensors(link, 1), 0);
}

TEST(Processes, StagesMakeCollectivesOfTheirOwn) {
  RankProcesses ranks(4, process([](SharedRegion& region, MessageSocket& socket, int rank) {
                        if (run_stages(region, rank) > 0) region.fail(ErrorKind::kBug, "mistakes");
                        Message none;
                        while (socket.receive(none)) {
                        }
                        return 0;
                      }));
  tell_ranks(ranks);
  EXPECT_EQ(run_stages(ranks.region(), 0), 0);
  EXPECT_FALSE(ranks.region().failure().has_value()) << ranks.region().failure()->text;
}

TEST(Processes, AWaitForALinkEndsSoonAfterItsSenderIsKilled) {
  RankProcesses ranks(2, process([](SharedRegion&, MessageSocket&, int) {
                        for (;;) pause();
                        return 0;
                      }));
  tell_ranks(ranks);
  SharedMemoryLink link(ranks.region(), 1, 0, 0);
  std::thread killer([&] { kill(ranks.pid(1), SIGKILL); });
  float number = 0;
  EXPECT_THROW(link.receive(Tensor::dense(&number, DType::kF32, {1})), Error);
  killer.join();
}

TEST(Processes, AWaitEndsSoonAfterAPeerIsKilled) {
  RankProcesses ranks(3, process([](SharedRegion& region, MessageSocket&, int rank) {
                        SharedMemoryCommunicator communicator(region, rank);
                        for (;;) communicator.barrier();
                        return 0;
                      }));
  tell_ranks(ranks);
  SharedMemoryCommunicator communicator(ranks.region(), 0);
  for (int i = 0; i < 100; ++i) communicator.barrier();
  ASSERT_EQ(kill(ranks.pid(2), SIGKILL), 0);
  const auto start = Clock::now();
  try {
    for (;;) communicator.barrier();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFatal);
    EXPECT_NE(error.message().find("rank 2 (process "), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("signal 9"), std::string::npos) << error.message();
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

// Sums until a rank is lost. Returns how many sums were whole; a wrong one is a failure.
std::uint64_t sum_until_a_loss(SharedMemoryCommunicator& communicator, SharedRegion& region,
                               std::uint64_t gone, int most) {
  std::uint64_t count = 0;
  float expected = 0;
  for (int rank = 0; rank < region.size(); ++rank)
    if ((gone >> rank & 1) == 0) expected += static_cast<float>(rank + 1);
  try {
    for (; count < static_cast<std::uint64_t>(most); ++count) {
      std::vector<float> sum(100, static_cast<float>(communicator.rank() + 1));
      communicator.all_reduce(Tensor::dense(sum.data(), DType::kF32, {100}));
      if (std::ranges::any_of(sum, [&](float value) { return value != expected; }))
        region.fail(ErrorKind::kBug, "a sum is wrong");
    }
  } catch (const RanksLost&) {
  }
  return count;
}

// One rank after another is killed at any point. The others end the same sums and interrupt the
// same one, and then go on among themselves.
TEST(Processes, LeaveTheSameOperationWhenARankIsLost) {
  constexpr int kForEver = 1 << 30, kMore = 50;
  for (int trial = 0; trial < 20; ++trial) {
    RankProcesses ranks(
        4, process([](SharedRegion& region, MessageSocket& socket, int rank) {
          SharedMemoryCommunicator communicator(region, rank);
          std::uint64_t gone = 0;
          Message message;
          for (std::uint32_t round = 0;; ++round) {
            region.put_result(rank, round, sum_until_a_loss(communicator, region, gone, kForEver));
            if (!socket.receive(message)) return 0;
            gone = message.kind;
            communicator.drop(gone);
            (void)socket.send(1, {});
          }
        }));
    tell_ranks(ranks);
    ranks.region().outlive_ranks();
    SharedMemoryCommunicator communicator(ranks.region(), 0);
    std::uint64_t gone = 0;
    std::uint32_t round = 0;
    for (const int victim : {2, 1, 3}) {
      std::thread killer([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(137 * trial));
        kill(ranks.pid(victim), SIGKILL);
      });
      const std::uint64_t count = sum_until_a_loss(communicator, ranks.region(), gone, kForEver);
      killer.join();
      gone |= std::uint64_t{1} << victim;
      ASSERT_FALSE(ranks.region().failure().has_value()) << ranks.region().failure()->text;
      ASSERT_EQ(ranks.region().lost(), gone);
      for (int rank = 1; rank < 4; ++rank) {
        if ((gone >> rank & 1) != 0) continue;
        Message answer;
        ASSERT_TRUE(ranks.socket(rank).send(static_cast<std::uint32_t>(gone), {}));
        ASSERT_TRUE(ranks.socket(rank).receive(answer));
        EXPECT_EQ(ranks.region().result(rank, round), count) << "rank " << rank;
      }
      communicator.drop(gone);
      ++round;
    }
    EXPECT_EQ(sum_until_a_loss(communicator, ranks.region(), gone, kMore), kMore);
  }
}

TEST(Processes, AStoppedRankIsKilledWhereTheOthersGoOn) {
  RankProcesses ranks(2, process([](SharedRegion& region, MessageSocket&, int rank) {
                        SharedMemoryCommunicator communicator(region, rank);
                        for (;;) communicator.barrier();
                        return 0;
                      }));
  tell_ranks(ranks);
  ranks.region().outlive_ranks();
  SharedMemoryCommunicator communicator(ranks.region(), 0);
  communicator.barrier();
  ASSERT_EQ(kill(ranks.pid(1), SIGSTOP), 0);
  const auto start = Clock::now();
  EXPECT_THROW(for (;;) communicator.barrier(), RanksLost);
  EXPECT_LT(Clock::now() - start, 2 * RankProcesses::kSilence);
  EXPECT_FALSE(ranks.region().failure().has_value());
  Message none;
  EXPECT_FALSE(ranks.socket(1).receive(none));
  EXPECT_TRUE(ranks.is_lost_soon(1));
}

TEST(Processes, AStoppedPeerCountsAsHung) {
  RankProcesses ranks(2, process([](SharedRegion& region, MessageSocket&, int rank) {
                        SharedMemoryCommunicator communicator(region, rank);
                        for (;;) communicator.barrier();
                        return 0;
                      }));
  tell_ranks(ranks);
  SharedMemoryCommunicator communicator(ranks.region(), 0);
  communicator.barrier();
  ASSERT_EQ(kill(ranks.pid(1), SIGSTOP), 0);
  const auto start = Clock::now();
  EXPECT_THROW(for (;;) communicator.barrier(), Error);
  EXPECT_LT(Clock::now() - start, 2 * RankProcesses::kSilence);
  EXPECT_NE(ranks.region().failure()->text.find("no sign of life"), std::string::npos);
}

TEST(Processes, AnErrorOfAPeerHasItsKindAndWords) {
  RankProcesses ranks(2, process([](SharedRegion& region, MessageSocket&, int) {
                        region.fail(ErrorKind::kBadInput, "the file of rank 1");
                        return 2;
                      }));
  tell_ranks(ranks);
  SharedMemoryCommunicator communicator(ranks.region(), 0);
  try {
    communicator.barrier();
    FAIL() << "nobody else was there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_EQ(error.message(), "the file of rank 1");
  }
}

TEST(Processes, EndWithTheOneThatStartedThem) {
  std::vector<int> pids;
  {
    // One waits for a message, the other for a rank that never comes.
    RankProcesses ranks(3, process([](SharedRegion& region, MessageSocket& socket, int rank) {
                          Message message;
                          if (rank == 1) return socket.receive(message) ? 1 : 0;
                          SharedMemoryCommunicator communicator(region, rank);
                          communicator.barrier();
                          return 0;
                        }));
    tell_ranks(ranks);
    pids = {ranks.pid(1), ranks.pid(2)};
    for (const int pid : pids) EXPECT_EQ(kill(pid, 0), 0);
  }
  for (const int pid : pids) EXPECT_NE(kill(pid, 0), 0) << "process " << pid << " is left";
}

TEST(SharedRegion, RefusesOtherMemory) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  close(fds[1]);
  EXPECT_THROW(SharedRegion::attach(fds[0]), Error);
  close(fds[0]);
}

TEST(MessageSocket, RefusesWhatIsNoMessage) {
  auto [here, there] = MessageSocket::pair();
  const char junk[] = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(write(here.fd(), junk, sizeof junk), static_cast<ssize_t>(sizeof junk));
  Message message;
  EXPECT_THROW(there.receive(message), Error);
}

}  // namespace
}  // namespace sluice
