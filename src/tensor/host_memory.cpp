#include "tensor/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/numa.h"

namespace sluice {
namespace {

// A number in a file of one line; -1 when there is none ("max").
std::int64_t read_number(const char* path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

// An entry of /proc/meminfo, which counts in KiB.
std::optional<std::int64_t> meminfo_bytes(std::string_view wanted) {
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  std::int64_t kib = 0;
  for (; meminfo >> key >> kib; std::getline(meminfo, unit))
    if (key == wanted) return kib * 1024;
  return std::nullopt;
}

}  // namespace

std::int64_t available_host_bytes() {
  std::int64_t available =
      meminfo_bytes("MemAvailable:").value_or(std::numeric_limits<std::int64_t>::max());
  const std::int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  const std::int64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit > 0 && used >= 0)
    available = std::min(available, std::max<std::int64_t>(0, limit - used));
  return std::min(available, bound_memory_bytes());
}

std::int64_t unused_host_bytes() {
  return meminfo_bytes("MemFree:").value_or(0);
}

void require_host_bytes(std::int64_t bytes) {
  constexpr std::int64_t kRequestThreshold = 64 << 20;
  if (bytes < kRequestThreshold) return;
  const std::int64_t available = available_host_bytes();
  if (bytes > available)
    fail(ErrorKind::kNoResources, "{} bytes of memory are wanted and {} are free", bytes,
         available);
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace sluice
