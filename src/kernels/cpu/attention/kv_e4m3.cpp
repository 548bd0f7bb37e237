#include "kernels/cpu/attention/kv_e4m3.h"

#include "kernels/cpu/common/rows.h"
#include "kernels/types/fp8.h"

namespace sluice::cpu {

void kv_write_e4m3(Context& ctx, const Tensor& src, const std::int64_t* slots,
                   const ops::KvPlane& plane) {
  const float* scales = plane.head_scales();
  const std::int64_t heads = scales == nullptr ? 1 : plane.scales.dim(0), dim = src.dim(1) / heads;
  parallel(ctx, num_rows(src), 4 * src.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t h = 0; h < heads; ++h) {
        // The same product on every device: a quotient would round otherwise.
        const float factor = scales == nullptr ? 1.0f : 1.0f / scales[h];
        const float* from = row<float>(src, t) + h * dim;
        std::uint8_t* to = row<std::uint8_t>(plane.data, slots[t]) + h * dim;
        for (std::int64_t i = 0; i < dim; ++i) to[i] = ops::to_e4m3(from[i] * factor);
      }
  });
}

}  // namespace sluice::cpu
