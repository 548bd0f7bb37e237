// GEMM with repacked weights: the results of row-major weights, and bits that depend only on the
// row and the weight.
#include "ops/packing.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "ops/moe.h"
#include "ops/testing/support.h"
#include "tensor/buffer.h"

namespace sluice::ops {
namespace {

// A repacked copy of a matrix or stack of bf16 or f32, packed `piece` rows at a time.
struct Packed {
  Packed(const Context& ctx, const Tensor& plain, std::int64_t piece = 1 << 20) {
    w = weight_form(ctx, format_of(plain.dtype), plain.dtype, 0);
    w.count = plain.rank == 3 ? plain.dim(0) : 1;
    w.rows = plain.dim(-2);
    w.columns = plain.dim(-1);
    memory = Buffer(w.count * packed_bytes(ctx, w));
    w.data = memory.tensor(DType::kU8, {w.count, packed_bytes(ctx, w)});
    for (std::int64_t i = 0; i < w.count; ++i) {
      const Tensor matrix = plain.rank == 3 ? plain.at(i) : plain;
      for (std::int64_t r = 0; r < w.rows; r += piece)
        pack_rows(ctx, matrix.rows(r, std::min(piece, w.rows - r)), w, i, r);
    }
  }
  Buffer memory;
  Weight w;
};

// Sums of pairs in any order, each term rounded: (k + 1) eps of the sum of magnitudes. vdpbf16ps
// treats values below the normal range as 0, which is negligible here.
void expect_product(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& out,
                    std::int64_t i, std::int64_t j) {
  double want = bias.defined() ? get(bias, {j}) : 0, size = std::abs(want);
  for (std::int64_t k = 0; k < x.dim(1); ++k) {
    want += get(x, {i, k}) * get(w, {j, k});
    size += std::abs(get(x, {i, k}) * get(w, {j, k}));
  }
  ASSERT_NEAR(get(out, {i, j}), want, static_cast<double>(x.dim(1) + 2) * kEps * size)
      << i << " " << j;
}

TEST(PackedLinear, OddShapes) {
  on_every_machine([](Context& ctx, Context&) {
    if (ctx.pool->size() != 2) return;
    unsigned seed = 0;
    for (std::int64_t m : {1, 2, 5, 13}) {
      for (std::int64_t n : {1, 16, 23, 64, 66, 147}) {
        for (std::int64_t k : {1, 2, 15, 16, 44, 131, 300}) {
          const DType type = seed % 2 == 0 ? DType::kBF16 : DType::kF32;
          Owned x(type, {m, k}, 3), w(type, {n, k}), bias(DType::kF32, {n}),
              out(DType::kF32, {m, n}, 2);
          fill(x, ++seed);
          fill(w, ++seed);
          fill(bias, ++seed);
          const Tensor b = k % 2 == 0 ? bias.view : Tensor{};
          linear(ctx, x, Packed(ctx, w).w, b, out);
          for_each(out, [&](std::int64_t i, std::int64_t j, std::int64_t) {
            expect_product(x, w, b, out, i, j);
          });
          ASSERT_TRUE(gaps_untouched(out));
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

void rows_and_columns_alone(DType type) {
  on_every_machine([type](Context& ctx, Context& alone) {
    constexpr std::int64_t kRows = 90, kColumns = 659, kDepth = 1037;
    Owned x(type, {kRows, kDepth}), w(type, {kColumns, kDepth}), bias(DType::kF32, {kColumns});
    Owned out(DType::kF32, {kRows, kColumns}), one(DType::kF32, {1, kColumns}),
        part(DType::kF32, {kRows, 1});
    fill(x, 1);
    fill(w, 2);
    fill(bias, 3);
    const Packed packed(ctx, w);
    linear(ctx, x, packed.w, bias, out);
    for (std::int64_t i = 0; i < kRows; i += 7) {
      linear(alone, x->rows(i, 1), packed.w, bias, one);
      ASSERT_TRUE(same_bits(out->rows(i, 1), one)) << "row " << i;
    }
    for (std::int64_t j : {0, 17, 64, 657, 658}) {
      const Packed single(ctx, w->rows(j, 1));
      linear(alone, x, single.w, bias->rows(j, 1), part);
      ASSERT_TRUE(same_bits(out->slice(1, j, 1), part)) << "column " << j;
    }
    for (std::int64_t rows : {2, 3, 6, 7, 12, 16, 31, 65}) {
      Owned some(DType::kF32, {rows, kColumns});
      linear(ctx, x->rows(4, rows), packed.w, bias, some);
      ASSERT_TRUE(same_bits(out->rows(4, rows), some)) << rows << " rows";
    }
  });
}

TEST(PackedLinear, RowsAndColumnsAloneHaveTheSameBits) {
  for (const DType type : {DType::kBF16, DType::kF32}) rows_and_columns_alone(type);
}

void pieces_make_the_whole(DType type) {
  on_every_machine([type](Context& ctx, Context&) {
    Owned table(type, {150, 37}), ids(DType::kI32, {5}), out(DType::kF32, {5, 37}, 1);
    fill(table, 1);
    const Packed whole(ctx, table);
    for (std::int64_t piece : {1, 7, 16, 48}) {
      const Packed pieces(ctx, table, piece);
      ASSERT_EQ(0, std::memcmp(whole.memory.data(), pieces.memory.data(),
                               static_cast<std::size_t>(whole.memory.bytes())));
    }
    assign<std::int32_t>(ids, {149, 0, 64, 17, 143});
    embedding(ctx, ids, whole.w, out);
    for_each(out, [&](std::int64_t i, std::int64_t j, std::int64_t) {
      ASSERT_EQ(get(out, {i, j}), get(table, {ids.data<std::int32_t>()[i], j}));
    });
    EXPECT_TRUE(gaps_untouched(out));
    put(ids, {2}, 150);
    EXPECT_THROW(embedding(ctx, ids, whole.w, out), Error);
  });
}

TEST(PackedWeight, PiecesMakeTheWholeAndRowsCanBeReadBack) {
  for (const DType type : {DType::kBF16, DType::kF32}) pieces_make_the_whole(type);
}

// Packing some panels of one matrix of a stack changes only their bytes. The last panel has fewer
// rows and tiles.
TEST(PackedWeight, WholePanelsLieTogether) {
  on_every_machine([](Context& ctx, Context&) {
    constexpr std::int64_t kCount = 3, kAllRows = 170, kColumns = 70;
    Owned rows(DType::kBF16, {kAllRows, kColumns});
    fill(rows, 1);
    for (const Format format : {Format::kF32, Format::kBf16, Format::kInt8, Format::kInt4}) {
      const DType input = format == Format::kF32 ? DType::kF32 : DType::kBF16;
      Weight w = weight_form(ctx, format, input, is_quantised(format) ? 32 : 0);
      w.count = kCount;
      w.rows = kAllRows;
      w.columns = kColumns;
      const std::int64_t bytes = packed_bytes(ctx, w);
      EXPECT_FALSE(packed_panels(ctx, w, 1, 16, 64).defined());
      EXPECT_FALSE(packed_panels(ctx, w, 1, 0, 63).defined());
      std::int64_t next = bytes;  // where matrix 1 begins
      for (const auto& [first, n] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
               {0, 64}, {64, 64}, {128, 42}}) {
        const Buffer memory(kCount * bytes);
        w.data = memory.tensor(DType::kU8, {kCount, bytes});
        pack_rows(ctx, static_cast<const Tensor&>(rows).rows(first, n), w, 1, first);
        const Tensor panels = packed_panels(ctx, w, 1, first, n);
        const std::int64_t begin = panels.ptr<std::uint8_t>() - w.data.ptr<std::uint8_t>();
        EXPECT_EQ(begin, next);
        next = begin + panels.bytes();
        const auto all =
            std::span(w.data.ptr<std::uint8_t>(), static_cast<std::size_t>(kCount * bytes));
        const auto is_set = [](std::uint8_t byte) { return byte != 0; };
        EXPECT_TRUE(std::ranges::none_of(all.first(static_cast<std::size_t>(begin)), is_set));
        EXPECT_TRUE(std::ranges::none_of(all.subspan(static_cast<std::size_t>(next)), is_set));
        EXPECT_TRUE(std::ranges::any_of(all.subspan(static_cast<std::size_t>(next - 4 * kColumns),
                                                    static_cast<std::size_t>(4 * kColumns)),
                                        is_set));
      }
      EXPECT_EQ(next, 2 * bytes);
    }
  });
}

TEST(PackedWeight, RowsAreRoundedToNearestEven) {
  on_every_machine([](Context& ctx, Context&) {
    Owned x(DType::kF32, {9, 37}, 2), w(DType::kBF16, {1, 37}), out(DType::kBF16, {9, 37}, 1);
    fill(x, 1, 100.0);
    fill(w, 2);
    prepare_rows(ctx, x, Packed(ctx, w).w, out);
    for_each(out, [&](std::int64_t i, std::int64_t j, std::int64_t) {
      ASSERT_EQ(get(out, {i, j}), static_cast<float>(BF16(static_cast<float>(get(x, {i, j})))));
    });
    EXPECT_TRUE(gaps_untouched(out));
  });
}

// From the GEMMs of each expert alone: the same arithmetic, so the same bits. Cases: widths with
// and without whole tiles, blocks of tokens, experts without tokens, and pairs of other ranks.
TEST(PackedExperts, EqualTheExpertsOneByOne) {
  on_every_machine([](Context& ctx, Context& alone) {
    for (std::int64_t inner : {27, 48}) {
      constexpr std::int64_t kTokens = 41, kHidden = 70, kExperts = 6, kTopK = 2;
      Owned x(DType::kBF16, {kTokens, kHidden}), w13(DType::kBF16, {kExperts, 2 * inner, kHidden});
      Owned w2(DType::kBF16, {kExperts, kHidden, inner}), weights(DType::kF32, {kTokens, kTopK});
      Owned ids(DType::kI32, {kTokens, kTopK}), out(DType::kF32, {kTokens, kHidden}, 1);
      fill(x, 1);
      fill(w13, 2);
      fill(w2, 3);
      fill(weights, 4);
      for (std::int64_t t = 0; t < kTokens; ++t) {
        put(ids, {t, 0}, static_cast<double>(t % 3));
        put(ids, {t, 1}, static_cast<double>(3 + t % 2));
      }
      put(ids, {4, 0}, -1);
      const Packed first(ctx, w13), second(ctx, w2);
      for (std::int64_t block : {kTokens, std::int64_t{16}}) {
        Arena arena(1 << 20);
        const MoeWorkspace workspace = take_moe_workspace(
            arena, block, kTopK, kExperts, kHidden, inner, prepared_shape(ctx, second.w, block));
        fused_experts(ctx, x, first.w, second.w, weights, ids, Activation::kSilu, workspace, out);
        EXPECT_TRUE(gaps_untouched(out));
        for (std::int64_t t = 0; t < kTokens; t += 4) {
          std::vector<float> want(kHidden, 0.0f);
          for (std::int64_t j = 0; j < kTopK; ++j) {
            const auto e = static_cast<std::int64_t>(get(ids, {t, j}));
            if (e < 0) continue;
            Owned both(DType::kF32, {1, 2 * inner}), hidden(DType::kBF16, {1, inner}),
                down(DType::kF32, {1, kHidden});
            linear(alone, x->rows(t, 1), first.w.at(e), {}, both);
            silu_and_mul(alone, both, hidden);
            linear(alone, hidden, second.w.at(e), {}, down);
            const auto weight = static_cast<float>(get(weights, {t, j}));
            for (std::int64_t i = 0; i < kHidden; ++i)
              want[static_cast<std::size_t>(i)] += weight * down.data<float>()[i];
          }
          for (std::int64_t i = 0; i < kHidden; ++i)
            ASSERT_EQ(get(out, {t, i}), want[static_cast<std::size_t>(i)])
                << inner << " " << t << " " << i;
        }
      }
    }
  });
}

// Interleaved gate and up rows are the same rows in another order, and give the same bits.
TEST(PackedExperts, GateAndUpMayAlternate) {
  on_every_machine([](Context& ctx, Context&) {
    constexpr std::int64_t kTokens = 9, kHidden = 70, kExperts = 4, kTopK = 2, kInner = 80;
    Owned x(DType::kBF16, {kTokens, kHidden}), w13(DType::kBF16, {kExperts, 2 * kInner, kHidden});
    Owned w2(DType::kBF16, {kExperts, kHidden, kInner}), weights(DType::kF32, {kTokens, kTopK});
    Owned alternating(DType::kBF16, {kExperts, 2 * kInner, kHidden}),
        ids(DType::kI32, {kTokens, kTopK});
    Owned want(DType::kF32, {kTokens, kHidden}), out(DType::kF32, {kTokens, kHidden});
    fill(x, 1);
    fill(w13, 2);
    fill(w2, 3);
    fill(weights, 4);
    for_each(w13, [&](std::int64_t e, std::int64_t r, std::int64_t i) {
      put(alternating, {e, r < kInner ? 2 * r : 2 * (r - kInner) + 1, i}, get(w13, {e, r, i}));
    });
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t j = 0; j < kTopK; ++j) put(ids, {t, j}, static_cast<double>(j * 2 + t % 2));
    const Packed first(ctx, w13), other(ctx, alternating), second(ctx, w2);
    Arena arena(1 << 20);
    const MoeWorkspace workspace = take_moe_workspace(
        arena, kTokens, kTopK, kExperts, kHidden, kInner, prepared_shape(ctx, second.w, kTokens));
    fused_experts(ctx, x, first.w, second.w, weights, ids, Activation::kSilu, workspace, want);
    ExpertParams params(Activation::kSilu);
    params.interleaved = true;
    fused_experts(ctx, x, other.w, second.w, weights, ids, params, workspace, out);
    EXPECT_TRUE(same_bits(want, out));
  });
}

TEST(PackedWeight, WrongShapesAreBugs) {
  Machine machine(CpuIsa::kAvx2);
  Owned w(DType::kBF16, {20, 8}), x(DType::kBF16, {2, 7}), f(DType::kF32, {2, 8}),
      out(DType::kF32, {2, 20});
  fill(w, 1);
  fill(x, 2);
  fill(f, 3);
  const Packed packed(machine.ctx, w);
  EXPECT_THROW(linear(machine.ctx, x, packed.w, {}, out), Error);
  EXPECT_THROW(linear(machine.ctx, f, packed.w, {}, out), Error);
  EXPECT_THROW(pack_rows(machine.ctx, w->rows(0, 5), packed.w, 0, 16), Error);
}

}  // namespace
}  // namespace sluice::ops
