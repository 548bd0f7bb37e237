// Facts of this build.
#pragma once

#include <string_view>

namespace sluice {

// Whether the CUDA column is part of this build. A branch on it is discarded, so its callees need no definition.
#ifdef SLUICE_HAS_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace sluice
