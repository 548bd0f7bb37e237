#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rows.h"

namespace sluice::cpu {

void rms_norm(Context& ctx, const Tensor& x, const Tensor& weight, float eps, const Tensor& out) {
  const std::int64_t n = x.dim(-1);
  parallel(ctx, num_rows(x), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      kernels(ctx).rms_norm({.x = row<float>(x, i),
                             .weight = weight_vector(weight),
                             .out = row<float>(out, i),
                             .n = n,
                             .eps = eps});
  });
}

void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& residual, const Tensor& weight, float eps,
                  const Tensor& out) {
  const std::int64_t n = x.dim(-1);
  parallel(ctx, num_rows(x), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      kernels(ctx).rms_norm({.x = row<float>(x, i),
                             .residual = row<float>(residual, i),
                             .weight = weight_vector(weight),
                             .out = row<float>(out, i),
                             .n = n,
                             .eps = eps});
  });
}

void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                const Tensor& out) {
  const std::int64_t n = x.dim(-1);
  parallel(ctx, num_rows(x), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      kernels(ctx).layer_norm({.x = row<float>(x, i),
                               .weight = weight_vector(weight),
                               .bias = weight_vector(bias),
                               .out = row<float>(out, i),
                               .n = n,
                               .eps = eps});
  });
}

}  // namespace sluice::cpu
