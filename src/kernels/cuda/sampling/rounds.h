// Bodies of ops/tokens.h on a GPU.
#pragma once

#include "kernels/types/round_rows.h"
#include "tensor/context.h"

namespace sluice::cuda {

#include "kernels/types/round_bodies.h"

}  // namespace sluice::cuda
