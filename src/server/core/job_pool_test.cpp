#include "server/core/job_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(JobPool, AnotherJobRunsInPlaceOfOneThatWaits) {
  std::promise<void> later, over;
  JobPool pool(1);
  ASSERT_TRUE(pool.submit([&] {
    const JobPool::Waiting waiting;
    later.get_future().wait();
    over.set_value();
  }));
  ASSERT_TRUE(pool.submit([&] { later.set_value(); }));
  EXPECT_EQ(over.get_future().wait_for(seconds(120)), std::future_status::ready);
}

TEST(JobPool, ManyWaitAtOnceAndTheirThreadsAreUsedAgain) {
  constexpr int kJobs = 100;
  struct Round {
    std::atomic<int> num_over = 0;
    std::promise<void> start, all;
    std::shared_future<void> started = start.get_future().share();
  };
  std::array<Round, 3> rounds;
  JobPool pool(2);
  for (Round& round : rounds) {
    for (int i = 0; i < kJobs; ++i)
      ASSERT_TRUE(pool.submit([&round] {
        {
          const JobPool::Waiting waiting;
          round.started.wait();
        }
        if (++round.num_over == kJobs) round.all.set_value();
      }));
    ASSERT_TRUE(pool.submit([&round] { round.start.set_value(); }));
    ASSERT_EQ(round.all.get_future().wait_for(seconds(120)), std::future_status::ready);
  }
}

TEST(JobPool, NoMoreRunAtOnceOnceNoneWaits) {
  std::promise<void> go, back;
  std::atomic<int> num_running = 0, most = 0, num_over = 0;
  JobPool pool(2);
  ASSERT_TRUE(pool.submit([&] {
    {
      const JobPool::Waiting waiting;
      go.get_future().wait();
    }
    back.set_value();
  }));
  ASSERT_TRUE(pool.submit([&] { go.set_value(); }));
  back.get_future().wait();
  constexpr int kJobs = 40;
  for (int i = 0; i < kJobs; ++i)
    ASSERT_TRUE(pool.submit([&] {
      const int now = ++num_running;
      for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
      }
      std::this_thread::sleep_for(milliseconds(2));
      --num_running;
      ++num_over;
    }));
  while (num_over < kJobs) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(most, 2);
}

TEST(JobPool, TheEndRunsWhatWasSubmitted) {
  std::atomic<int> num_over = 0;
  {
    JobPool pool(1);
    for (int i = 0; i < 50; ++i)
      ASSERT_TRUE(pool.submit([&] {
        const JobPool::Waiting waiting;
        std::this_thread::sleep_for(milliseconds(1));
        ++num_over;
      }));
  }
  EXPECT_EQ(num_over, 50);
}

TEST(JobPool, NotAllMayWait) {
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  std::atomic<std::size_t> num_replaced = 0;
  std::promise<void> refused;
  JobPool pool(1);
  for (std::size_t i = 0; i <= JobPool::kMaxWaiting; ++i)
    ASSERT_TRUE(pool.submit([&, gone] {
      const JobPool::Waiting waiting;
      if (!waiting.is_replaced()) return refused.set_value();
      ++num_replaced;
      gone.wait();
    }));
  refused.get_future().wait();
  EXPECT_EQ(num_replaced, JobPool::kMaxWaiting);
  go.set_value();
}

TEST(JobPool, WaitingElsewhereDoesNothing) {
  const JobPool::Waiting waiting;
  EXPECT_TRUE(waiting.is_replaced());
}

TEST(JobPool, RefusesBeyondItsCapacity) {
  std::promise<void> started, go;
  JobPool pool(1, 1);
  ASSERT_TRUE(pool.submit([&] {
    started.set_value();
    go.get_future().wait();
  }));
  started.get_future().wait();
  EXPECT_TRUE(pool.submit([] {}));
  EXPECT_FALSE(pool.submit([] {}));
  go.set_value();
}

}  // namespace
}  // namespace sluice
