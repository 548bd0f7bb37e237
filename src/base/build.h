// Properties of this build.
#pragma once

#include <string_view>

namespace sluice {

// Whether this build has the CUDA column. A branch on a false value is discarded, so its callees
// need no definition.
#ifdef SLUICE_HAS_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

// Whether timings of this build are meaningful: optimised, and without a sanitizer.
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
inline constexpr bool kTimedBuild = true;
#else
inline constexpr bool kTimedBuild = false;
#endif

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace sluice
