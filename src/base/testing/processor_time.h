// Time limits in tests, on machines of any speed.
#pragma once

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace sluice {

// Milliseconds of processor time of the calling thread.
inline double thread_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// How many times slower this thread runs now than on an idle core of 2.25 GHz, at least 1. A fixed
// loop of table look-ups and branches is the measure: a busy neighbour or a low clock slows the
// loop as it slows the code under test, and a time limit is multiplied by the ratio.
inline double processor_slowness() {
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
  return std::max(1.0, (thread_milliseconds() - begin) / kNominalMilliseconds);
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
