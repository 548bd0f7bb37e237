#include "ops/indexer.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "ops/testing/paged_batch.h"

namespace sluice::ops {
namespace {

TEST(Hadamard, IsTheSylvesterMatrixAndItsOwnInverse) {
  on_every_machine([](Context& ctx, Context&) {
    for (std::int64_t n : {1, 2, 16, 128}) {
      Owned x(DType::kF32, {30, 2, n}, 1), before(DType::kF32, {30, 2, n});
      fill(x, 1);
      fill(before, 1);
      hadamard(ctx, x);
      EXPECT_TRUE(gaps_untouched(x));
      for (std::int64_t i = 0; i < n; ++i) {
        double want = 0, size = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          // H[i][j] = (-1)^(number of common bits)
          const double sign =
              __builtin_popcountll(static_cast<unsigned long long>(i & j)) % 2 == 0 ? 1 : -1;
          want += sign * get(before, {7, 1, j});
          size += std::abs(get(before, {7, 1, j}));
        }
        const double factor = 1 / std::sqrt(static_cast<double>(n));
        ASSERT_NEAR(get(x, {7, 1, i}), want * factor,
                    static_cast<double>(n + 4) * kEps * size * factor);
      }
    }
    Owned odd(DType::kF32, {1, 12});
    EXPECT_THROW(hadamard(ctx, odd), Error);
  });
}

struct Problem {
  Problem(const Case& batch_, const Rows& rows_, std::int64_t heads, std::int64_t dim, DType dtype)
      : batch(batch_),
        rows(rows_),
        k(dtype, {batch.num_slots(), dim}),
        q(DType::kF32, {rows.count(), heads, dim}, 2),
        weights(DType::kF32, {rows.count(), heads}, 1) {
    batch.write(k, 50);
    fill(q, 1);
    if (dtype == DType::kBF16) round_to_bf16(q);  // as the bfloat16 kernels do
    fill(weights, 2);                             // of both signs
  }
  // Score in double and a bound on the error of the float sum.
  std::pair<double, double> score(std::int64_t t, std::int64_t s) const {
    const auto seq = static_cast<std::int64_t>(get(rows.seq, {t}));
    const std::int64_t heads = q->dim(1), dim = q->dim(2);
    double sum = 0, size = 0;
    for (std::int64_t h = 0; h < heads; ++h) {
      double dot = 0, dot_size = 0;
      for (std::int64_t i = 0; i < dim; ++i) {
        const double term = get(q, {t, h, i}) * get(k, {batch.slot(seq, s), i});
        dot += term;
        dot_size += std::abs(term);
      }
      sum += get(weights, {t, h}) * std::max(dot, 0.0);
      size += std::abs(get(weights, {t, h})) * dot_size;
    }
    return {sum, static_cast<double>(heads + dim + 4) * kEps * size};
  }

  const Case& batch;
  const Rows& rows;
  Owned k, q, weights;
};

// score(p)[t][s] of every visible key.
std::vector<std::vector<std::pair<double, double>>> scores(const Problem& p) {
  std::vector<std::vector<std::pair<double, double>>> all(static_cast<std::size_t>(p.rows.count()));
  for (std::int64_t t = 0; t < p.rows.count(); ++t)
    for (std::int64_t s = 0; s <= get(p.rows.position, {t}); ++s) all[t].push_back(p.score(t, s));
  return all;
}

TEST(IndexTopk, ChoosesTheLargestExactly) {
  const Case batch({700, 70, 257, 130}, 7);
  const Rows rows(batch, {{0, 699},
                          {0, 698},
                          {0, 350},
                          {1, 69},
                          {1, 0},
                          {1, 31},
                          {1, 32},
                          {2, 256},
                          {3, 128},
                          {3, 129}});
  for (const auto& [heads, dim, dtype] :
       {std::tuple{5, 24, DType::kF32}, std::tuple{32, 128, DType::kBF16},
        std::tuple{1, 3, DType::kF32}}) {
    const Problem p(batch, rows, heads, dim, dtype);
    const auto want = scores(p);
    constexpr std::int64_t kTopk = 32;
    on_every_machine([&](Context& ctx, Context& alone) {
      Owned out(DType::kI32, {rows.count(), kTopk}, 1), one(DType::kI32, {1, kTopk});
      Owned space(DType::kF32, {3, 704}), small(DType::kF32, {1, 704});
      index_topk(ctx, p.q, p.weights, p.k, rows.rows, space, out);
      EXPECT_TRUE(gaps_untouched(out));
      for (std::int64_t t = 0; t < rows.count(); ++t) {
        index_topk(alone, p.q->rows(t, 1), p.weights->rows(t, 1), p.k, rows.one(t), small, one);
        ASSERT_TRUE(same_bits(out->rows(t, 1), one)) << t;
        const auto last = static_cast<std::int64_t>(get(rows.position, {t}));
        std::vector<std::int32_t> got;
        for (std::int64_t i = 0; i < kTopk; ++i)
          got.push_back(static_cast<std::int32_t>(get(out, {t, i})));
        const auto count = std::min<std::int64_t>(kTopk, last + 1);
        ASSERT_TRUE(std::is_sorted(got.begin(), got.begin() + count));
        for (std::int64_t i = count; i < kTopk; ++i) ASSERT_EQ(got[i], -1);
        const std::set<std::int32_t> chosen(got.begin(), got.begin() + count);
        ASSERT_EQ(std::ssize(chosen), count);
        ASSERT_TRUE(*chosen.begin() >= 0 && *chosen.rbegin() <= last);
        double lowest = 1e300, lowest_error = 0;
        for (std::int32_t s : chosen) {
          const auto [score, error] = want[t][s];
          if (score < lowest) lowest = score;
          lowest_error = std::max(lowest_error, error);
        }
        for (std::int64_t s = 0; s <= last; ++s) {
          if (chosen.contains(static_cast<std::int32_t>(s))) continue;
          const auto [score, error] = want[t][s];
          ASSERT_LE(score, lowest + error + lowest_error) << "row " << t << " leaves out " << s;
        }
      }
    });
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Keys with equal scores: the lower position wins. Scores 0 and -0 are equal.
TEST(IndexTopk, TiesGoToTheLowerPosition) {
  const Case batch({300}, 3);
  Owned k(DType::kF32, {batch.num_slots(), 4}), q(DType::kF32, {1, 1, 4}),
      weights(DType::kF32, {1, 1});
  assign<float>(q, {1, 0, 0, 0});
  const Rows rows(batch, {{0, 299}});
  on_every_machine([&](Context& ctx, Context&) {
    Owned out(DType::kI32, {1, 10}), space(DType::kF32, {1, 300});
    // Every 50th position scores higher, all others tie.
    for (std::int64_t s = 0; s < 300; ++s)
      for (std::int64_t i = 0; i < 4; ++i) put(k, {batch.slot(0, s), i}, s % 50 == 49 ? 2.0 : 1.0);
    put(weights, {0, 0}, 1.0);
    index_topk(ctx, q, weights, k, rows.rows, space, out);
    const int want[] = {0, 1, 2, 3, 49, 99, 149, 199, 249, 299};
    for (int i = 0; i < 10; ++i) EXPECT_EQ(get(out, {0, i}), want[i]);
    // Negative weight on relu(-1) = 0 gives -0 at odd positions, +0 at even ones.
    put(weights, {0, 0}, -1.0);
    for (std::int64_t s = 0; s < 300; ++s) put(k, {batch.slot(0, s), 0}, s % 2 == 0 ? -1.0 : 0.0);
    index_topk(ctx, q, weights, k, rows.rows, space, out);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(get(out, {0, i}), i);
  });
}

TEST(IndexTopk, NanScoresComeLast) {
  const Case batch({200}, 3);
  Owned k(DType::kF32, {batch.num_slots(), 4}), q(DType::kF32, {1, 2, 4}),
      weights(DType::kF32, {1, 2});
  batch.write(k, 1);
  fill(q, 2);
  fill(weights, 3);
  const Rows rows(batch, {{0, 199}});
  for (std::int64_t s = 0; s < 200; s += 2) put(k, {batch.slot(0, s), 1}, std::nan(""));
  on_every_machine([&](Context& ctx, Context&) {
    Owned out(DType::kI32, {1, 100}), space(DType::kF32, {1, 200});
    index_topk(ctx, q, weights, k, rows.rows, space, out);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(get(out, {0, i}), 2 * i + 1);
  });
}

TEST(IndexTopk, ShortRowsNeedNoKeysAndLimitsAreChecked) {
  Case batch({100}, 3);
  Owned k(DType::kF32, {batch.num_slots(), 4}), q(DType::kF32, {1, 2, 4}),
      weights(DType::kF32, {1, 2});
  Machine machine(detect_cpu_isa(), 2);
  const Rows rows(batch, {{0, 7}}), longer(batch, {{0, 70}});
  Owned out(DType::kI32, {1, 8}), space(DType::kF32, {1, 71}), small(DType::kF32, {1, 70});
  index_topk(machine.ctx, q, weights, k, rows.rows, space, out);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(get(out, {0, i}), i);
  index_topk(machine.ctx, q, weights, k, longer.rows, space, out);  // NaN everywhere: no crash
  EXPECT_THROW(index_topk(machine.ctx, q, weights, k, longer.rows, small, out), Error);
  put(*batch.table, {0, 0}, -1);
  EXPECT_THROW(index_topk(machine.ctx, q, weights, k, longer.rows, space, out), Error);
  const IndexWorkspaceShape shape = index_topk_workspace(machine.ctx, 1000, 4096);
  EXPECT_EQ(shape.max_len, 4096);
  EXPECT_GE(shape.rows, 1);
  EXPECT_LE(shape.rows, 1000);
}

}  // namespace
}  // namespace sluice::ops
