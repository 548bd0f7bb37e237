#include "models/layer_range.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {

LayerRange layers_of_stage(int num_layers, int stage, int num_stages) {
  check(stage >= 0 && stage < num_stages && num_stages <= num_layers,
        "stage {} of {} for {} layers", stage, num_stages, num_layers);
  const int each = num_layers / num_stages, left_over = num_layers % num_stages;
  const auto first = [&](int of) { return of * each + std::min(of, left_over); };
  return {first(stage), first(stage + 1)};
}

void keep_layers(const LayerRange& layers, std::vector<PageGroupSpec>& groups) {
  for (PageGroupSpec& group : groups)
    for (PlaneSpec& plane : group.planes)
      std::erase_if(plane.layers, [&](int layer) { return !layers.holds(layer); });
}

}  // namespace sluice
