#include "ops/norm.h"

#include <cmath>

#include "base/error.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

constexpr float kNormEps = 1e-5f;

// x * rsqrt(mean) * weight: the mean of n squares has a relative error of at most n eps, and its
// root half of that.
void expect_rms(const Tensor& x, std::int64_t i, std::int64_t j, const Tensor& weight,
                const Tensor& out) {
  const std::int64_t n = x.dim(-1);
  const auto value = [&](const Tensor& t, std::int64_t k) {
    return t.rank == 3 ? get(t, {i, j, k}) : get(t, {i, k});
  };
  double squares = 0;
  for (std::int64_t k = 0; k < n; ++k) squares += value(x, k) * value(x, k);
  for (std::int64_t k = 0; k < n; ++k) {
    const double want =
        value(x, k) / std::sqrt(squares / static_cast<double>(n) + kNormEps) * get(weight, {k});
    ASSERT_NEAR(value(out, k), want, static_cast<double>(n + 8) * kEps * std::abs(want))
        << i << " " << j << " " << k;
  }
}

TEST(Norm, RmsOfStridedRowsInEveryWeightDtype) {
  on_every_machine([](Context& ctx, Context& alone) {
    for (std::int64_t n : {1, 7, 8, 16, 33, 200}) {
      for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        Owned x(DType::kF32, {301, n}, 5), weight(dtype, {n}), out(DType::kF32, {301, n}, 3),
            one(DType::kF32, {1, n});
        fill(x, 1, 3.0);
        fill(weight, 2);
        rms_norm(ctx, x, weight, kNormEps, out);
        for (std::int64_t i : {0, 17, 300}) {
          expect_rms(x, i, 0, weight, out);
          rms_norm(alone, x->rows(i, 1), weight, kNormEps, one);
          EXPECT_TRUE(same_bits(out->rows(i, 1), one));
        }
        EXPECT_TRUE(gaps_untouched(out));
      }
    }
  });
}

TEST(Norm, RmsPerHeadOnASliceOfAFusedRowInPlace) {
  on_every_machine([](Context& ctx, Context&) {
    constexpr std::int64_t kTokens = 40, kHeads = 6, kDim = 24;
    Owned qkv(DType::kF32, {kTokens, 3 * kHeads, kDim}),
        before(DType::kF32, {kTokens, 3 * kHeads, kDim});
    Owned weight(DType::kBF16, {kDim});
    fill(qkv, 3);
    fill(before, 3);
    fill(weight, 4);
    const Tensor q = qkv->slice(1, kHeads, kHeads);
    rms_norm(ctx, q, weight, kNormEps, q);
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t h = 0; h < kHeads; ++h)
        expect_rms(before->slice(1, kHeads, kHeads), t, h, weight, q);
    EXPECT_TRUE(same_bits(qkv->slice(1, 0, kHeads), before->slice(1, 0, kHeads)));
    EXPECT_TRUE(same_bits(qkv->slice(1, 2 * kHeads, kHeads), before->slice(1, 2 * kHeads, kHeads)));
  });
}

TEST(Norm, AddRmsIsAddThenRms) {
  on_every_machine([](Context& ctx, Context& alone) {
    for (std::int64_t n : {5, 16, 77}) {
      Owned x(DType::kF32, {250, n}, 1), residual(DType::kF32, {250, n}, 2),
          sum(DType::kF32, {250, n});
      Owned weight(DType::kF32, {n}), want(DType::kF32, {250, n});
      fill(x, 5);
      fill(residual, 6);
      fill(weight, 7);
      for_each(x, [&](std::int64_t i, std::int64_t j, std::int64_t) {
        sum.data<float>()[i * n + j] =
            static_cast<float>(get(residual, {i, j})) + static_cast<float>(get(x, {i, j}));
      });
      add_rms_norm(ctx, x, residual, weight, kNormEps, x);
      EXPECT_TRUE(same_bits(residual, sum));
      rms_norm(alone, sum, weight, kNormEps, want);
      EXPECT_TRUE(same_bits(x, want));
    }
  });
}

TEST(Norm, LayerNorm) {
  on_every_machine([](Context& ctx, Context& alone) {
    for (std::int64_t n : {1, 6, 16, 128, 131}) {
      Owned x(DType::kF32, {260, n}, 4), weight(DType::kF32, {n}), bias(DType::kBF16, {n}),
          out(DType::kF32, {260, n});
      Owned one(DType::kF32, {1, n}), plain(DType::kF32, {260, n});
      fill(x, 8, 2.0);
      for_each(x, [&](std::int64_t i, std::int64_t j, std::int64_t) {
        put(x, {i, j}, get(x, {i, j}) + 3.0);
      });
      fill(weight, 9);
      fill(bias, 10);
      layer_norm(ctx, x, weight, bias, kNormEps, out);
      layer_norm(ctx, x, weight, {}, kNormEps, plain);
      for (std::int64_t i : {0, 130, 259}) {
        double mean = 0, variance = 0, size = 0;
        for (std::int64_t k = 0; k < n; ++k) mean += get(x, {i, k}) / static_cast<double>(n);
        for (std::int64_t k = 0; k < n; ++k) {
          variance += std::pow(get(x, {i, k}) - mean, 2) / static_cast<double>(n);
          size += std::abs(get(x, {i, k})) / static_cast<double>(n);
        }
        const double factor = 1.0 / std::sqrt(variance + kNormEps);
        for (std::int64_t k = 0; k < n; ++k) {
          const double scaled = (get(x, {i, k}) - mean) * factor * get(weight, {k});
          // The mean is off by at most n eps size; `factor` multiplies the resulting error of x -
          // mean.
          const double slack = static_cast<double>(n + 8) * kEps *
                               (std::abs(scaled) + 2 * size * factor * std::abs(get(weight, {k})));
          ASSERT_NEAR(get(plain, {i, k}), scaled, slack);
          ASSERT_NEAR(get(out, {i, k}), scaled + get(bias, {k}),
                      slack + kEps * std::abs(get(bias, {k})));
        }
        layer_norm(alone, x->rows(i, 1), weight, bias, kNormEps, one);
        EXPECT_TRUE(same_bits(out->rows(i, 1), one));
      }
    }
  });
}

TEST(Norm, WrongShapesAreNamedAndADryRunTouchesNothing) {
  Machine machine(CpuIsa::kAvx2);
  Owned x(DType::kF32, {2, 4}), weight(DType::kF32, {5}), good(DType::kF32, {4}),
      out(DType::kF32, {2, 4});
  EXPECT_THROW(rms_norm(machine.ctx, x, weight, 0, out), Error);
  EXPECT_THROW(rms_norm(machine.ctx, x, good, 0, out->rows(0, 1)), Error);
  fill(x, 1);
  fill(good, 2);
  machine.ctx.dry_run = true;
  rms_norm(machine.ctx, x, good, 1, out);
  EXPECT_TRUE(std::isnan(get(out, {0, 0})));
  machine.ctx.dry_run = false;
  rms_norm(machine.ctx, x, good, 1, out);
  EXPECT_FALSE(std::isnan(get(out, {1, 3})));
}

}  // namespace
}  // namespace sluice::ops
