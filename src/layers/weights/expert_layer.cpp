#include "layers/weights/expert_layer.h"

#include <algorithm>

namespace sluice {

void ExpertLayer::set_map(ExpertMap next) {
  const std::int64_t width = replicas.dim(1);
  auto* const rows = replicas.ptr<std::int32_t>();
  std::fill_n(rows, replicas.numel(), 0);
  for (std::size_t place = 0; place < next.size(); ++place) {
    if (next[place] == kNoExpert) continue;
    check(next[place] >= 0 && next[place] < num_experts(), "place {} gets expert {} of {}", place,
          next[place], num_experts());
    std::int32_t* const row = rows + next[place] * width;
    check(*row + 1 < width, "expert {} gets more than {} places", next[place], width - 1);
    row[++*row] = static_cast<std::int32_t>(place);
  }
  for (int e = 0; e < num_experts(); ++e)
    check(rows[e * width] > 0, "expert {} of layer {} has no place", e, number);
  map = std::move(next);
}

}  // namespace sluice
