// The compute pool of one rank.
//
//   pool.parallel_for(rows, [&](std::int64_t begin, std::int64_t end) { ... });
//
// The calling thread is worker 0 and takes part. Every worker has an even share, which it takes
// from the front piece by piece; one that has none left takes pieces from the back of the others'
// shares, so that a core that is slower, or gets less of the memory's bandwidth, does not hold up
// the rest. Pieces get smaller towards the end of a share, so that all end at about the same time.
// Results must not depend on who takes what (docs/architecture.md, Numerics). Between calls workers
// spin for at most 50 us, then sleep. One caller at a time; a body must not call parallel_for of
// the same pool. With several memory nodes each worker stays on the node of its number, which
// memory that is dealt like rows lies on (base/numa.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/numa.h"

namespace sluice {

class ThreadPool {
 public:
  // `workers` counts the caller: 1 means no other thread. At least 1. With fewer than two nodes no
  // thread is bound.
  explicit ThreadPool(int workers, NumaNodes nodes = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // The nodes of workers and memory.
  const NumaPlacement& placement() const { return placement_; }
  // Binds the calling thread to worker 0's node: for a thread that only calls this pool. Threads
  // that it creates later inherit the binding.
  void bind_caller() const { placement_.bind(0); }

  // Calls body(begin, end) on disjoint ranges that cover [0, count), several times on a worker. A
  // share has at least `grain` items. A range has at least `grain` items but for the last of a
  // share, and at most max(`most`, `grain`) items. `most` 0: a sixteenth of a share. count < 2^32.
  // The first exception of a body is rethrown here after all have ended.
  template <class Body>
  void parallel_for(std::int64_t count, Body&& body, std::int64_t grain = 1,
                    std::int64_t most = 0) {
    if (count <= 0) return;
    const std::int64_t parts = std::min<std::int64_t>(size(), (count + grain - 1) / grain);
    if (parts <= 1) {
      body(std::int64_t{0}, count);
      return;
    }
    const Pieces pieces = {
        grain,
        std::max(grain, most > 0 ? most : (count + kPieces * parts - 1) / (kPieces * parts))};
    deal(count, static_cast<int>(parts));
    run(static_cast<int>(parts), [&](int part) {
      for (Range range = take(part, static_cast<int>(parts), pieces); range.begin < range.end;
           range = take(part, static_cast<int>(parts), pieces))
        body(range.begin, range.end);
    });
  }

  // Calls task(0) .. task(parts - 1), each on one worker; parts <= size().
  void run(int parts, const std::function<void(int)>& task);

 private:
  // Pieces of a share: enough that another worker can relieve one that is late by a tenth. Towards
  // the end of a share: parts of the remainder.
  static constexpr std::int64_t kPieces = 16;
  static constexpr std::int64_t kLeftPieces = 4;
  struct Pieces {
    std::int64_t least = 1;
    std::int64_t most = 1;
  };

  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  // The remainder of a worker's share: its end in the lower half, its beginning in the upper half.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> left{0};
  };

  void deal(std::int64_t count, int parts);
  // A piece of the worker's share, or of another share; empty when all pieces are taken.
  Range take(int part, int parts, const Pieces& pieces);
  void work(int index);
  void finish_one();

  // Constant after construction.
  std::vector<std::thread> threads_;
  std::unique_ptr<Share[]> shares_;
  const NumaPlacement placement_;
  // Written by the caller before `epoch_` rises, read by workers after.
  const std::function<void(int)>* task_ = nullptr;
  int parts_ = 0;
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<std::uint32_t> pending_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // written by the thread that set failed_
};

// Threads this process may use: min(affinity mask of the calling thread, which --numa isolate
// narrows, cgroup v2 cpu.max rounded up, `wanted` when > 0), at least 1.
int usable_threads(int wanted = 0);

}  // namespace sluice
