// The compute pool of one rank.
//
//   pool.parallel_for(rows, [&](std::int64_t begin, std::int64_t end) { ... });
//
// The calling thread is worker 0 and takes part. Ranges are cut evenly, so which worker gets what depends only on the
// count; results must not depend on it at all (docs/design.md, Numerics). Between calls workers spin for at most 50 us,
// then sleep. One caller at a time; a body must not call parallel_for of the same pool.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace sluice {

class ThreadPool {
 public:
  // `workers` counts the caller: 1 means no other thread. At least 1.
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls body(begin, end) on disjoint ranges that cover [0, count); a range has at least `grain` items but the last.
  // The first exception of a body is rethrown here after all have ended.
  template <class Body>
  void parallel_for(std::int64_t count, Body&& body, std::int64_t grain = 1) {
    if (count <= 0) return;
    const std::int64_t parts = std::min<std::int64_t>(size(), (count + grain - 1) / grain);
    if (parts <= 1) {
      body(std::int64_t{0}, count);
      return;
    }
    run(static_cast<int>(parts), [&](int part) {
      body(count * part / parts, count * (part + 1) / parts);
    });
  }

  // Calls task(0) .. task(parts - 1), each on one worker; parts <= size().
  void run(int parts, const std::function<void(int)>& task);

 private:
  void work(int index);
  void finish_one();

  // Constant after construction.
  std::vector<std::thread> threads_;
  // Written by the caller before `epoch_` rises, read by workers after.
  const std::function<void(int)>* task_ = nullptr;
  int parts_ = 0;
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::uint32_t> pending_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // written by whoever sets failed_
};

// Threads this process may use: min(affinity mask, cgroup v2 cpu.max rounded up, `wanted` when > 0), at least 1.
int usable_threads(int wanted = 0);

}  // namespace sluice
