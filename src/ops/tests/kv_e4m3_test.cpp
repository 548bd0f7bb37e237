// Planes of e4m3 with a scale a head: written, moved and attended to, against plain loops.
#include <cmath>

#include "base/error.h"
#include "kernels/types/fp8.h"
#include "ops/attention.h"
#include "ops/kv.h"
#include "ops/testing/paged_batch.h"

namespace sluice::ops {
namespace {

const std::array<float, 256>& values() {
  static const std::array<float, 256> all = e4m3_values();
  return all;
}

// The byte by search: the nearest number, ties to the even code, beyond 448 the largest.
std::uint8_t nearest(float x) {
  if (std::isnan(x)) return 0x7F;
  const double size = std::min(std::abs(double{x}), 448.0);
  int best = 0;
  for (int code = 1; code < 0x7F; ++code) {
    const double was = std::abs(values()[static_cast<std::size_t>(best)] - size),
                 is = std::abs(values()[static_cast<std::size_t>(code)] - size);
    if (is < was || (is == was && code % 2 == 0)) best = code;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

std::uint8_t byte_at(const Tensor& plane, std::int64_t slot, std::int64_t i) {
  return static_cast<const std::uint8_t*>(plane.data)[slot * plane.stride[0] + i];
}

// Scales of heads; none for an empty list.
struct Scaled {
  Scaled(std::int64_t slots, std::int64_t heads, std::int64_t dim, std::vector<double> scales)
      : rows(DType::kF8E4M3, {slots, heads * dim}), of_heads(DType::kF32, {heads}), dim(dim) {
    plane = rows.view;
    for (std::int64_t h = 0; h < heads; ++h)
      put(of_heads, {h}, scales.empty() ? 1 : scales[static_cast<std::size_t>(h) % scales.size()]);
    if (!scales.empty()) plane.scales = of_heads;
  }
  double value(std::int64_t slot, std::int64_t head, std::int64_t i) const {
    return double{values()[byte_at(rows.view, slot, head * dim + i)]} * get(of_heads, {head});
  }

  Owned rows, of_heads;
  std::int64_t dim;
  KvPlane plane;
};

TEST(E4m3Plane, HoldsTheNearestNumbers) {
  for (const std::vector<double>& scales :
       {std::vector<double>{}, std::vector<double>{0.37}, std::vector<double>{2, 0.001, 7.5}})
    for (const auto& [heads, dim] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {2, 5}, {3, 64}, {1, 33}}) {
      SCOPED_TRACE(fmt::format("{} heads of {}, {} scales", heads, dim, scales.size()));
      Owned src(DType::kF32, {9, heads * dim}, 3), slots(DType::kI64, {9});
      fill(src, 5, 3);
      for (std::int64_t i = 0; i < heads * dim; ++i) {
        put(src, {1, i}, i % 2 == 0 ? 0.0 : -0.0);
        put(src, {2, i}, i % 2 == 0 ? 1e-4 : -2e-3);  // subnormal numbers
        put(src, {3, i}, i % 3 == 0 ? 2e38 : -1e4);
        put(src, {4, i}, 1.0625 + static_cast<double>(i % 7) * 0.125);  // ties
      }
      put(src, {5, 0}, std::numeric_limits<double>::infinity());
      put(src, {6, heads * dim - 1}, std::numeric_limits<double>::quiet_NaN());
      for (std::int64_t t = 0; t < 9; ++t) put(slots, {t}, static_cast<double>(120 - 7 * t));
      on_every_machine([&](Context& ctx, Context&) {
        Scaled made(128, heads, dim, scales);
        kv_write(ctx, src, slots, made.plane);
        for (std::int64_t t = 0; t < 9; ++t)
          for (std::int64_t i = 0; i < heads * dim; ++i) {
            const float factor = 1.0f / static_cast<float>(get(made.of_heads, {i / dim}));
            ASSERT_EQ(byte_at(made.rows.view, 120 - 7 * t, i),
                      nearest(static_cast<float>(get(src, {t, i})) * factor))
                << t << " " << i;
          }
      });
    }
}

TEST(E4m3Plane, RowsMove) {
  Machine machine(CpuIsa::kAvx2);
  Scaled made(128, 2, 16, {0.5});
  Owned src(DType::kF32, {4, 32}), slots(DType::kI64, {4}), to(DType::kI64, {4});
  fill(src, 1);
  for (std::int64_t t = 0; t < 4; ++t) {
    put(slots, {t}, static_cast<double>(t));
    put(to, {t}, static_cast<double>(100 + t));
  }
  kv_write(machine.ctx, src, slots, made.plane);
  kv_move(machine.ctx, std::array<KvPlane, 1>{made.plane}, slots, to);
  EXPECT_TRUE(same_bits(made.rows->rows(0, 4), made.rows->rows(100, 4)));
}

TEST(E4m3Plane, WrongShapesAreBugs) {
  Machine machine(CpuIsa::kAvx2);
  Owned src(DType::kF32, {1, 32}), slots(DType::kI64, {1}), narrow(DType::kF8E4M3, {64, 31});
  put(slots, {0}, 0);
  EXPECT_THROW(kv_write(machine.ctx, src, slots, narrow), Error);
  Scaled thirds(64, 3, 16, {1.5});
  thirds.plane.data = thirds.plane.data.slice(1, 0, 32);  // three scales for 32 elements
  EXPECT_THROW(kv_write(machine.ctx, src, slots, thirds.plane), Error);
  const Case batch({3}, 1);
  const Rows rows(batch, {{0, 2}});
  Owned q(DType::kF32, {1, 2, 16}), out(DType::kF32, {1, 2, 16});
  Scaled one(batch.num_slots(), 1, 32, {1.5}), two(batch.num_slots(), 2, 16, {1.5});
  EXPECT_THROW(
      paged_attention(machine.ctx, q, one.plane, two.plane, 2, rows.rows, {.scale = 1}, out),
      Error);
}

// Attention over the numbers of the planes, in double. Scores are off by (d + 3) eps sum |q k|
// scale; a probability moves by twice that, relatively. exp, a value's scale, the sums over n keys
// and the merge add (n + 17) eps.
void expect_attention(const Case& batch, const Rows& rows, const Tensor& q, const Scaled& k,
                      const Scaled& v, std::int64_t kv_heads, const AttentionParams& params,
                      const Tensor& out, std::int64_t t, std::int64_t h) {
  const std::int64_t d = q.dim(2), dv = out.dim(2), kv = h / (q.dim(1) / kv_heads);
  const auto seq = static_cast<std::int64_t>(get(rows.seq, {t}));
  const auto last = static_cast<std::int64_t>(get(rows.position, {t}));
  const std::int64_t first = params.first_key(last);
  std::vector<double> score;
  const double sink = params.sinks.defined() ? get(params.sinks, {h}) : -1e300;
  double top = sink, error = 0;
  for (std::int64_t p = first; p <= last; ++p) {
    double dot = 0, size = 0;
    for (std::int64_t i = 0; i < d; ++i) {
      const double term = get(q, {t, h, i}) * k.value(batch.slot(seq, p), kv, i);
      dot += term;
      size += std::abs(term);
    }
    score.push_back(dot * double{params.scale});
    top = std::max(top, score.back());
    error = std::max(error, size * double{params.scale} * static_cast<double>(d + 3) * kEps);
  }
  double sum = std::exp(sink - top);
  for (double& s : score) sum += s = std::exp(s - top);
  const double relative = 2 * error + static_cast<double>(score.size() + 17) * kEps;
  for (std::int64_t i = 0; i < dv; ++i) {
    double want = 0, size = 0;
    for (std::int64_t p = first; p <= last; ++p) {
      const double term =
          score[static_cast<std::size_t>(p - first)] / sum * v.value(batch.slot(seq, p), kv, i);
      want += term;
      size += std::abs(term);
    }
    ASSERT_NEAR(get(out, {t, h, i}), want, 2 * relative * size)
        << "row " << t << " head " << h << " dim " << i;
  }
}

TEST(E4m3Plane, AttentionIsThatOfTheNumbersAndRowsAloneHaveTheSameBits) {
  struct Dims {
    std::int64_t heads, kv, d, dv, window;
    bool sinks;
  };
  const Case batch({600, 70, 257, 256, 1, 300}, 7);
  const Rows rows(batch, mixed_rows(batch));
  for (const Dims& dims : std::vector<Dims>{{4, 2, 16, 16, 0, false},
                                            {6, 1, 24, 40, 0, true},
                                            {3, 3, 64, 64, 100, true},
                                            {20, 1, 8, 5, 0, false},
                                            {8, 2, 33, 128, 7, false}}) {
    SCOPED_TRACE(std::to_string(dims.heads) + " heads of " + std::to_string(dims.d));
    Scaled k(batch.num_slots(), dims.kv, dims.d, {0.37, 1.3}),
        v(batch.num_slots(), dims.kv, dims.dv,
          dims.sinks ? std::vector<double>{} : std::vector{2.5});
    batch.write(k.plane, 100);
    batch.write(v.plane, 200);
    Owned q(DType::kF32, {rows.count(), dims.heads, dims.d + 3}), sinks(DType::kF32, {dims.heads});
    fill(q, 5, 2.0);
    fill(sinks, 6, 2.0);
    const Tensor query = q->slice(2, 0, dims.d);
    const AttentionParams params{.scale = 1.0f / std::sqrt(static_cast<float>(dims.d)),
                                 .window = dims.window,
                                 .sinks = dims.sinks ? sinks.view : Tensor{}};
    on_every_machine([&](Context& ctx, Context& alone) {
      Owned out(DType::kF32, {rows.count(), dims.heads, dims.dv}, 2),
          one(DType::kF32, {1, dims.heads, dims.dv});
      paged_attention(ctx, query, k.plane, v.plane, dims.kv, rows.rows, params, out);
      EXPECT_TRUE(gaps_untouched(out));
      for (std::int64_t t = 0; t < rows.count(); ++t) {
        paged_attention(alone, query.rows(t, 1), k.plane, v.plane, dims.kv, rows.one(t), params,
                        one);
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

TEST(E4m3Plane, ANanOfAKeyThatIsSeenShows) {
  const Case batch({70}, 3);
  const Rows rows(batch, {{0, 60}, {0, 69}});
  Scaled k(batch.num_slots(), 1, 32, {}), v(batch.num_slots(), 1, 32, {});
  batch.write(k.plane, 1);
  batch.write(v.plane, 2);
  static_cast<std::uint8_t*>(v.rows.view.data)[batch.slot(0, 65) * 32] = 0xFF;
  Owned q(DType::kF32, {2, 1, 32});
  fill(q, 5);
  on_every_machine([&](Context& ctx, Context&) {
    Owned out(DType::kF32, {2, 1, 32});
    paged_attention(ctx, q, k.plane, v.plane, 1, rows.rows, {.scale = 0.2f}, out);
    EXPECT_FALSE(std::isnan(get(out, {0, 0, 0})));
    EXPECT_TRUE(std::isnan(get(out, {1, 0, 0})));
    EXPECT_FALSE(std::isnan(get(out, {1, 0, 1})));
  });
}

}  // namespace
}  // namespace sluice::ops
