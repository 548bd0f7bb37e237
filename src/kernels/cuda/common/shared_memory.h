// Shared memory by compute capability.
#pragma once

#include <cstdint>

namespace sluice::cuda {

// The shared memory in bytes that a CTA may have on compute capability sm / 10.
// Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
constexpr std::int64_t max_shared_bytes(int sm) {
  if (sm == 80 || sm == 87) return 163 << 10;
  if (sm >= 90 && sm < 120) return 227 << 10;
  return sm >= 86 ? 99 << 10 : 48 << 10;
}

}  // namespace sluice::cuda
