// The amount of host memory.
#pragma once

#include <cstdint>

namespace sluice {

// Memory that this process may still take: the minimum of three values. They are MemAvailable, the
// cgroup's remainder, and the free memory of the nodes that the process is bound to (--numa
// isolate, numactl --membind).
std::int64_t available_host_bytes();

// Memory of the machine that is entirely unused (MemFree), without caches that the kernel could
// drop. 0 if unknown.
std::int64_t unused_host_bytes();

// The kernel grants more memory than there is and kills the process on first touch, so call this
// before. Error{kNoResources} if `bytes` are 64 MiB or more and not available.
void require_host_bytes(std::int64_t bytes);

// Resident bytes of this process.
std::int64_t resident_bytes();

}  // namespace sluice
