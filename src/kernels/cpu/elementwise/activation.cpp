#include <cmath>

#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"

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

void activate(Context& ctx, Activation activation, const Tensor& x, const Tensor& out) {
  const std::int64_t n = out.dim(1);
  const KernelTable& k = kernels(ctx);
  parallel(ctx, num_rows(out), 4 * n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (out.dtype == DType::kBF16)
        k.activate_bf16(activation, row<float>(x, i), row<BF16>(out, i), n);
      else
        k.activate_f32(activation, row<float>(x, i), row<float>(out, i), n);
    }
  });
}

void xielu(Context& ctx, const Tensor& x, const Tensor& params, const Tensor& out) {
  const auto softplus = [](float v) { return v > 20 ? v : std::log1p(std::exp(v)); };
  const float* p = params.ptr<float>();
  const float beta = p[2], eps = p[3], up = softplus(p[0]), down = beta + softplus(p[1]);
  const std::int64_t n = out.dim(1);
  parallel(ctx, num_rows(out), 16 * n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* from = row<float>(x, t);
      for (std::int64_t i = 0; i < n; ++i) {
        const float v = from[i];
        const float y =
            v > 0 ? up * v * v + beta * v : (std::expm1(std::min(v, eps)) - v) * down + beta * v;
        if (out.dtype == DType::kBF16)
          row<BF16>(out, t)[i] = BF16(y);
        else
          row<float>(out, t)[i] = y;
      }
    }
  });
}

void sigmoid_mul(Context& ctx, const Tensor& x, const Tensor& gate, const Tensor& out) {
  parallel(ctx, num_rows(x), x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      kernels(ctx).sigmoid_mul(row<float>(x, i), *row<float>(gate, i), row<float>(out, i),
                               x.dim(1));
  });
}

}  // namespace sluice::cpu
