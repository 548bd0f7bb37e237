#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/testing/paged_batch.h"

namespace sluice::ops {
namespace {

// Plain attention in double over the rows of the planes. Scores are off by (d + 2) eps sum |q k|
// scale; a probability moves by twice that, relatively. exp, the sums over n keys and the merge add
// (n + 16) eps. With bfloat16 keys the probabilities are rounded to bfloat16 too: half a unit of
// 2^-8 each. So are the queries, which the test rounds first.
void expect_attention(const Case& batch, const Rows& rows, const Tensor& q, const Tensor& k,
                      const Tensor& v, std::int64_t kv_heads, const AttentionParams& params,
                      const Tensor& out, std::int64_t t, std::int64_t h) {
  const std::int64_t d = q.dim(2), dv = out.dim(2), kv = h / (q.dim(1) / kv_heads);
  const auto seq = static_cast<std::int64_t>(get(rows.seq, {t}));
  const auto last = static_cast<std::int64_t>(get(rows.position, {t}));
  const double scale = params.scale;
  std::int64_t first = params.window > 0 ? std::max<std::int64_t>(0, last - params.window + 1) : 0;
  while (params.chunk > 0 && first / params.chunk != last / params.chunk) ++first;
  std::vector<double> score;
  double top = -1e300, error = 0;
  for (std::int64_t p = first; p <= last; ++p) {
    double dot = 0, size = 0;
    for (std::int64_t i = 0; i < d; ++i) {
      const double term = get(q, {t, h, i}) * get(k, {batch.slot(seq, p), kv * d + i});
      dot += term;
      size += std::abs(term);
    }
    score.push_back(dot * scale);
    error = std::max(error, size * scale * static_cast<double>(d + 2) * kEps);
    // The slope of tanh is at most 1, so a soft cap does not enlarge the error. The cap itself is
    // exact within 4 eps of its size. Adding the ALiBi slope rounds once more.
    if (params.softcap > 0) {
      score.back() = params.softcap * std::tanh(score.back() / params.softcap);
      error = std::max(
          error, size * scale * static_cast<double>(d + 4) * kEps + 4 * kEps * params.softcap);
    }
    if (params.slopes.defined()) {
      score.back() += get(params.slopes, {h}) * static_cast<double>(p - last);
      error = std::max(error, size * scale * static_cast<double>(d + 2) * kEps +
                                  2 * kEps * std::abs(score.back()));
    }
    top = std::max(top, score.back());
  }
  const bool has_sink = params.sinks.defined();
  if (has_sink) top = std::max(top, get(params.sinks, {h}));
  double sum = has_sink ? std::exp(get(params.sinks, {h}) - top) : 0;
  for (double& s : score) sum += s = std::exp(s - top);
  const double relative = 2 * error + static_cast<double>(score.size() + 16) * kEps +
                          (k.dtype == DType::kBF16 ? std::ldexp(1.0, -9) : 0.0);
  for (std::int64_t i = 0; i < dv; ++i) {
    double want = 0, size = 0;
    for (std::int64_t p = first; p <= last; ++p) {
      const double term = score[p - first] / sum * get(v, {batch.slot(seq, p), kv * dv + i});
      want += term;
      size += std::abs(term);
    }
    ASSERT_NEAR(get(out, {t, h, i}), want, 2 * relative * size)
        << "row " << t << " head " << h << " dim " << i;
  }
}

TEST(PagedAttention, EqualsPlainAttentionAndRowsAloneHaveTheSameBits) {
  struct Dims {
    std::int64_t heads, kv, d, dv, window;
    DType dtype;
    std::int64_t chunk = 0;
    double sinks = 0;  // half the range of their values; 0: no sinks
    float softcap = 0;
    bool slopes = false;
  };
  const Dims all[] = {{4, 2, 16, 16, 0, DType::kF32},
                      {6, 1, 24, 40, 0, DType::kBF16},
                      {3, 3, 64, 64, 100, DType::kF32},
                      {20, 1, 8, 5, 0, DType::kF32},
                      {8, 2, 33, 128, 7, DType::kBF16},
                      {2, 2, 16, 16, 256, DType::kF32},
                      {5, 5, 12, 12, 1, DType::kF32},
                      {4, 2, 16, 16, 0, DType::kF32, 100},
                      {6, 3, 16, 24, 0, DType::kBF16, 37},
                      {4, 4, 16, 16, 0, DType::kF32, 256},
                      {4, 2, 20, 20, 0, DType::kF32, 0, 3.0},
                      {6, 2, 24, 16, 16, DType::kBF16, 0, 3.0},
                      {6, 2, 24, 16, 16, DType::kF32, 0, 40.0},
                      {8, 2, 16, 16, 0, DType::kBF16, 64, 1.0},
                      {4, 2, 16, 16, 0, DType::kF32, 0, 0, 1.5f},
                      {6, 2, 24, 24, 100, DType::kBF16, 0, 0, 5.0f},
                      {5, 5, 16, 16, 0, DType::kF32, 0, 0, 0, true},
                      {8, 4, 16, 24, 0, DType::kBF16, 0, 0, 0, true},
                      {4, 2, 20, 16, 300, DType::kF32, 0, 2.0, 2.5f, true}};
  const Case batch({600, 70, 257, 256, 1, 300}, 7);
  const Rows rows(batch, mixed_rows(batch));
  for (const Dims& dims : all) {
    SCOPED_TRACE(std::to_string(dims.heads) + " heads of " + std::to_string(dims.d));
    Owned k(dims.dtype, {batch.num_slots(), dims.kv * dims.d}),
        v(dims.dtype, {batch.num_slots(), dims.kv * dims.dv});
    batch.write(k, 100);
    batch.write(v, 200);
    Owned q(DType::kF32, {rows.count(), dims.heads, dims.d + 3});
    fill(q, 5, 2.0);
    if (dims.dtype == DType::kBF16) round_to_bf16(q);
    const Tensor query = q->slice(2, 0, dims.d);
    Owned sinks(DType::kF32, {dims.heads});
    fill(sinks, 9, dims.sinks);
    AttentionParams params{.scale = 1.0f / std::sqrt(static_cast<float>(dims.d)),
                           .window = dims.window,
                           .chunk = dims.chunk};
    if (dims.sinks > 0) params.sinks = sinks.view;
    params.softcap = dims.softcap;
    Owned slopes(DType::kF32, {dims.heads});
    for (std::int64_t h = 0; h < dims.heads; ++h)
      put(slopes, {h}, std::exp2(-2.0 * static_cast<double>(h + 1)));
    if (dims.slopes) params.slopes = slopes.view;
    on_every_machine([&](Context& ctx, Context& alone) {
      Owned out(DType::kF32, {rows.count(), dims.heads, dims.dv}, 2),
          one(DType::kF32, {1, dims.heads, dims.dv});
      paged_attention(ctx, query, k, v, dims.kv, rows.rows, params, out);
      EXPECT_TRUE(gaps_untouched(out));
      for (std::int64_t t = 0; t < rows.count(); ++t) {
        paged_attention(alone, query.rows(t, 1), k, v, dims.kv, rows.one(t), params, one);
        ASSERT_TRUE(same_bits(out->rows(t, 1), one)) << "row " << t;
      }
      if (ctx.pool->size() != 2) return;
      for (std::int64_t t = 0; t < rows.count(); t += 13)
        for (std::int64_t h = 0; h < dims.heads; ++h)
          expect_attention(batch, rows, query, k, v, dims.kv, params, out, t, h);
    });
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(PagedAttention, PageNumbersDoNotShow) {
  const Case first({500, 64, 130}, 1), second({500, 64, 130}, 2);
  ASSERT_NE(first.pages, second.pages);
  on_every_machine([&](Context& ctx, Context&) {
    std::unique_ptr<Owned> outs[2];
    int i = 0;
    for (const Case* batch : {&first, &second}) {
      const Rows rows(*batch, {{0, 498}, {0, 499}, {1, 63}, {2, 129}});
      Owned k(DType::kBF16, {batch->num_slots(), 32}), v(DType::kBF16, {batch->num_slots(), 32});
      batch->write(k, 1);
      batch->write(v, 2);
      Owned q(DType::kF32, {4, 4, 16});
      fill(q, 3);
      outs[i] = std::make_unique<Owned>(DType::kF32, std::initializer_list<std::int64_t>{4, 4, 16});
      paged_attention(ctx, q, k, v, 2, rows.rows, {.scale = 0.25f}, *outs[i++]);
    }
    EXPECT_TRUE(same_bits(*outs[0], *outs[1]));
  });
}

// Pages behind a window are freed: -1 in the table.
TEST(PagedAttention, AWindowNeedsOnlyItsPages) {
  Case batch({700}, 3);
  Owned k(DType::kF32, {batch.num_slots(), 16}), v(DType::kF32, {batch.num_slots(), 16});
  batch.write(k, 1);
  batch.write(v, 2);
  Owned q(DType::kF32, {20, 1, 16}), whole(DType::kF32, {20, 1, 16}), cut(DType::kF32, {20, 1, 16});
  fill(q, 4);
  std::vector<std::pair<int, int>> list;
  for (int p = 680; p < 700; ++p) list.emplace_back(0, p);
  const Rows rows(batch, list);
  Machine machine(detect_cpu_isa());
  paged_attention(machine.ctx, q, k, v, 1, rows.rows, {.scale = 0.25f, .window = 40}, whole);
  const std::int64_t first_page = (680 - 39) / 64;
  for (std::int64_t p = 0; p < first_page; ++p) put(*batch.table, {0, p}, -1);
  paged_attention(machine.ctx, q, k, v, 1, rows.rows, {.scale = 0.25f, .window = 40}, cut);
  EXPECT_TRUE(same_bits(whole, cut));
  put(*batch.table, {0, first_page}, -1);
  EXPECT_THROW(
      paged_attention(machine.ctx, q, k, v, 1, rows.rows, {.scale = 0.25f, .window = 40}, cut),
      Error);
}

// Pages before a row's chunk are freed too.
TEST(PagedAttention, AChunkNeedsOnlyItsPages) {
  Case batch({700}, 3);
  Owned k(DType::kF32, {batch.num_slots(), 16}), v(DType::kF32, {batch.num_slots(), 16});
  batch.write(k, 1);
  batch.write(v, 2);
  Owned q(DType::kF32, {20, 1, 16}), whole(DType::kF32, {20, 1, 16}), cut(DType::kF32, {20, 1, 16});
  fill(q, 4);
  std::vector<std::pair<int, int>> list;
  for (int p = 630; p < 650; ++p) list.emplace_back(0, p);  // over the border of a chunk at 640
  const Rows rows(batch, list);
  Machine machine(detect_cpu_isa());
  const AttentionParams params{.scale = 0.25f, .chunk = 320};
  paged_attention(machine.ctx, q, k, v, 1, rows.rows, params, whole);
  for (std::int64_t p = 0; p < 320 / 64; ++p) put(*batch.table, {0, p}, -1);
  paged_attention(machine.ctx, q, k, v, 1, rows.rows, params, cut);
  EXPECT_TRUE(same_bits(whole, cut));
  put(*batch.table, {0, 320 / 64}, -1);
  EXPECT_THROW(paged_attention(machine.ctx, q, k, v, 1, rows.rows, params, cut), Error);
  EXPECT_THROW(paged_attention(machine.ctx, q, k, v, 1, rows.rows, {.window = 8, .chunk = 8}, cut),
               Error);
}

// An infinite value that only later rows see must not reach earlier rows of the same tile.
TEST(PagedAttention, LaterKeysNeverTouchEarlierRows) {
  Case batch({40}, 3);
  Owned k(DType::kF32, {batch.num_slots(), 16}), v(DType::kF32, {batch.num_slots(), 16});
  batch.write(k, 1);
  batch.write(v, 2);
  std::vector<std::pair<int, int>> list;
  for (int p = 0; p < 40; ++p) list.emplace_back(0, p);
  const Rows rows(batch, list);
  Owned q(DType::kF32, {40, 1, 16}), before(DType::kF32, {40, 1, 16}),
      after(DType::kF32, {40, 1, 16});
  fill(q, 4);
  on_every_machine([&](Context& ctx, Context&) {
    paged_attention(ctx, q, k, v, 1, rows.rows, {.scale = 0.25f}, before);
    const double saved = get(v, {batch.slot(0, 9), 0});
    put(v, {batch.slot(0, 9), 0}, std::numeric_limits<double>::infinity());
    paged_attention(ctx, q, k, v, 1, rows.rows, {.scale = 0.25f}, after);
    put(v, {batch.slot(0, 9), 0}, saved);
    EXPECT_TRUE(same_bits(before->rows(0, 9), after->rows(0, 9)));
    EXPECT_TRUE(std::isinf(get(after, {9, 0, 0})));
  });
}

TEST(PagedAttention, LargeScoresStayFinite) {
  Case batch({300}, 3);
  Owned k(DType::kF32, {batch.num_slots(), 8}), v(DType::kF32, {batch.num_slots(), 8});
  batch.write(k, 1);
  batch.write(v, 2);
  Owned q(DType::kF32, {1, 1, 8}), out(DType::kF32, {1, 1, 8});
  fill(q, 4, 1e4);
  const Rows rows(batch, {{0, 299}});
  on_every_machine([&](Context& ctx, Context&) {
    paged_attention(ctx, q, k, v, 1, rows.rows, {.scale = 1.0f}, out);
    for (int i = 0; i < 8; ++i) EXPECT_LE(std::abs(get(out, {0, 0, i})), 1.0 + kEps);
  });
}

TEST(PagedAttention, StrayPagesAndPositionsAreBugs) {
  Case batch({100}, 3);
  Owned k(DType::kF32, {batch.num_slots(), 8}), v(DType::kF32, {batch.num_slots(), 8});
  Owned q(DType::kF32, {1, 1, 8}), out(DType::kF32, {1, 1, 8});
  Machine machine(CpuIsa::kAvx2);
  for (const auto& row : std::vector<std::pair<int, int>>{{1, 0}, {-1, 0}, {0, 128}, {0, -1}})
    EXPECT_THROW(
        paged_attention(machine.ctx, q, k, v, 1, Rows(batch, {row}).rows, {.scale = 1.0f}, out),
        Error);
  put(*batch.table, {0, 1}, 1000);
  EXPECT_THROW(
      paged_attention(machine.ctx, q, k, v, 1, Rows(batch, {{0, 64}}).rows, {.scale = 1.0f}, out),
      Error);
}

}  // namespace
}  // namespace sluice::ops
