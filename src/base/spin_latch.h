// A latch for threads of one loop that wait for each other for some microseconds (ThreadPool::run).
//
//   SpinLatch filled(threads);
//   pool.run(threads, [&](int part) {
//     SpinLatch::Arrival own(filled);   // arrives at the end of the scope, also on an exception
//     fill(part);
//     own.arrive();
//     filled.wait();
//     use_what_all_have_filled(part);
//   });
//
// It differs from std::latch in how it waits. A thread that sleeps takes tens of microseconds to
// wake, so this latch spins first.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice {

// Waits until `value` differs from `old`: spins up to 50 us, then sleeps in the kernel.
void await_change(const std::atomic<std::uint32_t>& value, std::uint32_t old);

class SpinLatch {
 public:
  explicit SpinLatch(int arrivals) : missing_(static_cast<std::uint32_t>(arrivals)) {}
  SpinLatch(const SpinLatch&) = delete;
  SpinLatch& operator=(const SpinLatch&) = delete;

  void count_down() {
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) == 1) missing_.notify_all();
  }
  // Waits until all threads have arrived; their earlier writes are visible then.
  void wait() const {
    for (std::uint32_t left = missing_.load(std::memory_order_acquire); left != 0;
         left = missing_.load(std::memory_order_acquire))
      await_change(missing_, left);
  }

  // One thread's arrival.
  class Arrival {
   public:
    explicit Arrival(SpinLatch& latch) : latch_(&latch) {}
    ~Arrival() { arrive(); }
    Arrival(const Arrival&) = delete;
    Arrival& operator=(const Arrival&) = delete;
    void arrive() {
      if (latch_ != nullptr) latch_->count_down();
      latch_ = nullptr;
    }

   private:
    SpinLatch* latch_;
  };

 private:
  std::atomic<std::uint32_t> missing_;
};

}  // namespace sluice
