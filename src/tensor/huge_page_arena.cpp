#include "tensor/huge_page_arena.h"

#include <cpuid.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "tensor/host_memory.h"

namespace sluice {
namespace {

constexpr int kMaxFiles = 64;
constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kPartBytes = std::int64_t{1} << 30;  // address space of one file

// Whether write() to a tmpfs file fills a huge page at once: Linux 6.14 and newer.
bool kernel_writes_huge_pages() {
  utsname name{};
  int major = 0, minor = 0;
  if (::uname(&name) != 0 || std::sscanf(name.release, "%d.%d", &major, &minor) != 2) return false;
  return major > 6 || (major == 6 && minor >= 14);
}

// The root of a tmpfs that is mounted nowhere; -1 if the system refuses.
int mount_tmpfs() {
  const int context = static_cast<int>(::syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC));
  if (context < 0) return -1;
  const auto set = [&](const char* key, const char* value) {
    return ::syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, key, value, 0) == 0;
  };
  int root = -1;
  // No size limit of its own: callers have checked the available memory.
  if (set("huge", "always") && set("size", "0") &&
      ::syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0)
    root = static_cast<int>(::syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC,
                                      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  ::close(context);
  return root;
}

bool unlimited(__rlimit_resource resource) {
  rlimit limit{};
  return ::getrlimit(resource, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

bool promises_strictly() {
  std::ifstream file("/proc/sys/vm/overcommit_memory");
  return file.get() == '2';
}

// Required unused memory for `bytes`: more, because not all of the unused memory is in huge pages.
constexpr std::int64_t unused_bytes_for(std::int64_t bytes) {
  return 2 * bytes + (std::int64_t{1} << 30);
}

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

bool HugePageArena::is_worthwhile() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kErms = 1u << 9;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kErms) != 0;
}

std::unique_ptr<HugePageArena> HugePageArena::open(int makers, std::int64_t bytes) {
  // A write beyond a file size limit would end the process with SIGXFSZ.
  if (!kernel_writes_huge_pages() || !unlimited(RLIMIT_FSIZE) || !unlimited(RLIMIT_AS) ||
      promises_strictly())
    return nullptr;
  if (unused_host_bytes() < unused_bytes_for(bytes)) return nullptr;
  const int root = mount_tmpfs();
  if (root < 0) return nullptr;
  std::unique_ptr<HugePageArena> memory(new HugePageArena);
  for (int i = 0; i < std::clamp(makers, 1, kMaxFiles); ++i) {
    const int descriptor = ::openat(root, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor < 0) break;
    memory->files_.push_back({.descriptor = descriptor});
  }
  ::close(root);
  struct stat info{};
  // A file with huge pages reports the huge page size as its preferred block size.
  const bool huge = !memory->files_.empty() &&
                    ::fstat(memory->files_.front().descriptor, &info) == 0 &&
                    info.st_blksize == kPageBytes;
  return huge ? std::move(memory) : nullptr;
}

HugePageArena::~HugePageArena() {
  close();
  for (const auto& part : parts_) ::munmap(part->begin, static_cast<std::size_t>(part->bytes));
}

void HugePageArena::close() {
  for (const File& file : files_) ::close(file.descriptor);
  files_.clear();
}

HugePageArena::Part& HugePageArena::add_part(File& file, std::int64_t bytes) {
  const std::int64_t size = round_up(std::max(bytes, kPartBytes), kPageBytes);
  void* memory = MAP_FAILED;
  if (::ftruncate(file.descriptor, file.bytes + size) == 0)
    memory = ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED,
                    file.descriptor, file.bytes);
  if (memory == MAP_FAILED)
    fail(ErrorKind::kNoResources, "the system refused {} bytes of memory: {}", bytes,
         std::strerror(errno));
  ::madvise(memory, static_cast<std::size_t>(size),
            MADV_HUGEPAGE);  // for pages that fault in on first touch
  const Part part{.begin = static_cast<std::byte*>(memory),
                  .bytes = size,
                  .offset = file.bytes,
                  .descriptor = file.descriptor};
  file.bytes += size;
  const auto after = std::ranges::upper_bound(parts_, part.begin, {},
                                              [](const auto& other) { return other->begin; });
  file.last = parts_.insert(after, std::make_unique<Part>(part))->get();
  return *file.last;
}

std::byte* HugePageArena::take(std::int64_t bytes) {
  check(bytes > 0 && !files_.empty(), "{} bytes of memory in {} files", bytes, files_.size());
  require_host_bytes(bytes);
  File& file = files_[taken_++ % files_.size()];
  const bool fits = file.last != nullptr && file.last->bytes - file.last->used >= bytes;
  Part& part = fits ? *file.last : add_part(file, bytes);
  std::byte* memory = part.begin + part.used;
  part.used = std::min(part.bytes, part.used + round_up(bytes, kAlignment));
  return memory;
}

const HugePageArena::Part* HugePageArena::part_of(const void* place) const {
  const auto* at = static_cast<const std::byte*>(place);
  const auto after =
      std::ranges::upper_bound(parts_, at, {}, [](const auto& part) { return part->begin; });
  if (after == parts_.begin()) return nullptr;
  const Part& part = **(after - 1);
  return at < part.begin + part.bytes ? &part : nullptr;
}

void HugePageArena::prefault(std::byte* place, std::int64_t bytes) const {
  check(bytes > 0 && holds(place) && !files_.empty(),
        "pages for {} bytes of memory that was not taken here, or too late", bytes);
  const Part& part = *part_of(place);
  const std::int64_t begin = place - part.begin, end = begin + bytes;
  check(end <= part.bytes, "pages for {} bytes at byte {} of {}", bytes, begin, part.bytes);
  // The first byte of a page is the caller's and not filled yet. So no byte is lost if a neighbour
  // has touched the page before.
  for (std::int64_t at = round_up(begin, kPageBytes); at < end; at += kPageBytes) {
    ssize_t put = 0;
    do put = ::pwrite(part.descriptor, "", 1, part.offset + at);
    while (put < 0 && errno == EINTR);
    if (put != 1)
      fail(ErrorKind::kNoResources, "the system refused {} bytes of memory: {}", kPageBytes,
           std::strerror(put < 0 ? errno : ENOSPC));
  }
}

}  // namespace sluice
