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

// Bytes [items, rows, runs, run_bytes], a multiple of 16 and at most 2048 in a run; the
// bytes of an item are dense.
struct ByteRuns {
  const void* data = nullptr;  // begins on 16 bytes
  std::int64_t items = 1, rows = 1, runs = 1, run_bytes = 16;
  std::int64_t item_bytes = 0;  // between items, a multiple of 16
};
// Boxes of `box_rows` rows by `box_runs` runs of an item, dense in shared memory.
CUtensorMap map_of_runs(const ByteRuns& bytes, int box_rows, int box_runs);

}  // namespace sluice::cuda
