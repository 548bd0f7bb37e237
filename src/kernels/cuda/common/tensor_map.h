// How the copy engine of a multiprocessor finds boxes of a matrix (kernels/cuda/common/tma.cuh).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace sluice::cuda {

// A matrix of bfloat16 [rows, columns] whose boxes have `box_rows` rows of 64 columns, and lie in
// shared memory as wgmma.cuh wants tiles: in rows of 128 bytes with permuted pieces.
// `stride`: elements between rows, a multiple of 8; the matrix begins on 16 bytes. Error{kFatal}
// when the driver is older than CUDA 12.
CUtensorMap map_of_boxes(const void* data, std::int64_t rows, std::int64_t columns,
                         std::int64_t stride, int box_rows);

}  // namespace sluice::cuda
