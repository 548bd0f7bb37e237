// From the layer's numbers of chosen experts to places among those of a rank (ops/moe.h).
#pragma once

#include "tensor/context.h"

namespace sluice::cuda {

void place_experts(Context& ctx, const Tensor& places, const Tensor& ids);

}  // namespace sluice::cuda
