// Tensor maps: how TMA finds boxes of a matrix (kernels/cuda/common/tma.cuh).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace sluice::cuda {

// A bfloat16 matrix [rows, columns] with boxes of `box_rows` rows by 64 columns. In shared memory a
// box has the 128-byte swizzle of kernels/cuda/common/wgmma.cuh. `stride`: elements between rows, a
// multiple of 8; the matrix begins on 16 bytes. Error{kFatal} if the driver is older than CUDA 12.
CUtensorMap map_of_boxes(const void* data, std::int64_t rows, std::int64_t columns,
                         std::int64_t stride, int box_rows);

}  // namespace sluice::cuda
