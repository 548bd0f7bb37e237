// A small pool of threads for the work of requests, so that an I/O thread never waits for it (R15).
//
//   JobPool pool(2);
//   pool.submit([&] {
//     read(request);
//     const JobPool::Waiting waiting;  // another job runs meanwhile
//     if (!waiting.is_replaced()) return refuse();
//     answer(compiled.get());
//   });
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/channel.h"

namespace sluice {

class JobPool {
 public:
  // `threads`: the jobs that run at once.
  explicit JobPool(int threads, std::size_t capacity = 4096);
  // Runs what was submitted.
  ~JobPool();
  JobPool(const JobPool&) = delete;
  JobPool& operator=(const JobPool&) = delete;

  // False when too much waits already. Any thread.
  bool submit(std::function<void()> job) { return jobs_.try_push(std::move(job)); }

  // While one lives in a job, the job counts as not running: the pool runs another in its place.
  // Elsewhere it does nothing.
  class Waiting {
   public:
    Waiting();
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

    // False: kMaxWaiting jobs are replaced already, or the system has no thread.
    bool is_replaced() const { return is_replaced_; }

   private:
    JobPool* const pool_;
    bool is_replaced_ = true;
  };
  static constexpr std::size_t kMaxWaiting = 1024;

 private:
  void work() noexcept;
  // Under mutex_.
  bool add_thread();

  const int limit_;
  Channel<std::function<void()>> jobs_;
  std::mutex mutex_;
  std::condition_variable place_free_;
  bool closed_ = false;               // these are guarded by mutex_
  int num_running_ = 0;               // jobs, and threads that wait for one
  int num_parked_ = 0;                // threads without a place among the running
  std::vector<std::thread> threads_;  // more than limit_ once jobs have waited
};

}  // namespace sluice
