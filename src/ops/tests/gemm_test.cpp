#include "ops/gemm.h"

#include <cmath>

#include "base/error.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

constexpr DType kWeights[] = {DType::kF32, DType::kBF16, DType::kF16};

// A sum of k terms in any order is off by at most (k + 1) eps times the sum of their magnitudes.
void expect_product(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& out,
                    std::int64_t i, std::int64_t j) {
  double want = 0, size = 0;
  for (std::int64_t k = 0; k < x.dim(1); ++k) {
    want += get(x, {i, k}) * get(w, {j, k});
    size += std::abs(get(x, {i, k}) * get(w, {j, k}));
  }
  if (bias.defined()) {
    want += get(bias, {j});
    size += std::abs(get(bias, {j}));
  }
  ASSERT_NEAR(get(out, {i, j}), want, static_cast<double>(x.dim(1) + 2) * kEps * size)
      << i << " " << j;
}

TEST(Linear, EveryDtypeAndOddShapes) {
  on_every_machine([](Context& ctx, Context&) {
    if (ctx.pool->size() != 2) return;  // other thread counts: their bits are compared below
    unsigned seed = 0;
    for (DType x_dtype : {DType::kF32, DType::kBF16}) {
      for (DType w_dtype : kWeights) {
        for (std::int64_t m : {1, 2, 5, 13}) {
          for (std::int64_t n : {1, 4, 7, 66}) {
            for (std::int64_t k : {1, 8, 15, 16, 100}) {
              Owned x(x_dtype, {m, k}, 3), w(w_dtype, {n, k}, 1), bias(w_dtype, {n}),
                  out(DType::kF32, {m, n}, 2);
              fill(x, ++seed);
              fill(w, ++seed);
              fill(bias, ++seed);
              const Tensor b = k % 2 == 0 ? bias.view : Tensor{};
              linear(ctx, x, w, b, out);
              for_each(out, [&](std::int64_t i, std::int64_t j, std::int64_t) {
                expect_product(x, w, b, out, i, j);
              });
              ASSERT_TRUE(gaps_untouched(out));
              if (::testing::Test::HasFatalFailure()) return;
            }
          }
        }
      }
    }
  });
}

// A row's bits do not depend on other rows, a column's bits not on its position, and both not on
// the number of threads.
TEST(Linear, RowsAndColumnsAloneHaveTheSameBits) {
  on_every_machine([](Context& ctx, Context& alone) {
    for (DType x_dtype : {DType::kF32, DType::kBF16}) {
      for (DType w_dtype : kWeights) {
        constexpr std::int64_t kRows = 37, kColumns = 147, kDepth = 1037;
        Owned x(x_dtype, {kRows, kDepth}), w(w_dtype, {kColumns, kDepth}),
            bias(DType::kF32, {kColumns});
        Owned out(DType::kF32, {kRows, kColumns}), one(DType::kF32, {1, kColumns}),
            part(DType::kF32, {kRows, 1});
        fill(x, 1);
        fill(w, 2);
        fill(bias, 3);
        linear(ctx, x, w, bias, out);
        for (std::int64_t i = 0; i < kRows; ++i) {
          linear(alone, x->rows(i, 1), w, bias, one);
          ASSERT_TRUE(same_bits(out->rows(i, 1), one)) << "row " << i;
        }
        for (std::int64_t j : {0, 3, 64, 145, 146}) {
          linear(alone, x, w->rows(j, 1), bias->rows(j, 1), part);
          ASSERT_TRUE(same_bits(out->slice(1, j, 1), part)) << "column " << j;
        }
        for (std::int64_t rows : {2, 3, 5, 6, 7, 12, 20}) {
          Owned some(DType::kF32, {rows, kColumns});
          linear(ctx, x->rows(4, rows), w, bias, some);
          ASSERT_TRUE(same_bits(out->rows(4, rows), some)) << rows << " rows";
        }
      }
    }
  });
}

TEST(Linear, ManyRowsFewColumns) {
  on_every_machine([](Context& ctx, Context& alone) {
    Owned x(DType::kF32, {600, 64}), w(DType::kBF16, {9, 64}), out(DType::kF32, {600, 9}),
        one(DType::kF32, {1, 9});
    fill(x, 1);
    fill(w, 2);
    linear(ctx, x, w, {}, out);
    for (std::int64_t i = 0; i < 600; i += 23) {
      linear(alone, x->rows(i, 1), w, {}, one);
      ASSERT_TRUE(same_bits(out->rows(i, 1), one));
      expect_product(x, w, {}, out, i, i % 9);
    }
  });
}

TEST(Linear, EmptyIsNothingAndAWrongShapeIsABug) {
  Machine machine(CpuIsa::kAvx2);
  Owned x(DType::kF32, {0, 4}), w(DType::kF32, {3, 4}), out(DType::kF32, {0, 3}),
      wrong(DType::kF32, {3, 5});
  fill(w, 1);
  linear(machine.ctx, x, w, {}, out);
  EXPECT_THROW(linear(machine.ctx, x, wrong, {}, out), Error);
}

TEST(LinearHeads, IsOneProductForEachHead) {
  on_every_machine([](Context& ctx, Context& alone) {
    for (const DType x_dtype : {DType::kF32, DType::kBF16})
      for (const DType w_dtype : kWeights)
        for (const std::int64_t depth : {24, 64, 90}) {
          constexpr std::int64_t kTokens = 11, kHeads = 5, kLatent = 70, kRope = 8;
          // q rows are [nope | rope] per head; only nope is used.
          Owned q(x_dtype, {kTokens, kHeads, depth + kRope}), w(w_dtype, {kHeads, kLatent, depth});
          Owned out(DType::kF32, {kTokens, kHeads, kLatent}, 3),
              one(DType::kF32, {kTokens, kLatent});
          fill(q, 1);
          fill(w, 2);
          const Tensor nope = q->slice(2, 0, depth);
          linear_heads(ctx, nope, w, out);
          EXPECT_TRUE(gaps_untouched(out));
          for (std::int64_t h = 0; h < kHeads; ++h) {
            Owned x(x_dtype, {kTokens, depth});
            for_each(x, [&](std::int64_t i, std::int64_t j, std::int64_t) {
              put(x, {i, j}, get(nope, {i, h, j}));
            });
            linear(alone, x, w->at(h), {}, one);
            for_each(one, [&](std::int64_t i, std::int64_t j, std::int64_t) {
              ASSERT_EQ(get(out, {i, h, j}), get(one, {i, j}));
              expect_product(x, w->at(h), {}, one, i, j);
            });
          }
        }
  });
}

}  // namespace
}  // namespace sluice::ops
