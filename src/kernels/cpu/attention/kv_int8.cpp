#include "kernels/cpu/attention/kv_int8.h"

#include <cstring>

#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/gemm/quant_rows.h"
#include "kernels/types/op_params.h"

namespace sluice::cpu {
namespace {

// Heads of a row: each is `dim` bytes and a scale, so the row width gives their number.
struct Heads {
  std::int64_t count, dim;
  Heads(std::int64_t elements, const Tensor& plane)
      : count((plane.dim(1) - elements) / ops::kKvScaleBytes), dim(elements / count) {}
  std::int64_t step() const { return dim + ops::kKvScaleBytes; }
};

}  // namespace

void kv_write_int8(Context& ctx, const Tensor& src, const Tensor& slots, const Tensor& plane) {
  const auto* slot = slots.ptr<std::int64_t>();
  const Heads heads(src.dim(1), plane);
  parallel(ctx, num_rows(src), 2 * src.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t h = 0; h < heads.count; ++h) {
        std::int8_t* to = row<std::int8_t>(plane, slot[t]) + h * heads.step();
        const float scale = quantize_bytes(row<float>(src, t) + h * heads.dim, heads.dim, to).scale;
        std::memcpy(to + heads.dim, &scale, sizeof scale);
      }
  });
}

void kv_gather_int8(Context& ctx, const Tensor& plane, const Tensor& slots, const Tensor& out) {
  const auto* slot = slots.ptr<std::int32_t>();
  const Heads heads(out.dim(1), plane);
  parallel(ctx, num_rows(out), out.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t h = 0; h < heads.count; ++h) {
        const std::int8_t* from = row<std::int8_t>(plane, slot[i]) + h * heads.step();
        float scale;
        std::memcpy(&scale, from + heads.dim, sizeof scale);
        float* to = row<float>(out, i) + h * heads.dim;
        for (std::int64_t k = 0; k < heads.dim; ++k) to[k] = static_cast<float>(from[k]) * scale;
      }
  });
}

}  // namespace sluice::cpu
