// Reads a file into fresh memory on a number of threads and prints the seconds. This is a lower
// bound for loading weights: the system clears pages before it maps them, and copies the file into
// them.
//
//   fresh_read FILE THREADS
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

int main(int argc, char** argv) {
  constexpr long kPiece = 4 << 20, kHugePage = 2 << 20;
  const int file = argc == 3 ? open(argv[1], O_RDONLY) : -1;
  struct stat info{};
  if (file < 0 || fstat(file, &info) != 0)
    return std::fprintf(stderr, "usage: fresh_read FILE THREADS\n"), 2;
  const auto begin = std::chrono::steady_clock::now();
  void* memory = mmap(nullptr, static_cast<std::size_t>(info.st_size + kHugePage),
                      PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return std::perror("mmap"), 2;
  char* place = reinterpret_cast<char*>((reinterpret_cast<std::size_t>(memory) + kHugePage - 1) /
                                        kHugePage * kHugePage);
  madvise(place, static_cast<std::size_t>(info.st_size), MADV_HUGEPAGE);
  std::atomic<long> next = 0;
  std::atomic<bool> failed = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < std::atoi(argv[2]); ++i)
    threads.emplace_back([&] {
      for (long at = next.fetch_add(kPiece); at < info.st_size; at = next.fetch_add(kPiece)) {
        const long count = std::min<long>(kPiece, info.st_size - at);
        if (pread(file, place + at, static_cast<std::size_t>(count), at) != count) failed = true;
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (failed || threads.empty()) return std::fprintf(stderr, "%s could not be read\n", argv[1]), 2;
  std::printf("%.6f\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}
