// The layers of a model that one rank computes: all of them, or those of its pipeline stage.
#pragma once

#include <vector>

#include "attention/kv_pool.h"

namespace sluice {

struct LayerRange {
  int begin = 0;
  int end = -1;  // behind the last one; -1: that of the model

  // The same with the number of the model's last layer.
  LayerRange of(int num_layers) const { return {begin, end < 0 ? num_layers : end}; }

  // These need an end that is known.
  int count() const { return end - begin; }
  bool holds(int layer) const { return layer >= begin && layer < end; }
};

// Layers [0, num_layers) in `num_stages` ranges of nearly equal length, of which stage `stage` has
// its own. Layers that are left over go to the first stages, since the last one has the head.
LayerRange layers_of_stage(int num_layers, int stage, int num_stages);

// Leaves of the planes those in `layers`. All groups stay, also those without a layer: pages are
// planned once for all stages.
void keep_layers(const LayerRange& layers, std::vector<PageGroupSpec>& groups);

}  // namespace sluice
