// Everything that the kernels of one instruction set use from outside, included before any target pragma: no inline
// function of the library or of Sluice may be compiled for a wider instruction set than the build's.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/kv_plane.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/types.h"
#include "tensor/dtype.h"
