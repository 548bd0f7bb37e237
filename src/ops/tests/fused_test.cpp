// On a CPU fused operations give the bits of the separate ones; what is fused is said by the row of
// the weight.
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
#include "ops/packing.h"
#include "ops/testing/paged_batch.h"

namespace sluice::ops {
namespace {

struct FusedMachine : Machine {
  FusedMachine() : Machine(CpuIsa::kAvx2), arena(1 << 20) { ctx.arena = &arena; }
  Arena arena;
};

TEST(Fused, GemmsWithNormsGatesAndSums) {
  constexpr std::int64_t kRows = 3, kIn = 72, kOut = 20;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    Owned x(DType::kF32, {kRows, kIn}), weight(DType::kF32, {kIn}), table(type, {2 * kOut, kIn}),
        bias(DType::kF32, {2 * kOut}), branch(DType::kF32, {kRows, kIn});
    fill(weight, 2);
    fill(table, 3);
    fill(bias, 4);
    Weight w = table, next = table;
    w.input = next.input = type;
    next.columns = kOut;
    FusedMachine machine;
    Context& ctx = machine.ctx;
    const RowNorm norm{weight.view, 1e-5f};
    Owned normed(type, {kRows, kIn}), both(DType::kF32, {kRows, 2 * kOut}),
        gated(type, {kRows, kOut}), both2(DType::kF32, {kRows, 2 * kOut}),
        gated2(type, {kRows, kOut});
    for (const bool pending : {false, true}) {
      const auto stream = [&] {
        fill(x, 1);
        fill(branch, 9);
        return Residual{.hidden = x, .branch = branch, .pending = pending};
      };
      Residual before = stream();
      add_branch(ctx, before);
      rms_norm(ctx, x, weight, 1e-5f, normed);
      linear(ctx, normed, w, bias, both);
      act_and_mul(ctx, Activation::kSilu, both, gated);

      Residual now = stream();
      norm_linear(ctx, {now, norm}, w, bias, both2);
      EXPECT_FALSE(now.pending);
      EXPECT_TRUE(same_bits(both, both2));
      now = stream();
      norm_gate_up(ctx, {now, norm}, w, bias, Activation::kSilu, next, gated2);
      EXPECT_TRUE(same_bits(gated, gated2));
      fill(gated2, 9);
      norm_gate_up(ctx, normed.view, w, bias, Activation::kSilu, next, gated2);
      EXPECT_TRUE(same_bits(gated, gated2));
    }
    Owned sum(DType::kF32, {kRows, 2 * kOut}), sum2(DType::kF32, {kRows, 2 * kOut}),
        product(DType::kF32, {kRows, 2 * kOut});
    fill(sum, 5);
    fill(sum2, 5);
    add(ctx, sum, both, sum);
    Residual out{.hidden = sum2, .branch = product};
    linear_add(ctx, normed, w, bias, false, out);
    EXPECT_TRUE(out.pending);
    EXPECT_THROW(linear_add(ctx, normed, w, bias, false, out), Error);
    add_branch(ctx, out);
    EXPECT_TRUE(same_bits(sum, sum2));

    Residual stream{.hidden = x, .branch = branch};
    EXPECT_THROW(norm_linear(ctx, {stream, {bias.view, 1e-5f}}, w, bias, both2), Error);
    Residual narrow{.hidden = gated, .branch = product};
    EXPECT_THROW(linear_add(ctx, normed, w, bias, false, narrow), Error);
  }
}

// The rows of this build's devices: each has what nothing can replace, and packing where the device
// has a layout of its own.
TEST(WeightTable, RowsAreWhole) {
  for (const WeightOps& row : weight_rows(DeviceKind::kCpu)) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(row.device, DeviceKind::kCpu);
    EXPECT_TRUE(row.accepts && row.linear);
    // The loader makes fragments. Codes in rows are for linear layers alone.
    const bool is_fragments = row.layout == Layout::kFragments,
               has_all = row.layout != Layout::kRows || !is_quantised(row.format);
    EXPECT_EQ(has_all, row.embed != nullptr);
    EXPECT_EQ(has_all, row.experts != nullptr);
    const bool has_layout = row.layout != Layout::kRows, packs = has_layout && !is_fragments;
    EXPECT_EQ(has_layout, row.packed_bytes != nullptr);
    EXPECT_EQ(packs, row.pack && row.block_row_bytes);
    EXPECT_EQ(packs, row.prepared_shape && row.prepare);
    EXPECT_EQ(has_layout, row.tile_rows > 1 && row.panel_rows % row.tile_rows == 0);
    for (const WeightOps& other : weight_rows(DeviceKind::kCpu))
      EXPECT_EQ(&row == &other, row.format == other.format && row.layout == other.layout);
  }
}

TEST(WeightTable, GivesTheFirstLayoutThatAccepts) {
  const Context ctx;
  EXPECT_EQ(weight_form(ctx, Format::kBf16, DType::kBF16, 0).layout, Layout::kTiles);
  EXPECT_EQ(weight_form(ctx, Format::kBf16, DType::kF32, 0).layout, Layout::kRows);
  EXPECT_EQ(weight_form(ctx, Format::kF32, DType::kF32, 0).layout, Layout::kTiles);
  EXPECT_EQ(weight_form(ctx, Format::kF32, DType::kBF16, 0).layout, Layout::kRows);
  const Weight quantised = weight_form(ctx, Format::kInt4, DType::kBF16, 128);
  EXPECT_EQ(quantised.layout, Layout::kTiles);
  EXPECT_EQ(quantised.input, DType::kF32);
  EXPECT_THROW(weight_form(ctx, Format::kInt8, DType::kBF16, 64), Error);
}

// A device whose row has no fused entries computes what the separate operations do; where an entry
// is there, it is the one that runs, but for sums over ranks and branches that are changed first.
TEST(WeightTable, NullEntriesAreTheCompositionAndOthersAreUsed) {
  constexpr std::int64_t kRows = 2, kIn = 48, kOut = 24;
  Owned x(DType::kF32, {kRows, kIn}), weight(DType::kF32, {kIn}), table(DType::kF32, {kOut, kIn}),
      branch(DType::kF32, {kRows, kIn}), out(DType::kF32, {kRows, kOut}),
      want(DType::kF32, {kRows, kOut}), sum(DType::kF32, {kRows, kOut}),
      want_sum(DType::kF32, {kRows, kOut}), normed(DType::kF32, {kRows, kIn});
  fill(weight, 2);
  fill(table, 3);
  FusedMachine machine;
  Context& ctx = machine.ctx;
  static int norms, sums;
  norms = sums = 0;
  WeightOps bare = weight_ops(ctx, table);
  bare.gate_up = nullptr;
  WeightOps fused = bare;
  fused.norm_linear = [](Context& c, const Tensor& rows, const RowNorm& norm, const Weight& w,
                         const Tensor& bias, const Tensor& between, const Tensor& to) {
    ++norms;
    rms_norm(c, rows, norm.weight, norm.eps, between);
    linear(c, between, w, bias, to);
  };
  fused.linear_add = [](Context& c, const Tensor& rows, const Weight& w, const Tensor& bias,
                        const Tensor& between, const Tensor& to) {
    ++sums;
    linear(c, rows, w, bias, between);
    add(c, to, between, to);
  };
  fill(x, 1);
  rms_norm(ctx, x, weight, 1e-5f, normed);
  linear(ctx, normed, table, {}, want);
  fill(want_sum, 6);
  add(ctx, want_sum, want, want_sum);
  for (const WeightOps* row : {&bare, &fused}) {
    Residual stream{.hidden = x, .branch = branch};
    norm_linear(*row, ctx, {stream, {weight.view, 1e-5f}}, table, {}, out);
    EXPECT_TRUE(same_bits(want, out));
    fill(sum, 6);
    fill(out, 7);
    Residual to{.hidden = sum, .branch = out};
    linear_add(*row, ctx, normed, table, {}, false, to);
    EXPECT_EQ(to.pending, row == &bare);
    add_branch(ctx, to);
    EXPECT_TRUE(same_bits(want_sum, sum));
  }
  EXPECT_EQ(norms, 1);
  EXPECT_EQ(sums, 1);
  Residual kept{.hidden = sum, .branch = out, .keeps_branch = true};
  linear_add(fused, ctx, normed, table, {}, false, kept);
  EXPECT_TRUE(kept.pending);
  EXPECT_EQ(sums, 1);
}

// Adds what the other rank would have sent.
class TwoRanks final : public Communicator {
 public:
  explicit TwoRanks(const Tensor& other) : other_(other) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_reduce(const Tensor& x) override {
    for_each(x, [&](std::int64_t i, std::int64_t j, std::int64_t) {
      put(x, {i, j}, static_cast<float>(get(x, {i, j})) + static_cast<float>(get(other_, {i, j})));
    });
    ++sums;
  }
  void all_gather(const Tensor&, const Tensor&) override {}
  void broadcast(const Tensor&, int) override {}
  void barrier() override {}
  int sums = 0;

 private:
  Tensor other_;
};

// Row-parallel layers take the same operation: the row's fused entry would add one rank's summand
// before the others', so the sum over ranks comes first.
TEST(WeightTable, RowParallelSumsAreLinearThenAllReduceThenAdd) {
  constexpr std::int64_t kRows = 3, kIn = 40, kOut = 16;
  Owned x(DType::kF32, {kRows, kIn}), table(DType::kF32, {kOut, kIn}),
      other(DType::kF32, {kRows, kOut}), product(DType::kF32, {kRows, kOut}),
      sum(DType::kF32, {kRows, kOut}), want(DType::kF32, {kRows, kOut});
  fill(x, 1);
  fill(table, 2);
  fill(other, 3);
  fill(sum, 4);
  fill(want, 4);
  FusedMachine machine;
  Context& ctx = machine.ctx;
  TwoRanks ranks(other);
  ctx.communicator = &ranks;
  linear(ctx, x, table, {}, product);
  ranks.all_reduce(product);
  add(ctx, want, product, want);

  WeightOps row = weight_ops(ctx, table);
  row.linear_add = [](Context&, const Tensor&, const Weight&, const Tensor&, const Tensor&,
                      const Tensor&) { FAIL() << "this adds one rank's summand"; };
  Residual stream{.hidden = sum, .branch = product};
  linear_add(row, ctx, x, table, {}, true, stream);
  add_branch(ctx, stream);
  EXPECT_EQ(ranks.sums, 2);
  EXPECT_TRUE(same_bits(want, sum));
}

TEST(Fused, HeadsThatTurnAndAttend) {
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

TEST(Fused, Experts) {
  constexpr std::int64_t kTokens = 3, kExperts = 6, kTopK = 2, kHidden = 40, kWidth = 24;
  Owned x(DType::kF32, {kTokens, kHidden}), weight(DType::kF32, {kHidden}),
      router(DType::kF32, {kExperts, kHidden});
  Owned up(DType::kBF16, {kExperts, 2 * kWidth, kHidden}),
      down(DType::kBF16, {kExperts, kHidden, kWidth});
  fill(x, 1);
  fill(weight, 2);
  fill(router, 3);
  fill(up, 4);
  fill(down, 5);
  Weight w13 = up, w2 = down;
  w13.input = w2.input = DType::kBF16;
  FusedMachine machine;
  Context& ctx = machine.ctx;
  const RouterParams params = softmax_router(kTopK, true);
  Owned normed(DType::kF32, {kTokens, kHidden}), logits(DType::kF32, {kTokens, kExperts}),
      rounded(DType::kBF16, {kTokens, kHidden});
  Owned weights(DType::kF32, {kTokens, kTopK}), ids(DType::kI32, {kTokens, kTopK});
  rms_norm(ctx, x, weight, 1e-6f, normed);
  linear(ctx, normed, router, {}, logits);
  route(ctx, logits, {}, params, weights, ids);
  convert(ctx, normed, rounded);

  Owned branch(DType::kF32, {kTokens, kHidden}), rounded2(DType::kBF16, {kTokens, kHidden});
  Owned weights2(DType::kF32, {kTokens, kTopK}), ids2(DType::kI32, {kTokens, kTopK});
  Residual stream{.hidden = x, .branch = branch};
  norm_route(ctx, {stream, {weight.view, 1e-6f}}, router, {}, {}, params, w13, rounded2, weights2,
             ids2);
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
  Residual to{.hidden = sum2, .branch = product};
  experts_add(ctx, rounded, w13, w2, weights, ids, Activation::kSilu, false, to);
  add_branch(ctx, to);
  EXPECT_TRUE(same_bits(sum, sum2));
}

}  // namespace
}  // namespace sluice::ops
