// All headers that the kernels of one instruction set need, included before any target pragma.
// Otherwise an inline function of the library or of Sluice could be compiled for a wider
// instruction set than the build targets.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/cpu/isa/kernel_table.h"
#include "kernels/cpu/isa/tiles.h"
#include "kernels/types/fp8.h"
#include "kernels/types/kv_plane.h"
#include "kernels/types/op_params.h"
#include "tensor/dtype.h"
