// A preloaded library that simulates file systems which a test cannot mount without being root:
//   SLUICE_DISK_BYTES=N   a full disk: after N bytes have gone through pwrite, a write takes the
//                         bytes that still fit, and the next one fails with ENOSPC
//   SLUICE_NO_LOCKS=1     a network file system that grants a lock to every process
#include <dlfcn.h>
#include <sys/file.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {

using Write = ssize_t (*)(int, const void*, std::size_t, off_t);

std::size_t capacity() {
  const char* value = std::getenv("SLUICE_DISK_BYTES");
  return value == nullptr ? SIZE_MAX : static_cast<std::size_t>(std::strtoull(value, nullptr, 10));
}

ssize_t limited(const char* name, int file, const void* bytes, std::size_t size, off_t offset) {
  static const std::size_t limit = capacity();
  static std::atomic<std::size_t> used{0};
  const std::size_t before = used.fetch_add(size);
  if (before >= limit) {
    errno = ENOSPC;
    return -1;
  }
  const auto real = reinterpret_cast<Write>(::dlsym(RTLD_NEXT, name));
  return real(file, bytes, std::min(size, limit - before), offset);
}

}  // namespace

extern "C" ssize_t pwrite(int file, const void* bytes, std::size_t size, off_t offset) {
  return limited("pwrite", file, bytes, size, offset);
}
extern "C" ssize_t pwrite64(int file, const void* bytes, std::size_t size, off_t offset) {
  return limited("pwrite64", file, bytes, size, offset);
}
extern "C" int flock(int file, int operation) noexcept {
  if (std::getenv("SLUICE_NO_LOCKS") != nullptr) return 0;
  return reinterpret_cast<int (*)(int, int)>(::dlsym(RTLD_NEXT, "flock"))(file, operation);
}
