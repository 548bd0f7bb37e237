// KV writes to planes of e4m3.
#include "kernels/cuda/attention/kv_e4m3.h"

#include "kernels/cuda/attention/attention_pages.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace sluice::cuda {
namespace {

// Grid: rows. A head has `dim` elements, a row `columns`.
__global__ void write_rows(RowsOf<const float> src, std::int64_t columns, const std::int64_t* slots,
                           std::int64_t num_slots, const float* scales, std::int64_t dim,
                           std::uint8_t* plane, std::int64_t stride) {
  begin_dependent();
  const std::int64_t slot = slots[blockIdx.x];
  expect_below(slot, num_slots);
  const float* from = src.row(blockIdx.x);
  std::uint8_t* to = plane + slot * stride;
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x)
    to[i] = round_to_e4m3(from[i] * (scales == nullptr ? 1.0f : 1.0f / scales[i / dim]));
}

}  // namespace

void write_e4m3_rows(Context& ctx, const Tensor& src, const Tensor& slots,
                     const ops::KvPlane& plane) {
  if (src.numel() == 0) return;
  const std::int64_t columns = src.dim(1), heads = plane.scales.defined() ? plane.scales.dim(0) : 1;
  launch_dependent(ctx, "kv_write of e4m3", write_rows, static_cast<unsigned>(src.dim(0)),
                   block_for(columns), 0, rows_of<const float>(src), columns,
                   slots.ptr<std::int64_t>(), plane.data.dim(0), plane.head_scales(),
                   columns / heads, static_cast<std::uint8_t*>(plane.data.data),
                   plane.data.stride[0]);
}

}  // namespace sluice::cuda
