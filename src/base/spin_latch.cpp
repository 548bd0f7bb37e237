#include "base/spin_latch.h"

#include <immintrin.h>

#include <chrono>

namespace sluice {

void await_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
  while (true) {
    // One pause may take a hundred cycles: check after each, and read the clock now and then.
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      _mm_pause();
    }
    if (std::chrono::steady_clock::now() > deadline) {
      value.wait(old, std::memory_order_acquire);
      return;
    }
  }
}

}  // namespace sluice
