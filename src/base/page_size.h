// The size of a page of the KV cache, which the host and every device agree on.
#pragma once

namespace sluice {

inline constexpr int kPageSize = 64;  // tokens in a page, in every group

}  // namespace sluice
