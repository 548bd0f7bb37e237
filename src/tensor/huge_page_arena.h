// Host memory whose huge pages are cleared in one piece.
//
//   std::unique_ptr<HugePageArena> memory = HugePageArena::open(pool.size(), all);   // null: the
//   system has none std::byte* weights = memory->take(bytes); memory->prefault(weights + at,
//   count);                                   // on any thread, before it fills them
//   memory->close();                                                           // from now on it is
//   memory like any other
//
// A huge page that comes with a fault is cleared by the kernel 4 KiB at a time. Processors fetch
// every line from memory that is cleared so, and none where two megabytes are cleared at once,
// which takes one to two thirds of the time. The kernel does this for a huge page of a tmpfs file
// of which write() fills a byte. So this is a tmpfs of our own with huge pages (fsmount(2)), which
// has no place in any directory, and whose files have no name: it is gone with the object, at the
// latest with the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice {

class HugePageArena {
 public:
  // For some `bytes`, of which at most `makers` threads make pages at once. Null where it is not to
  // be had or would not be the same as other memory: before Linux 6.14, which fills files page by
  // small page; without the right to mount (CAP_SYS_ADMIN); where huge pages are switched off, or
  // so little memory is unused that they would be small, since a write does not wait for caches to
  // be dropped; under a limit of files or addresses (ulimit -f, -v), and where memory is promised
  // strictly (vm.overcommit_memory 2).
  static std::unique_ptr<HugePageArena> open(int makers, std::int64_t bytes);
  // Whether it is worth having: the processor has fast `rep stosb` (ERMS; AMD's since Zen 3), which
  // the kernel then clears two megabytes with. Without, it stores word by word and reads every line
  // here too.
  static bool is_worthwhile();
  ~HugePageArena();
  HugePageArena(const HugePageArena&) = delete;
  HugePageArena& operator=(const HugePageArena&) = delete;

  // Zeroed memory, aligned to 64 bytes, that lives as long as this object; what nobody touches
  // takes none. Error{kNoResources} when the system refuses. One thread at a time.
  std::byte* take(std::int64_t bytes);
  // Makes the huge pages that begin in [place, place + bytes), memory of take() that nobody but the
  // caller may have filled. A page that nobody makes comes when it is touched, as everywhere. Any
  // thread, also several at once. Error{kNoResources} when memory runs out.
  void prefault(std::byte* place, std::int64_t bytes) const;
  bool holds(const void* place) const { return part_of(place) != nullptr; }
  // When all pages are made: gives back the descriptors.
  void close();

  static constexpr std::int64_t kPageBytes = 2 << 20;

 private:
  HugePageArena() = default;

  // A mapped part of a file, from its beginning on taken up to `used`.
  struct Part {
    std::byte* begin = nullptr;
    std::int64_t bytes = 0;
    std::int64_t offset = 0;  // in the file
    int descriptor = -1;
    std::int64_t used = 0;
  };
  struct File {
    int descriptor = -1;
    std::int64_t bytes = 0;
    Part* last = nullptr;
  };
  Part& add_part(File& file, std::int64_t bytes);
  const Part* part_of(const void* place) const;  // null: of none

  std::vector<File> files_;  // several, because one thread at a time writes to a file
  std::vector<std::unique_ptr<Part>> parts_;  // ascending by address
  std::size_t taken_ = 0;
};

}  // namespace sluice
