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

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// More than two slots, and not a multiple of one.
constexpr std::int64_t kLarge = 2 * SharedRegion::kSlotBytes / 4 + 1237;

float value_of(int rank, std::int64_t i) {
  return static_cast<float>((i * 2654435761u + static_cast<std::uint64_t>(rank) * 40503u) % 1000) /
             7.0f +
         static_cast<float>(rank);
}

std::vector<float> values_of(int rank, std::int64_t count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) x[static_cast<std::size_t>(i)] = value_of(rank, i);
  return x;
}

Tensor tensor_of(std::vector<float>& x) {
  return Tensor::dense(x.data(), DType::kF32, {static_cast<std::int64_t>(x.size())});
}

// What every rank of `size` does and checks; the number of mistakes.
int run_collectives(Communicator& communicator) {
  const int rank = communicator.rank(), size = communicator.size();
  int mistakes = 0;
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{1000}, kLarge}) {
    std::vector<float> x = values_of(rank, count);
    communicator.all_reduce(tensor_of(x));
    for (std::int64_t i = 0; i < count; ++i) {
      float sum = value_of(0, i);  // in the order of the ranks
      for (int other = 1; other < size; ++other) sum += value_of(other, i);
      mistakes += x[static_cast<std::size_t>(i)] != sum;
    }
    std::vector<float> part = values_of(rank, count), all(part.size() * size);
    communicator.all_gather(tensor_of(part), tensor_of(all));
    for (int other = 0; other < size; ++other)
      for (std::int64_t i = 0; i < count; ++i)
        mistakes += all[static_cast<std::size_t>(other * count + i)] != value_of(other, i);
    std::vector<float> sent = values_of(rank, count);
    communicator.broadcast(tensor_of(sent), size - 1);
    mistakes += sent != values_of(size - 1, count);
  }
  // Rows of three columns, of which slots hold no whole number.
  const std::int64_t rows = SharedRegion::kSlotBytes / 12 + 5;
  std::vector<float> part = values_of(rank, 3 * rows), whole(part.size() * size);
  Tensor columns = Tensor::dense(whole.data(), DType::kF32, {size, rows, 3});
  columns.stride = {3, std::int64_t{3} * size, 1};
  communicator.all_gather(Tensor::dense(part.data(), DType::kF32, {rows, 3}), columns);
  for (std::int64_t row = 0; row < rows; ++row)
    for (int other = 0; other < size; ++other)
      for (std::int64_t i = 0; i < 3; ++i)
        mistakes += whole[static_cast<std::size_t>((row * size + other) * 3 + i)] !=
                    value_of(other, 3 * row + i);
  // One and an eighth of its last bit is lost if each addition rounds to bfloat16.
  std::vector<BF16> narrow(100, BF16(rank == 0 ? 1.0f : 0.00390625f));
  communicator.all_reduce(Tensor::dense(narrow.data(), DType::kBF16, {100}));
  const float expected =
      static_cast<float>(BF16(1.0f + 0.00390625f * static_cast<float>(size - 1)));
  for (const BF16 value : narrow) mistakes += static_cast<float>(value) != expected;
  for (int i = 0; i < 1000; ++i) communicator.barrier();
  return mistakes;
}

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

// Tensors of many sizes, of which the largest is longer than the ring. Says how many numbers are
// wrong.
constexpr std::int64_t kLinkSizes[] = {
    1,       777,
    0,       SharedRegion::kPieceBytes / 4,
    300'001, SharedRegion::kPieceBytes* SharedRegion::kPieces / 3,
    5};

void send_tensors(StageLink& link, int rank) {
  for (const std::int64_t size : kLinkSizes) {
    std::vector<float> values = values_of(rank, size);
    link.send(Tensor::dense(values.data(), DType::kF32, {size}));
    std::ranges::fill(values, -1.0f);  // the receiver has its own
  }
}

int receive_tensors(StageLink& link, int rank) {
  int mistakes = 0;
  for (const std::int64_t size : kLinkSizes) {
    std::vector<float> values(static_cast<std::size_t>(size));
    link.receive(Tensor::dense(values.data(), DType::kF32, {size}));
    mistakes += values != values_of(rank, size);
  }
  return mistakes;
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

// Two stages of two ranks: collectives of a stage, links from rank 2 to 0 and from 3 to 1, and
// collectives of all.
int run_stages(SharedRegion& region, int rank) {
  SharedMemoryCommunicator all(region, rank, 0), stage(region, {rank / 2 * 2, 2}, rank, 0);
  int mistakes = 0;
  // A stage makes more operations than the other one.
  for (int i = 0; i < (rank < 2 ? 3 : 5); ++i) mistakes += run_collectives(stage);
  SharedMemoryLink link(region, rank % 2 + 2, rank % 2, 0);
  if (rank >= 2)
    send_tensors(link, rank);
  else
    mistakes += receive_tensors(link, rank + 2);
  return mistakes + run_collectives(all);
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
