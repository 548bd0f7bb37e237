#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/spin_latch.h"

namespace sluice {
namespace {

std::uint64_t pack_range(std::int64_t begin, std::int64_t end) {
  return static_cast<std::uint64_t>(begin) << 32 | static_cast<std::uint64_t>(end);
}

// The quota of cgroup v2, in processors; 0 when there is none.
double cgroup_limit() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::strtod(quota.c_str(), nullptr) / period;
}

}  // namespace

ThreadPool::ThreadPool(int workers, NumaNodes nodes)
    : placement_(std::move(nodes), std::max(workers, 1)) {
  check(workers >= 1, "a thread pool needs at least 1 worker, not {}", workers);
  shares_ = std::make_unique<Share[]>(static_cast<std::size_t>(workers));
  threads_.reserve(workers - 1);
  for (int i = 1; i < workers; ++i) threads_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::deal(std::int64_t count, int parts) {
  check(count <= std::numeric_limits<std::uint32_t>::max(), "{} items for a loop; at most 2^32 - 1",
        count);
  for (std::int64_t part = 0; part < parts; ++part)
    shares_[static_cast<std::size_t>(part)].left.store(
        pack_range(count * part / parts, count * (part + 1) / parts), std::memory_order_relaxed);
}

ThreadPool::Range ThreadPool::take(int part, int parts, const Pieces& pieces) {
  for (int i = 0; i < parts; ++i) {
    std::atomic<std::uint64_t>& left = shares_[static_cast<std::size_t>((part + i) % parts)].left;
    std::uint64_t seen = left.load(std::memory_order_relaxed);
    while (true) {
      const auto begin = static_cast<std::int64_t>(seen >> 32),
                 end = static_cast<std::int64_t>(seen & 0xFFFFFFFFu);
      if (begin >= end) break;
      const std::int64_t count =
          std::min(std::clamp((end - begin) / kLeftPieces, pieces.least, pieces.most), end - begin);
      const Range range = i == 0 ? Range{begin, begin + count} : Range{end - count, end};
      const std::uint64_t rest =
          i == 0 ? pack_range(range.end, end) : pack_range(begin, range.begin);
      if (left.compare_exchange_weak(seen, rest, std::memory_order_relaxed)) return range;
    }
  }
  return {};
}

void ThreadPool::run(int parts, const std::function<void(int)>& task) {
  check(parts >= 1 && parts <= size(), "{} parts for {} workers", parts, size());
  task_ = &task;
  parts_ = parts;
  failed_.store(false, std::memory_order_relaxed);
  error_ = nullptr;
  // Every worker reports, also one without a part: so the next call may overwrite task_ safely.
  pending_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();

  std::exception_ptr own;
  try {
    task(0);
  } catch (...) {
    own = std::current_exception();
  }
  for (std::uint32_t left = pending_.load(std::memory_order_acquire); left != 0;
       left = pending_.load(std::memory_order_acquire))
    await_change(pending_, left);
  if (own) std::rethrow_exception(own);
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::work(int index) {
  placement_.bind(index);
  std::uint32_t seen = 0;
  while (true) {
    await_change(epoch_, seen);
    ++seen;
    if (stop_.load()) return;
    if (index < parts_) {
      try {
        (*task_)(index);
      } catch (...) {
        if (!failed_.exchange(true)) error_ = std::current_exception();
      }
    }
    finish_one();
  }
}

void ThreadPool::finish_one() {
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
}

int usable_threads(int wanted) {
  cpu_set_t mask;
  int count = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) count = CPU_COUNT(&mask);
  if (const double quota = cgroup_limit(); quota > 0)
    count = std::min(count, static_cast<int>(std::ceil(quota)));
  if (wanted > 0) count = std::min(count, wanted);
  return std::max(count, 1);
}

}  // namespace sluice
