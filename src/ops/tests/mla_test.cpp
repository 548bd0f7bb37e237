#include "ops/mla.h"

#include <cmath>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/testing/paged_batch.h"

namespace sluice::ops {
namespace {

struct Queries {
  Queries(std::int64_t tokens, std::int64_t heads, std::int64_t latent, std::int64_t rope)
      : query(DType::kF32, {tokens, heads, latent + rope}),
        q_latent(DType::kF32, {tokens, heads, latent}, 3),
        q_rope(query->slice(2, latent, rope)) {
    fill(query, 11, 2.0);
    for_each(q_latent, [&](std::int64_t t, std::int64_t h, std::int64_t i) {
      put(q_latent, {t, h, i}, get(query, {t, h, i}));
    });
  }
  Owned query;  // [T, h, latent + rope]: q_latent and q_rope are views of it
  Owned q_latent;
  Tensor q_rope;
};

// Absorbed attention is attention with one KV head whose value is the beginning of its key: the
// same bits.
TEST(MlaAttention, IsPagedAttentionOverTheLatent) {
  const Case batch({600, 70, 257, 256, 1, 300}, 7);
  const Rows rows(batch, mixed_rows(batch));
  for (const auto& [heads, latent, rope, dtype] :
       {std::tuple{4, 32, 8, DType::kF32}, std::tuple{20, 48, 16, DType::kBF16},
        std::tuple{1, 7, 2, DType::kF32}}) {
    Owned plane(dtype, {batch.num_slots(), latent + rope});
    batch.write(plane, 1);
    Queries q(rows.count(), heads, latent, rope);
    on_every_machine([&](Context& ctx, Context& alone) {
      Owned out(DType::kF32, {rows.count(), heads, latent}, 2),
          want(DType::kF32, {rows.count(), heads, latent});
      Owned one(DType::kF32, {1, heads, latent});
      mla_attention(ctx, q.q_latent, q.q_rope, plane, rows.rows, 0.2f, out);
      // A dense copy of the values, so that the reference reads them from a plane of their own.
      Owned values(dtype, {batch.num_slots(), latent});
      for_each(values, [&](std::int64_t s, std::int64_t i, std::int64_t) {
        put(values, {s, i}, get(plane, {s, i}));
      });
      paged_attention(alone, q.query, plane, values, 1, rows.rows, {.scale = 0.2f}, want);
      EXPECT_TRUE(same_bits(out, want));
      EXPECT_TRUE(gaps_untouched(out));
      for (std::int64_t t = 0; t < rows.count(); t += 5) {
        mla_attention(alone, q.q_latent->rows(t, 1), q.q_rope.rows(t, 1), plane, rows.one(t), 0.2f,
                      one);
        ASSERT_TRUE(same_bits(out->rows(t, 1), one)) << "row " << t;
      }
    });
  }
}

TEST(MlaSparse, AFullListGivesTheBitsOfDense) {
  const Case batch({600, 70, 257}, 7);
  const Rows rows(batch, {{0, 599}, {0, 300}, {1, 69}, {2, 255}, {2, 256}, {2, 0}});
  Owned plane(DType::kBF16, {batch.num_slots(), 40});
  batch.write(plane, 1);
  Queries q(rows.count(), 20, 32, 8);
  Owned indices(DType::kI32, {rows.count(), 640}, 2);
  for (std::int64_t t = 0; t < rows.count(); ++t)
    for (std::int64_t i = 0; i < 640; ++i)
      put(indices, {t, i}, i <= get(rows.position, {t}) ? double(i) : -1.0);
  on_every_machine([&](Context& ctx, Context&) {
    Owned dense(DType::kF32, {rows.count(), 20, 32}), sparse(DType::kF32, {rows.count(), 20, 32});
    mla_attention(ctx, q.q_latent, q.q_rope, plane, rows.rows, 0.2f, dense);
    mla_sparse_attention(ctx, q.q_latent, q.q_rope, plane, rows.rows, indices, 0.2f, sparse);
    EXPECT_TRUE(same_bits(dense, sparse));
    // Row by row: then several threads share the heads of a row and start with different keys.
    Owned one(DType::kF32, {1, 20, 32});
    for (std::int64_t t = 0; t < rows.count(); ++t) {
      mla_sparse_attention(ctx, q.q_latent->rows(t, 1), q.q_rope.rows(t, 1), plane, rows.one(t),
                           indices->rows(t, 1), 0.2f, one);
      ASSERT_TRUE(same_bits(dense->rows(t, 1), one)) << "row " << t;
    }
  });
}

// With fewer tokens than threads, the threads share a token. They give the bits of one thread, also
// when a part of keys or columns is empty, a tile is not full, there are several chunks, or there
// are more heads than a tile holds.
TEST(MlaShared, ManyThreadsGiveTheBitsOfOne) {
  const Case batch({530, 70, 1}, 7);
  const Rows rows(batch, {{0, 529}, {1, 69}, {2, 0}});
  for (const auto& [heads, latent, rope] : {std::tuple{70, 72, 8}, std::tuple{8, 512, 64},
                                            std::tuple{3, 20, 7}, std::tuple{1, 116, 14}}) {
    Owned plane(DType::kBF16, {batch.num_slots(), latent + rope});
    batch.write(plane, 1);
    Queries q(rows.count(), heads, latent, rope);
    Owned indices(DType::kI32, {rows.count(), 300});
    for (std::int64_t t = 0; t < rows.count(); ++t)
      for (std::int64_t i = 0; i < 300; ++i) {
        const std::int64_t position = i < 100 ? i : i + 37;
        put(indices, {t, i},
            position <= get(rows.position, {t}) ? static_cast<double>(position) : -1.0);
      }
    for (const CpuIsa isa : isas()) {
      Machine alone(isa, 1);
      Owned dense(DType::kF32, {rows.count(), heads, latent}),
          sparse(DType::kF32, {rows.count(), heads, latent});
      mla_attention(alone.ctx, q.q_latent, q.q_rope, plane, rows.rows, 0.2f, dense);
      mla_sparse_attention(alone.ctx, q.q_latent, q.q_rope, plane, rows.rows, indices, 0.2f,
                           sparse);
      for (const int threads : {4, 5, 7}) {
        SCOPED_TRACE(fmt::format("{}, {} threads, {} heads of {} + {}", cpu_isa_name(isa), threads,
                                 heads, latent, rope));
        Machine machine(isa, threads);
        Owned out(DType::kF32, {rows.count(), heads, latent}, 2);
        mla_attention(machine.ctx, q.q_latent, q.q_rope, plane, rows.rows, 0.2f, out);
        EXPECT_TRUE(same_bits(out, dense));
        mla_sparse_attention(machine.ctx, q.q_latent, q.q_rope, plane, rows.rows, indices, 0.2f,
                             out);
        EXPECT_TRUE(same_bits(out, sparse));
        EXPECT_TRUE(gaps_untouched(out));
      }
    }
  }
}

// Sparse attention to some positions equals dense attention over a sequence of only these.
TEST(MlaSparse, ChosenKeysAreASequenceOfTheirOwn) {
  constexpr std::int64_t kHeads = 3, kLatent = 20, kRope = 4;
  const Case batch({500, 90}, 7);
  const Rows rows(batch, {{0, 499}, {1, 80}, {1, 80}, {0, 10}});
  Owned plane(DType::kF32, {batch.num_slots(), kLatent + kRope});
  batch.write(plane, 1);
  Queries q(4, kHeads, kLatent, kRope);
  std::vector<std::vector<std::int32_t>> chosen(4);
  for (int p = 1; p < 500; p += 1 + p % 2) chosen[0].push_back(p);
  chosen[1] = {80};
  chosen[2] = {0, 7, 63, 64, 79};
  Owned indices(DType::kI32, {4, 400}), out(DType::kF32, {4, kHeads, kLatent});
  for (std::int64_t t = 0; t < 4; ++t)
    for (std::size_t i = 0; i < chosen[t].size(); ++i)
      put(indices, {t, std::int64_t(i)}, chosen[t][i]);
  on_every_machine([&](Context& ctx, Context& alone) {
    mla_sparse_attention(ctx, q.q_latent, q.q_rope, plane, rows.rows, indices, 0.2f, out);
    for (std::int64_t t = 0; t < 3; ++t) {
      const auto count = static_cast<std::int64_t>(chosen[t].size());
      const Case own({count}, 1);
      const Rows last(own, {{0, static_cast<int>(count) - 1}});
      Owned compact(DType::kF32, {own.num_slots(), kLatent + kRope}),
          want(DType::kF32, {1, kHeads, kLatent});
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t j = 0; j < kLatent + kRope; ++j)
          put(compact, {own.slot(0, i), j},
              get(plane,
                  {batch.slot(static_cast<std::int64_t>(get(rows.seq, {t})), chosen[t][i]), j}));
      mla_attention(alone, q.q_latent->rows(t, 1), q.q_rope.rows(t, 1), compact, last.rows, 0.2f,
                    want);
      EXPECT_TRUE(same_bits(out->rows(t, 1), want)) << t;
    }
    for_each(out->at(3), [&](std::int64_t h, std::int64_t i, std::int64_t) {
      EXPECT_EQ(get(out, {3, h, i}), 0.0);
    });
  });
  put(indices, {1, 0}, 128);
  Machine machine(CpuIsa::kAvx2);
  EXPECT_THROW(
      mla_sparse_attention(machine.ctx, q.q_latent, q.q_rope, plane, rows.rows, indices, 0.2f, out),
      Error);
}

// MHA over ragged key ranges gives the bits of paged attention over the same keys. Merging two
// halves is close to that.
TEST(MhaAttention, RangesAndMerge) {
  constexpr std::int64_t kTokens = 50, kHeads = 3, kDk = 20, kDv = 12, kKeys = 700;
  Owned k(DType::kF32, {kKeys, kHeads, kDk}, 4), v(DType::kF32, {kKeys, kHeads, kDv});
  Owned q(DType::kF32, {kTokens, kHeads, kDk}), ks(DType::kI32, {kTokens}),
      ke(DType::kI32, {kTokens});
  fill(k, 1);
  fill(v, 2);
  fill(q, 3, 2.0);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    put(ks, {t}, t < 20 ? 100 : 390);
    put(ke, {t}, t < 20 ? 100 + t * 14 : 391 + (t - 20) * 10);
  }
  on_every_machine([&](Context& ctx, Context& alone) {
    Owned out(DType::kF32, {kTokens, kHeads, kDv}, 1), lse(DType::kF32, {kTokens, kHeads}, 1);
    Owned one(DType::kF32, {1, kHeads, kDv}), one_lse(DType::kF32, {1, kHeads});
    mha_attention(ctx, q, k, v, ks, ke, 0.3f, out, lse);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      mha_attention(alone, q->rows(t, 1), k, v, ks->rows(t, 1), ke->rows(t, 1), 0.3f, one, one_lse);
      ASSERT_TRUE(same_bits(out->rows(t, 1), one)) << t;
      ASSERT_TRUE(same_bits(lse->rows(t, 1), one_lse)) << t;
    }
    for_each(out->at(0), [&](std::int64_t h, std::int64_t i, std::int64_t) {
      EXPECT_EQ(get(out, {0, h, i}), 0.0);
    });
    EXPECT_EQ(get(lse, {0, 1}), -std::numeric_limits<double>::infinity());

    const auto range = [&](std::int64_t t) { return get(ke, {t}) - get(ks, {t}); };
    for (std::int64_t t = 1; t < kTokens; ++t) {
      for (std::int64_t h = 0; h < kHeads; ++h) {
        double sum = 0, error = 0, value = 0, size = 0;
        for (auto p = static_cast<std::int64_t>(get(ks, {t})); p < get(ke, {t}); ++p) {
          double dot = 0, dot_size = 0;
          for (std::int64_t i = 0; i < kDk; ++i) {
            dot += get(q, {t, h, i}) * get(k, {p, h, i});
            dot_size += std::abs(get(q, {t, h, i}) * get(k, {p, h, i}));
          }
          error = std::max(error, 0.3 * dot_size * (kDk + 2) * kEps);
          sum += std::exp(0.3 * dot);
          value += std::exp(0.3 * dot) * get(v, {p, h, 5});
          size += std::exp(0.3 * dot) * std::abs(get(v, {p, h, 5}));
        }
        const double slack = 2 * error + (range(t) + 16) * kEps;
        ASSERT_NEAR(get(lse, {t, h}), std::log(sum), slack + kEps * std::abs(std::log(sum)));
        ASSERT_NEAR(get(out, {t, h, 5}), value / sum, 2 * slack * size / sum);
      }
    }

    // Two halves of each range, merged.
    Owned middle(DType::kI32, {kTokens}), out_b(DType::kF32, {kTokens, kHeads, kDv}),
        lse_b(DType::kF32, {kTokens, kHeads});
    Owned out_a(DType::kF32, {kTokens, kHeads, kDv}), lse_a(DType::kF32, {kTokens, kHeads});
    for (std::int64_t t = 0; t < kTokens; ++t)
      put(middle, {t}, get(ks, {t}) + std::floor(range(t) / 3));
    mha_attention(ctx, q, k, v, ks, middle, 0.3f, out_a, lse_a);
    mha_attention(ctx, q, k, v, middle, ke, 0.3f, out_b, lse_b);
    merge_state(ctx, out_a, lse_a, out_b, lse_b, out_a, lse_a);
    // Both halves have an error of (range + 16) eps of their sums; values are at most 1.
    for_each(out, [&](std::int64_t t, std::int64_t h, std::int64_t i) {
      ASSERT_NEAR(get(out_a, {t, h, i}), get(out, {t, h, i}), 4 * (range(t) + 16) * kEps);
      if (range(t) > 0) {
        ASSERT_NEAR(get(lse_a, {t, h}), get(lse, {t, h}), 4 * (range(t) + 16) * kEps);
      }
    });
  });
}

TEST(MergeState, SidesWithoutKeysAreIgnored) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  on_every_machine([&](Context& ctx, Context&) {
    Owned a(DType::kF32, {4, 1, 2}), b(DType::kF32, {4, 1, 2}), la(DType::kF32, {4, 1}),
        lb(DType::kF32, {4, 1});
    Owned out(DType::kF32, {4, 1, 2}), lse(DType::kF32, {4, 1});
    assign<float>(a, {1, 2, 1, 2, NAN, NAN, 1, 2});
    assign<float>(b, {5, 6, NAN, NAN, 5, 6, 3, 4});
    const double las[] = {kNone, 0.5, kNone, 1.0}, lbs[] = {kNone, kNone, -0.5, 1.0};
    for (int t = 0; t < 4; ++t) {
      put(la, {t, 0}, las[t]);
      put(lb, {t, 0}, lbs[t]);
    }
    merge_state(ctx, a, la, b, lb, out, lse);
    const float want[] = {0, 0, 1, 2, 5, 6, 2, 3};
    for (int i = 0; i < 8; ++i) EXPECT_EQ(out.data<float>()[i], want[i]) << i;
    EXPECT_EQ(get(lse, {0, 0}), kNone);
    EXPECT_EQ(get(lse, {1, 0}), 0.5);
    EXPECT_EQ(get(lse, {2, 0}), -0.5);
    EXPECT_NEAR(get(lse, {3, 0}), 1.0 + std::log(2.0), 2 * kEps);
  });
}

}  // namespace
}  // namespace sluice::ops
