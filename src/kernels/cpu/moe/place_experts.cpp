#include "kernels/cpu/moe/place_experts.h"

#include "base/error.h"
#include "kernels/cpu/common/rows.h"

namespace sluice::cpu {

void place_experts(Context& ctx, const Tensor& places, const Tensor& ids) {
  const std::int64_t top_k = ids.dim(1), experts = places.dim(0);
  const auto* const place = places.ptr<std::int32_t>();
  parallel(ctx, ids.dim(0), top_k, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      auto* const id = row<std::int32_t>(ids, t);
      for (std::int64_t j = 0; j < top_k; ++j) {
        check(id[j] >= 0 && id[j] < experts, "expert {} of {}", id[j], experts);
        id[j] = place[id[j]];
      }
    }
  });
}

}  // namespace sluice::cpu
