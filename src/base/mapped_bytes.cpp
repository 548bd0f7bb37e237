#include "base/mapped_bytes.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <utility>

namespace sluice {
namespace {

// The state that the signal handler reads: the whole pages [begin, end) of a mapping; begin is 0 in
// a free slot.
struct Slot {
  std::atomic<bool> taken = false;
  std::atomic<std::uintptr_t> begin = 0, end = 0;
  std::atomic<bool> lost = false;
};
std::array<Slot, MappedBytes::kMax> slots;
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free,
              "the handler may not wait for a lock");

struct sigaction earlier_action;

// Runs on the thread that touched the page, at any instruction: only system calls and atomics.
void on_bus_error(int, siginfo_t* info, void*) {
  const int error = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (Slot& slot : slots) {
    const std::uintptr_t begin = slot.begin.load(), end = slot.end.load();
    // A mapping does not change while its owner reads it. Another mapping may be released
    // meanwhile: then begin and end do not belong together.
    if (begin == 0 || address < begin || address >= end || slot.begin.load() != begin) continue;
    // `lost` is set before the page changes, so that no reader trusts the zeros. All pages are
    // replaced at once, since the others may fail next.
    slot.lost.store(true);
    if (::mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
      break;
    errno = error;
    return;
  }
  // Not ours, or no memory: retry the access under the handler that was installed before.
  ::sigaction(SIGBUS, &earlier_action, nullptr);
  errno = error;
}

bool install_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  return ::sigaction(SIGBUS, &action, &earlier_action) == 0;
}

int take_slot() {
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (!slots[i].taken.exchange(true)) return static_cast<int>(i);
  return -1;
}

bool holds(int descriptor, std::uint64_t end) {
  struct stat info = {};
  return ::fstat(descriptor, &info) == 0 && end <= static_cast<std::uint64_t>(info.st_size);
}

}  // namespace

std::optional<MappedBytes> MappedBytes::map(int descriptor, std::uint64_t offset,
                                            std::uint64_t bytes) {
  static const bool handled = install_handler();
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  // a whole huge page can be mapped at once if the page cache holds it as one
  constexpr std::uint64_t kHugePage = 2 << 20;
  if (!handled || bytes == 0 || !holds(descriptor, offset + bytes)) return std::nullopt;
  const int index = take_slot();
  if (index < 0) return std::nullopt;
  Slot& slot = slots[static_cast<std::size_t>(index)];
  const std::uint64_t before = offset % kHugePage,
                      length = (before + bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, descriptor,
                        static_cast<off_t>(offset - before));
  if (memory == MAP_FAILED) {
    slot.taken.store(false);
    return std::nullopt;
  }
  slot.lost.store(false);
  slot.end.store(reinterpret_cast<std::uintptr_t>(memory) + length);
  slot.begin.store(reinterpret_cast<std::uintptr_t>(memory));
  MappedBytes mapped(index, {static_cast<const std::byte*>(memory) + before, bytes});
  // The kernel maps the sixteen pages around one that is touched. Populating all pages
  // (MADV_POPULATE_READ) takes longer.
  for (std::uint64_t at = before / page * page; at < before + bytes; at += 16 * page)
    static_cast<void>(static_cast<const volatile std::byte*>(memory)[at]);
  if (!mapped.whole()) return std::nullopt;
  return mapped;
}

MappedBytes::MappedBytes(MappedBytes&& other) noexcept
    : slot_(std::exchange(other.slot_, -1)), bytes_(other.bytes_) {}

MappedBytes::~MappedBytes() {
  if (slot_ < 0) return;
  Slot& slot = slots[static_cast<std::size_t>(slot_)];
  // Frees the slot before the addresses can be given to another mapping.
  const std::uintptr_t begin = slot.begin.exchange(0);
  ::munmap(reinterpret_cast<void*>(begin), slot.end.load() - begin);
  slot.taken.store(false);
}

bool MappedBytes::whole() const {
  return !slots[static_cast<std::size_t>(slot_)].lost.load();
}

}  // namespace sluice
