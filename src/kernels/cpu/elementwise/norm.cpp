#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {

namespace {

// RMSNorm of the rows of x; with a residual, of residual += x.
void rms_norm_rows(Context& ctx, const Tensor& x, const Tensor* residual, const Tensor& weight,
                   float eps, const Tensor& out) {
  const std::int64_t n = x.dim(-1);
  parallel(ctx, num_rows(x), 4 * n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      kernels(ctx).rms_norm({.x = row<float>(x, i),
                             .residual = residual == nullptr ? nullptr : row<float>(*residual, i),
                             .weight = weight_vector(weight),
                             .out = out.dtype == DType::kBF16
                                        ? static_cast<void*>(row<BF16>(out, i))
                                        : row<float>(out, i),
                             .out_dtype = out.dtype,
                             .n = n,
                             .eps = eps});
  });
}

}  // namespace

void rms_norm(Context& ctx, const Tensor& x, const Tensor& weight, float eps, const Tensor& out) {
  rms_norm_rows(ctx, x, nullptr, weight, eps, out);
}

void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& residual, const Tensor& weight,
                  float eps, const Tensor& out) {
  rms_norm_rows(ctx, x, &residual, weight, eps, out);
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
