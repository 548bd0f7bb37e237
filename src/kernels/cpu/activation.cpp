#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

namespace sluice::cpu {

void act_and_mul(Context& ctx, Activation activation, const Tensor& gate_up, const Tensor& out) {
  const std::int64_t n = out.dim(1);
  const KernelTable& k = kernels(ctx);
  parallel(ctx, num_rows(out), 4 * n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* gate = row<float>(gate_up, i);
      if (out.dtype == DType::kBF16)
        k.act_and_mul_bf16(activation, gate, gate + n, row<BF16>(out, i), n);
      else
        k.act_and_mul_f32(activation, gate, gate + n, row<float>(out, i), n);
    }
  });
}

void sigmoid_mul(Context& ctx, const Tensor& x, const Tensor& gate, const Tensor& out) {
  parallel(ctx, num_rows(x), x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      kernels(ctx).sigmoid_mul(row<float>(x, i), *row<float>(gate, i), row<float>(out, i), x.dim(1));
  });
}

}  // namespace sluice::cpu
