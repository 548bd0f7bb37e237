// Time limits in tests, on machines of any speed.
#pragma once

#include <time.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

namespace sluice {

// Milliseconds of processor time of the calling thread.
inline double thread_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// Two fixed loops, each in multiples of its time on an idle core of 2.25 GHz. A busy neighbour or a
// low clock slows them as it slows the code under test.

// Table look-ups and branches: the core's arithmetic and first cache.
inline double arithmetic_slowness() {
  constexpr double kNominalMilliseconds = 5.5;
  constexpr std::size_t kWords = 4096;
  constexpr int kSteps = 1'000'000;
  static const std::array<std::uint64_t, kWords> table = [] {
    std::array<std::uint64_t, kWords> words{};
    for (std::size_t i = 0; i < kWords; ++i) words[i] = i * 0x9E3779B97F4A7C15u;
    return words;
  }();
  const double begin = thread_milliseconds();
  std::uint64_t at = 1;
  for (int i = 0; i < kSteps; ++i) {
    at = at * 6364136223846793005u + table[(at >> 40) % kWords];
    if ((at >> 60) < 4) at ^= at >> 29;
  }
  volatile std::uint64_t keep = at;
  (void)keep;
  return (thread_milliseconds() - begin) / kNominalMilliseconds;
}

// A chase through 512 KiB of lines in random order: the core's second cache, which neighbours on a
// shared core evict.
inline double memory_slowness() {
  constexpr double kNominalMilliseconds = 1.05;
  constexpr std::uint32_t kLines = 8192;
  constexpr int kSteps = 200'000;
  struct alignas(64) Line {
    std::uint32_t next = 0;
  };
  static const std::vector<Line> lines = [] {
    std::vector<std::uint32_t> order(kLines);
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::shuffle(order, std::mt19937(1));
    std::vector<Line> chain(kLines);
    for (std::uint32_t i = 0; i < kLines; ++i) chain[order[i]].next = order[(i + 1) % kLines];
    return chain;
  }();
  const double begin = thread_milliseconds();
  std::uint32_t at = 0;
  for (int i = 0; i < kSteps; ++i) at = lines[at].next;
  volatile std::uint32_t keep = at;
  (void)keep;
  return (thread_milliseconds() - begin) / kNominalMilliseconds;
}

// How many times slower this thread runs now than on that idle core, at least 1. A time limit is
// multiplied by the ratio.
inline double processor_slowness() {
  return std::max({1.0, arithmetic_slowness(), memory_slowness()});
}

// The processor time of `work` as an idle core would need it, in milliseconds: the least of up to
// five runs, which end with the first one within `limit`. A run is divided by the slowness of the
// core around it, the larger of before and after.
template <typename Work>
double idle_core_milliseconds(double limit, Work&& work) {
  constexpr int kRuns = 5;
  double best = 0, before = processor_slowness();
  for (int run = 0; run < kRuns; ++run) {
    const double begin = thread_milliseconds();
    work();
    const double spent = thread_milliseconds() - begin, after = processor_slowness();
    const double idle = spent / std::max(before, after);
    best = run == 0 ? idle : std::min(best, idle);
    if (best < limit) break;
    before = after;
  }
  return best;
}

}  // namespace sluice
