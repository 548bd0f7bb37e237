#include "kernels/cuda/common/tensor_map.h"

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace sluice::cuda {

namespace {

decltype(&cuTensorMapEncodeTiled) encoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                             12000, cudaEnableDefault, &status);
  if (error != cudaSuccess || status != cudaDriverEntryPointSuccess)
    throw Error(ErrorKind::kFatal,
                "the CUDA driver has no cuTensorMapEncodeTiled; one of CUDA 12 or later has");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
}

}  // namespace

CUtensorMap map_of_boxes(const void* data, std::int64_t rows, std::int64_t columns,
                         std::int64_t stride, int box_rows) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)}, steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult made =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), sizes, strides,
                box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(made == CUDA_SUCCESS,
        "a tensor map of {} x {} elements with a row stride of {} is refused: error {}", rows,
        columns, stride, static_cast<int>(made));
  return map;
}

CUtensorMap map_of_runs(const ByteRuns& bytes, int box_rows, int box_runs) {
  // Elements of eight bytes: a box has at most 256 of them.
  constexpr std::int64_t kElement = 8;
  const std::int64_t row_bytes = bytes.runs * bytes.run_bytes;
  const auto wide = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t sizes[4] = {wide(bytes.run_bytes / kElement), wide(bytes.runs), wide(bytes.rows),
                               wide(bytes.items)};
  const cuuint64_t strides[3] = {wide(bytes.run_bytes), wide(row_bytes),
                                 wide(bytes.items > 1 ? bytes.item_bytes : row_bytes * bytes.rows)};
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(bytes.run_bytes / kElement),
                             static_cast<cuuint32_t>(box_runs), static_cast<cuuint32_t>(box_rows),
                             1},
                   steps[4] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult made =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT64, 4, const_cast<void*>(bytes.data), sizes,
                strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(made == CUDA_SUCCESS, "a tensor map of {} x {} x {} runs of {} bytes is refused: error {}",
        bytes.items, bytes.rows, bytes.runs, bytes.run_bytes, static_cast<int>(made));
  return map;
}

}  // namespace sluice::cuda
