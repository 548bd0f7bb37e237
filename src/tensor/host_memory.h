// How much host memory there is.
#pragma once

#include <cstdint>

namespace sluice {

// Memory that this process may still take: the least of MemAvailable, what the cgroup leaves and
// what the memory nodes have that it is bound to (--numa isolate, numactl --membind).
std::int64_t available_host_bytes();

// Memory of the machine that nothing is in, not even what the kernel could drop (MemFree); 0 where
// that cannot be read.
std::int64_t unused_host_bytes();

// The kernel grants more than there is and kills the process when it is touched, so ask first:
// Error{kNoResources} where so many bytes, 64 MiB or more, are not there.
void require_host_bytes(std::int64_t bytes);

// Resident bytes of this process.
std::int64_t resident_bytes();

}  // namespace sluice
