// The page size of the KV cache, common to the host and every device.
#pragma once

namespace sluice {

inline constexpr int kPageSize = 64;  // tokens in a page, in every group

}  // namespace sluice
