// int8 planes with a scale per token and head: written, read back, moved and attended to, against
// plain loops.
#include <bit>
#include <cmath>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/kv.h"
#include "ops/testing/paged_batch.h"

namespace sluice::ops {
namespace {

// One head, quantised by the definition in kernels/types/op_params.h.
struct ModelHead {
  std::vector<int> q;
  float scale = 0;

  explicit ModelHead(const std::vector<float>& x) {
    float largest = 0;
    bool finite = true;
    for (const float value : x) {
      finite = finite && std::isfinite(value);
      largest = std::max(largest, std::abs(value));
    }
    scale = largest / 127.0f;
    const bool zero = !finite || !std::isnormal(scale);
    for (const float value : x)
      q.push_back(zero ? 0 : static_cast<int>(std::nearbyintf(value * (127.0f / largest))));
    if (zero) scale = finite ? 0.0f : NAN;
  }
};

std::int8_t byte_at(const Tensor& plane, std::int64_t slot, std::int64_t i) {
  return plane.ptr<std::int8_t>()[slot * plane.stride[0] + i];
}
float scale_at(const Tensor& plane, std::int64_t slot, std::int64_t head, std::int64_t dim) {
  float scale;
  std::memcpy(&scale, plane.ptr<std::int8_t>() + slot * plane.stride[0] + head * (dim + 4) + dim,
              4);
  return scale;
}
double value_at(const Tensor& plane, std::int64_t slot, std::int64_t head, std::int64_t dim,
                std::int64_t i) {
  return double{scale_at(plane, slot, head, dim)} * byte_at(plane, slot, head * (dim + 4) + i);
}

TEST(Int8Plane, HoldsTheBytesAndScalesOfTheModel) {
  for (const auto& [heads, dim] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {2, 5}, {3, 64}, {8, 128}, {1, 33}}) {
    SCOPED_TRACE(fmt::format("{} heads of {}", heads, dim));
    Owned src(DType::kF32, {9, heads * dim}, 3), slots(DType::kI64, {9}), back(DType::kI32, {9});
    fill(src, 5, 3);
    for (std::int64_t i = 0; i < heads * dim; ++i) {
      put(src, {1, i}, 0);
      put(src, {2, i}, i % 2 == 0 ? 1e-38 : -1e-41);
      put(src, {3, i}, i % 3 == 0 ? 2e38 : -1e30);
    }
    put(src, {4, 0}, std::numeric_limits<double>::infinity());
    put(src, {5, heads * dim - 1}, std::numeric_limits<double>::quiet_NaN());
    for (std::int64_t t = 0; t < 9; ++t) {
      put(slots, {t}, static_cast<double>(120 - 7 * t));
      put(back, {t}, static_cast<double>(120 - 7 * t));
    }
    on_every_machine([&](Context& ctx, Context&) {
      Owned plane(DType::kI8, {128, heads * (dim + 4)}, 6), out(DType::kF32, {9, heads * dim}, 2);
      kv_write(ctx, src, slots, plane);
      kv_gather(ctx, plane, back, out);
      EXPECT_TRUE(gaps_untouched(plane) && gaps_untouched(out));
      for (std::int64_t t = 0; t < 9; ++t)
        for (std::int64_t h = 0; h < heads; ++h) {
          const float* row = &src.data<float>()[t * (heads * dim + 3) + h * dim];
          const ModelHead model(std::vector<float>(row, row + dim));
          const float scale = scale_at(plane, 120 - 7 * t, h, dim);
          if (std::isnan(model.scale))
            ASSERT_TRUE(std::isnan(scale)) << t << " " << h;
          else
            ASSERT_EQ(std::bit_cast<std::uint32_t>(scale),
                      std::bit_cast<std::uint32_t>(model.scale))
                << t << " " << h;
          for (std::int64_t i = 0; i < dim; ++i) {
            ASSERT_EQ(byte_at(plane, 120 - 7 * t, h * (dim + 4) + i),
                      model.q[static_cast<std::size_t>(i)])
                << t << " " << h << " " << i;
            const float want = static_cast<float>(model.q[static_cast<std::size_t>(i)]) * scale;
            const float got = out.data<float>()[t * (heads * dim + 2) + h * dim + i];
            ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
                << t << " " << h << " " << i;
          }
        }
    });
  }
}

TEST(Int8Plane, RowsMoveWithTheirScales) {
  Machine machine(CpuIsa::kAvx2);
  Owned plane(DType::kI8, {128, 2 * 20}), src(DType::kF32, {4, 32}), slots(DType::kI64, {4}),
      to(DType::kI64, {4});
  fill(src, 1);
  for (std::int64_t t = 0; t < 4; ++t) {
    put(slots, {t}, static_cast<double>(t));
    put(to, {t}, static_cast<double>(100 + t));
  }
  kv_write(machine.ctx, src, slots, plane);
  kv_move(machine.ctx, std::array<KvPlane, 1>{plane.view}, slots, to);
  EXPECT_TRUE(same_bits(plane->rows(0, 4), plane->rows(100, 4)));
}

TEST(Int8Plane, WrongShapesAreBugs) {
  Machine machine(CpuIsa::kAvx2);
  Owned src(DType::kF32, {1, 32}), slots(DType::kI64, {1}), q(DType::kF32, {1, 2, 16}),
      out(DType::kF32, {1, 2, 16});
  put(slots, {0}, 0);
  for (const std::int64_t bytes :
       {32, 33, 34, 35, 44}) {  // no scales, parts of a scale, three heads for 32 elements
    Owned plane(DType::kI8, {64, bytes});
    EXPECT_THROW(kv_write(machine.ctx, src, slots, plane), Error) << bytes;
  }
  const Case batch({3}, 1);
  const Rows rows(batch, {{0, 2}});
  Owned narrow(DType::kI8, {batch.num_slots(), 32}), wide(DType::kI8, {batch.num_slots(), 40});
  EXPECT_THROW(paged_attention(machine.ctx, q, narrow, wide, 2, rows.rows, {.scale = 1}, out),
               Error);
}

// Attention over the dequantised keys and values, in double. Scores are off by (d + 3) eps sum |q
// k| scale; a probability moves by twice that, relatively. exp, a value's scale, the sums over n
// keys and the merge add (n + 17) eps.
void expect_attention(const Case& batch, const Rows& rows, const Tensor& q, const Tensor& k,
                      const Tensor& v, std::int64_t kv_heads, double scale, std::int64_t window,
                      const Tensor& out, std::int64_t t, std::int64_t h) {
  const std::int64_t d = q.dim(2), dv = out.dim(2), kv = h / (q.dim(1) / kv_heads);
  const auto seq = static_cast<std::int64_t>(get(rows.seq, {t}));
  const auto last = static_cast<std::int64_t>(get(rows.position, {t}));
  const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, last - window + 1) : 0;
  std::vector<double> score;
  double top = -1e300, error = 0;
  for (std::int64_t p = first; p <= last; ++p) {
    double dot = 0, size = 0;
    for (std::int64_t i = 0; i < d; ++i) {
      const double term = get(q, {t, h, i}) * value_at(k, batch.slot(seq, p), kv, d, i);
      dot += term;
      size += std::abs(term);
    }
    score.push_back(dot * scale);
    top = std::max(top, score.back());
    error = std::max(error, size * scale * static_cast<double>(d + 3) * kEps);
  }
  double sum = 0;
  for (double& s : score) sum += s = std::exp(s - top);
  const double relative = 2 * error + static_cast<double>(score.size() + 17) * kEps;
  for (std::int64_t i = 0; i < dv; ++i) {
    double want = 0, size = 0;
    for (std::int64_t p = first; p <= last; ++p) {
      const double term = score[static_cast<std::size_t>(p - first)] / sum *
                          value_at(v, batch.slot(seq, p), kv, dv, i);
      want += term;
      size += std::abs(term);
    }
    ASSERT_NEAR(get(out, {t, h, i}), want, 2 * relative * size)
        << "row " << t << " head " << h << " dim " << i;
  }
}

void write_rows(const Case& batch, const Tensor& plane, std::int64_t elements, unsigned seed) {
  Machine machine(CpuIsa::kAvx2);
  for (std::int64_t s = 0; s < std::ssize(batch.lens); ++s) {
    Owned rows(DType::kF32, {batch.lens[s], elements}), slots(DType::kI64, {batch.lens[s]});
    fill(rows, seed + static_cast<unsigned>(s));
    for (std::int64_t i = 0; i < batch.lens[s]; ++i)
      put(slots, {i}, static_cast<double>(batch.slot(s, i)));
    kv_write(machine.ctx, rows, slots, plane);
  }
}

TEST(Int8Plane, AttentionIsThatOfTheDequantisedRowsAndRowsAloneHaveTheSameBits) {
  struct Dims {
    std::int64_t heads, kv, d, dv, window;
  };
  const Case batch({600, 70, 257, 256, 1, 300}, 7);
  const Rows rows(batch, mixed_rows(batch));
  for (const Dims& dims : std::vector<Dims>{{4, 2, 16, 16, 0},
                                            {6, 1, 24, 40, 0},
                                            {3, 3, 64, 64, 100},
                                            {20, 1, 8, 5, 0},
                                            {8, 2, 33, 128, 7}}) {
    SCOPED_TRACE(std::to_string(dims.heads) + " heads of " + std::to_string(dims.d));
    Owned k(DType::kI8, {batch.num_slots(), kv_row_elements(DType::kI8, dims.kv, dims.d)}),
        v(DType::kI8, {batch.num_slots(), kv_row_elements(DType::kI8, dims.kv, dims.dv)});
    write_rows(batch, k, dims.kv * dims.d, 100);
    write_rows(batch, v, dims.kv * dims.dv, 200);
    Owned q(DType::kF32, {rows.count(), dims.heads, dims.d + 3});
    fill(q, 5, 2.0);
    const Tensor query = q->slice(2, 0, dims.d);
    const float scale = 1.0f / std::sqrt(static_cast<float>(dims.d));
    on_every_machine([&](Context& ctx, Context& alone) {
      Owned out(DType::kF32, {rows.count(), dims.heads, dims.dv}, 2),
          one(DType::kF32, {1, dims.heads, dims.dv});
      paged_attention(ctx, query, k, v, dims.kv, rows.rows, {.scale = scale, .window = dims.window},
                      out);
      EXPECT_TRUE(gaps_untouched(out));
      for (std::int64_t t = 0; t < rows.count(); ++t) {
        paged_attention(alone, query.rows(t, 1), k, v, dims.kv, rows.one(t),
                        {.scale = scale, .window = dims.window}, one);
        ASSERT_TRUE(same_bits(out->rows(t, 1), one)) << "row " << t;
      }
      if (ctx.pool->size() != 2) return;
      for (std::int64_t t = 0; t < rows.count(); t += 13)
        for (std::int64_t h = 0; h < dims.heads; ++h)
          expect_attention(batch, rows, query, k, v, dims.kv, scale, dims.window, out, t, h);
    });
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace sluice::ops
