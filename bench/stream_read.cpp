// The plainest reader of memory, for comparison with `sluice bench roofline`: stream_read [MiB
// [THREADS]]. It sums the words of a buffer in huge pages, a contiguous part per thread, and prints
// the best of ten passes in GB/s. Every other pass reads a thread's part as four arrays side by
// side, as STREAM has several. Some processors read that a fifth faster than one array. Built with
// -O3, as STREAM is, because one word at a time a core adds up no more than 30 GB/s.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

template <std::size_t kArrays>
std::uint64_t sum_of(const std::uint64_t* words, std::size_t count) {
  const std::size_t length = count / kArrays;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < length; ++i)
    for (std::size_t array = 0; array < kArrays; ++array) sum += words[array * length + i];
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t words = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2048) << 17;
  const std::size_t threads =
      argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::thread::hardware_concurrency();
  const std::size_t share = words / threads / 4 * 4;
  constexpr std::size_t kHugePage = 2 << 20;
  auto* memory = static_cast<std::uint64_t*>(
      std::aligned_alloc(kHugePage, (words * 8 + kHugePage - 1) / kHugePage * kHugePage));
  if (memory == nullptr) return std::fprintf(stderr, "no memory\n"), 2;
  madvise(memory, words * 8, MADV_HUGEPAGE);
  std::fill_n(memory, words, 1);
  double best = 0;
  std::uint64_t total = 0;
  for (int pass = 0; pass < 10; ++pass) {
    std::vector<std::uint64_t> sums(threads * 8);  // a cache line per thread
    std::vector<std::thread> pool;
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t t = 0; t < threads; ++t)
      pool.emplace_back([&, t] {
        sums[t * 8] = (pass % 2 == 0 ? sum_of<1> : sum_of<4>)(memory + t * share, share);
      });
    for (std::thread& thread : pool) thread.join();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    for (const std::uint64_t sum : sums) total += sum;
    best = std::max(best, static_cast<double>(share * threads) * 8 / seconds.count() / 1e9);
  }
  if (total != share * threads * 10) return 1;
  std::printf("%.1f GB/s\n", best);
}
