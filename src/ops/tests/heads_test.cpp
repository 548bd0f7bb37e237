#include "ops/heads.h"

#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

// The bits of the separate operations, on strided slices of a fused row.
TEST(Heads, AreNormalisedAndRotatedAsByTheirParts) {
  on_every_machine([](Context& ctx, Context&) {
    constexpr std::int64_t kTokens = 9, kHeads = 6, kKvHeads = 2, kDim = 24;
    for (const std::int64_t rotated : {24, 10}) {
      for (const bool normed : {false, true}) {
        for (const bool interleaved : {false, true}) {
          Owned fused(DType::kF32, {kTokens, kHeads + 2 * kKvHeads, kDim}),
              parts(DType::kF32, {kTokens, kHeads + 2 * kKvHeads, kDim});
          Owned cos_sin(DType::kF32, {kTokens, rotated}), weight(DType::kBF16, {kDim}),
              other(DType::kF32, {kDim});
          fill(fused, 1, 3.0);
          fill(parts, 1, 3.0);
          fill(cos_sin, 2);
          fill(weight, 3);
          fill(other, 4);
          const Tensor q_weight = normed ? weight.view : Tensor{},
                       k_weight = normed ? other.view : Tensor{};
          norm_and_rotate_heads(ctx, fused->slice(1, 0, kHeads), fused->slice(1, kHeads, kKvHeads),
                                q_weight, k_weight, 1e-6f, cos_sin, interleaved);
          const Tensor q = parts->slice(1, 0, kHeads), k = parts->slice(1, kHeads, kKvHeads);
          if (normed) {
            rms_norm(ctx, q, weight, 1e-6f, q);
            rms_norm(ctx, k, other, 1e-6f, k);
          }
          rope(ctx, cos_sin, q.slice(2, 0, rotated), interleaved);
          rope(ctx, cos_sin, k.slice(2, 0, rotated), interleaved);
          EXPECT_TRUE(same_bits(fused, parts));
        }
      }
    }
  });
}

TEST(Heads, NormsMayRoundToBfloat16AsConvertDoes) {
  on_every_machine([](Context& ctx, Context&) {
    constexpr std::int64_t kTokens = 5, kWidth = 37;
    Owned x(DType::kF32, {kTokens, kWidth}, 3), weight(DType::kF32, {kWidth}),
        wide(DType::kF32, {kTokens, kWidth});
    Owned narrow(DType::kBF16, {kTokens, kWidth}, 1), residual(DType::kF32, {kTokens, kWidth}),
        twin(DType::kF32, {kTokens, kWidth});
    fill(x, 1, 4.0);
    fill(weight, 2);
    fill(residual, 3);
    fill(twin, 3);
    const auto expect_rounded = [&] {
      EXPECT_TRUE(gaps_untouched(narrow));
      for_each(wide, [&](std::int64_t i, std::int64_t j, std::int64_t) {
        ASSERT_EQ(get(narrow, {i, j}),
                  static_cast<float>(BF16(static_cast<float>(get(wide, {i, j})))));
      });
    };
    rms_norm(ctx, x, weight, 1e-5f, wide);
    rms_norm(ctx, x, weight, 1e-5f, narrow);
    expect_rounded();
    add_rms_norm(ctx, x, residual, weight, 1e-5f, wide);
    add_rms_norm(ctx, x, twin, weight, 1e-5f, narrow);
    expect_rounded();
    EXPECT_TRUE(same_bits(residual, twin));
  });
}

}  // namespace
}  // namespace sluice::ops
