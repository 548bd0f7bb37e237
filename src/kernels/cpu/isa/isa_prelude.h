// Everything that the kernels of one instruction set use from outside, included before any target
// pragma: no inline function of the library or of Sluice may be compiled for a wider instruction
// set than the build's.
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
#include "kernels/types/kv_plane.h"
#include "kernels/types/op_params.h"
#include "tensor/dtype.h"
