// Bodies of ops/tokens.h on a CPU.
#pragma once

#include "kernels/types/round_rows.h"
#include "tensor/context.h"

namespace sluice::cpu {

#include "kernels/types/round_bodies.h"

}  // namespace sluice::cpu
