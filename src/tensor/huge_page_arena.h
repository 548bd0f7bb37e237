// Host memory whose huge pages are cleared in one piece.
//
//   auto memory = HugePageArena::open(pool.size(), all);   // null: the system has none
//   std::byte* weights = memory->take(bytes);
//   memory->prefault(weights + at, count);                 // on any thread, before filling them
//   memory->close();                                       // from now on it is ordinary memory
//
// On a fault the kernel clears a huge page 4 KiB at a time. Clearing 4 KiB at a time reads each
// cache line before writing it. Clearing 2 MiB in one `rep stosb` does not, and takes 1/3 to 2/3 of
// the time (docs/benchmarks/history/zen3.jsonl). The kernel clears a huge page of a tmpfs file in
// one piece when write() fills a byte of it. So the arena is a private tmpfs with huge pages
// (fsmount(2)). It is mounted in no directory and its files have no names. It vanishes with the
// object, or with the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice {

class HugePageArena {
 public:
  // An arena for some `bytes`, of which at most `makers` threads prefault pages at once. Null if it
  // is unavailable or would not equal other memory:
  // - before Linux 6.14, which fills files page by small page;
  // - without the right to mount (CAP_SYS_ADMIN);
  // - if huge pages are switched off;
  // - if so little memory is unused that the pages would be small, since a write does not wait for
  // caches to be dropped;
  // - under a limit of file size or addresses (ulimit -f, -v), or strict overcommit
  // (vm.overcommit_memory 2).
  static std::unique_ptr<HugePageArena> open(int makers, std::int64_t bytes);
  // Whether the arena is faster: the processor has fast `rep stosb` (ERMS; AMD's since Zen 3), with
  // which the kernel clears 2 MiB. Without it the kernel stores word by word and reads every cache
  // line here too.
  static bool is_worthwhile();
  ~HugePageArena();
  HugePageArena(const HugePageArena&) = delete;
  HugePageArena& operator=(const HugePageArena&) = delete;

  // Zeroed memory, aligned to 64 bytes, that lives as long as this object. Untouched pages take no
  // memory. Error{kNoResources} when the system refuses. One thread at a time.
  std::byte* take(std::int64_t bytes);
  // Creates the huge pages that begin in [place, place + bytes). That is memory of take() that only
  // the caller may have filled. Pages without prefault() fault in on first touch. Any thread,
  // several at once. Error{kNoResources} when memory runs out.
  void prefault(std::byte* place, std::int64_t bytes) const;
  bool holds(const void* place) const { return part_of(place) != nullptr; }
  // Closes the descriptors, after the last prefault().
  void close();

  static constexpr std::int64_t kPageBytes = 2 << 20;

 private:
  HugePageArena() = default;

  // A mapped part of a file, allocated from its beginning up to `used`.
  struct Part {
    std::byte* begin = nullptr;
    std::int64_t bytes = 0;
    std::int64_t offset = 0;  // offset in the file
    int descriptor = -1;
    std::int64_t used = 0;
  };
  struct File {
    int descriptor = -1;
    std::int64_t bytes = 0;
    Part* last = nullptr;
  };
  Part& add_part(File& file, std::int64_t bytes);
  const Part* part_of(const void* place) const;  // null: in no part

  std::vector<File> files_;  // several files, because one thread at a time writes to a file
  std::vector<std::unique_ptr<Part>> parts_;  // ascending by address
  std::size_t taken_ = 0;
};

}  // namespace sluice
