// On a CPU, fused operations give the bits of the separate ones.
#include "ops/fused.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "ops/heads.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/testing/paged_batch.h"

namespace sluice::ops {
namespace {

TEST(Joined, NeverOnACpu) {
  Machine machine(CpuIsa::kAvx2);
  EXPECT_FALSE(fuses_rows(machine.ctx, 1, false));
}

TEST(Joined, ProductsWithNormsGatesAndSums) {
  constexpr std::int64_t kRows = 3, kIn = 72, kOut = 20;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    Owned x(DType::kF32, {kRows, kIn}), weight(DType::kF32, {kIn}), w(type, {2 * kOut, kIn}),
        bias(DType::kF32, {2 * kOut});
    fill(x, 1);
    fill(weight, 2);
    fill(w, 3);
    fill(bias, 4);
    Machine machine(CpuIsa::kAvx2);
    Context& ctx = machine.ctx;
    const RowNorm norm{weight.view, 1e-5f};

    Owned normed(type, {kRows, kIn}), both(DType::kF32, {kRows, 2 * kOut}),
        gated(type, {kRows, kOut});
    rms_norm(ctx, x, weight, 1e-5f, normed);
    linear(ctx, normed, w, bias, both);
    act_and_mul(ctx, Activation::kSilu, both, gated);

    Owned normed2(type, {kRows, kIn}), both2(DType::kF32, {kRows, 2 * kOut}),
        gated2(type, {kRows, kOut});
    norm_linear(ctx, x, norm, w, bias, normed2, both2);
    EXPECT_TRUE(same_bits(both, both2));
    fill(both2, 9);
    norm_gate_up(ctx, x, norm, w, bias, Activation::kSilu, normed2, both2, gated2);
    EXPECT_TRUE(same_bits(gated, gated2));
    fill(gated2, 9);
    norm_gate_up(ctx, normed, {}, w, bias, Activation::kSilu, {}, both2, gated2);
    EXPECT_TRUE(same_bits(gated, gated2));

    Owned sum(DType::kF32, {kRows, 2 * kOut}), sum2(DType::kF32, {kRows, 2 * kOut}),
        product(DType::kF32, {kRows, 2 * kOut});
    fill(sum, 5);
    fill(sum2, 5);
    add(ctx, sum, both, sum);
    linear_add(ctx, normed, w, bias, product, sum2);
    EXPECT_TRUE(same_bits(sum, sum2));
    EXPECT_THROW(norm_linear(ctx, x, {bias.view, 1e-5f}, w, bias, normed2, both2), Error);
    EXPECT_THROW(linear_add(ctx, normed, w, bias, product, gated), Error);
  }
}

TEST(Joined, HeadsThatTurnAndAttend) {
  constexpr std::int64_t kHeads = 4, kKv = 2, kDim = 16;
  const Case batch({90, 64, 1}, 3);
  const Rows rows(batch, {{0, 88}, {0, 89}, {1, 63}, {2, 0}});
  const std::int64_t tokens = rows.count();
  Owned slots(DType::kI64, {tokens});
  for (std::int64_t t = 0; t < tokens; ++t)
    put(slots, {t},
        static_cast<double>(batch.slot(static_cast<std::int64_t>(get(rows.seq, {t})),
                                       static_cast<std::int64_t>(get(rows.position, {t})))));
  Owned q(DType::kF32, {tokens, kHeads, kDim}), k(DType::kF32, {tokens, kKv * kDim}),
      v(DType::kF32, {tokens, kKv * kDim});
  Owned angles(DType::kF32, {tokens, kDim}), weight(DType::kF32, {kDim});
  Owned k_plane(DType::kBF16, {batch.num_slots(), kKv * kDim}),
      v_plane(DType::kBF16, {batch.num_slots(), kKv * kDim});
  Owned out(DType::kF32, {tokens, kHeads, kDim}), mixed(DType::kF32, {tokens, kHeads, kDim});
  Owned wanted(DType::kBF16, {tokens, kHeads, kDim}), rounded(DType::kBF16, {tokens, kHeads, kDim});
  const auto begin = [&] {
    fill(q, 1);
    fill(k, 2);
    fill(v, 3);
    fill(angles, 4);
    fill(weight, 5);
    batch.write(k_plane, 6);
    batch.write(v_plane, 7);
  };
  Machine machine(CpuIsa::kAvx2);
  Context& ctx = machine.ctx;
  begin();
  norm_and_rotate_heads(ctx, q, heads_of_rows(k, kKv), weight, weight, 1e-6f, angles, false);
  write_and_attend(ctx, q, k, v, slots, k_plane, v_plane, kKv, rows.rows, {.scale = 0.2f}, out);
  convert(ctx, out, wanted);
  const HeadRotation rotation{.q_weight = weight.view,
                              .k_weight = weight.view,
                              .eps = 1e-6f,
                              .cos_sin = angles.view,
                              .interleaved = false};
  begin();
  rotate_write_and_attend(ctx, q, k, v, rotation, slots, k_plane, v_plane, kKv, rows.rows,
                          {.scale = 0.2f}, mixed, rounded);
  EXPECT_TRUE(same_bits(wanted, rounded));
  begin();
  rotate_write_and_attend(ctx, q, k, v, rotation, slots, k_plane, v_plane, kKv, rows.rows,
                          {.scale = 0.2f}, mixed, mixed);
  EXPECT_TRUE(same_bits(out, mixed));
}

TEST(Joined, Experts) {
  constexpr std::int64_t kTokens = 3, kExperts = 6, kTopK = 2, kHidden = 40, kWidth = 24;
  Owned x(DType::kF32, {kTokens, kHidden}), weight(DType::kF32, {kHidden}),
      router(DType::kF32, {kExperts, kHidden});
  Owned w13(DType::kBF16, {kExperts, 2 * kWidth, kHidden}),
      w2(DType::kBF16, {kExperts, kHidden, kWidth});
  fill(x, 1);
  fill(weight, 2);
  fill(router, 3);
  fill(w13, 4);
  fill(w2, 5);
  Machine machine(CpuIsa::kAvx2);
  Context& ctx = machine.ctx;
  const RouterParams params = softmax_router(kTopK, true);
  Owned normed(DType::kF32, {kTokens, kHidden}), logits(DType::kF32, {kTokens, kExperts}),
      rounded(DType::kBF16, {kTokens, kHidden});
  Owned weights(DType::kF32, {kTokens, kTopK}), ids(DType::kI32, {kTokens, kTopK});
  rms_norm(ctx, x, weight, 1e-6f, normed);
  linear(ctx, normed, router, {}, logits);
  route(ctx, logits, {}, params, weights, ids);
  convert(ctx, normed, rounded);

  Owned normed2(DType::kF32, {kTokens, kHidden}), logits2(DType::kF32, {kTokens, kExperts}),
      rounded2(DType::kBF16, {kTokens, kHidden});
  Owned weights2(DType::kF32, {kTokens, kTopK}), ids2(DType::kI32, {kTokens, kTopK});
  norm_route(ctx, x, {weight.view, 1e-6f}, router, {}, {}, params, normed2, logits2, rounded2,
             weights2, ids2);
  EXPECT_TRUE(same_bits(rounded, rounded2));
  EXPECT_TRUE(same_bits(weights, weights2));
  EXPECT_TRUE(same_bits(ids, ids2));

  Arena arena(1 << 20);
  const MoeWorkspace workspace =
      take_moe_workspace(arena, kTokens, kTopK, kExperts, kHidden, kWidth, {DType::kBF16, kWidth});
  Owned product(DType::kF32, {kTokens, kHidden}), sum(DType::kF32, {kTokens, kHidden}),
      sum2(DType::kF32, {kTokens, kHidden});
  fill(sum, 6);
  fill(sum2, 6);
  fused_experts(ctx, rounded, w13, w2, weights, ids, Activation::kSilu, workspace, product);
  add(ctx, sum, product, sum);
  experts_add(ctx, rounded, w13, w2, weights, ids, Activation::kSilu, workspace, product, sum2);
  EXPECT_TRUE(same_bits(sum, sum2));
}

}  // namespace
}  // namespace sluice::ops
