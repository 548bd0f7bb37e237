// How much host memory there is.
#pragma once

#include <cstdint>

namespace sluice {

// Memory that this process may still take: the least of MemAvailable and what the cgroup leaves.
std::int64_t available_host_bytes();

// Resident bytes of this process.
std::int64_t resident_bytes();

}  // namespace sluice
