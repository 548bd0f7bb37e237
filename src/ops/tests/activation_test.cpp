#include "ops/activation.h"

#include <cmath>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/rope.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

double silu(double x) {
  return x / (1 + std::exp(-x));
}
double gelu_tanh(double x) {
  return 0.5 * x *
         (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

// An error of a few eps |u| in u is that relative error of exp(u), so the slack grows with the
// argument.
TEST(Activation, GateTimesUp) {
  on_every_machine([](Context& ctx, Context& alone) {
    for (Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
      for (std::int64_t n : {1, 9, 16, 75}) {
        Owned x(DType::kF32, {300, 2 * n}, 3), out(DType::kF32, {300, n}, 1),
            half(DType::kBF16, {300, n});
        Owned one(DType::kF32, {1, n});
        fill(x, 1, 6.0);
        act_and_mul(ctx, activation, x, out);
        act_and_mul(ctx, activation, x, half);
        for_each(out, [&](std::int64_t i, std::int64_t j, std::int64_t) {
          const double gate = get(x, {i, j});
          const double want =
              (activation == Activation::kSilu ? silu(gate) : gelu_tanh(gate)) * get(x, {i, n + j});
          const double argument =
              activation == Activation::kSilu ? gate : 1.6 * (gate + 0.045 * gate * gate * gate);
          ASSERT_NEAR(get(out, {i, j}), want, kEps * (8 + 4 * std::abs(argument)) * std::abs(want));
          ASSERT_EQ(half.data<BF16>()[i * n + j].bits,
                    BF16(static_cast<float>(get(out, {i, j}))).bits);
        });
        EXPECT_TRUE(gaps_untouched(out));
        act_and_mul(alone, activation, x->rows(150, 1), one);
        EXPECT_TRUE(same_bits(out->rows(150, 1), one));
      }
    }
  });
}

double reference(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return silu(x);
    case Activation::kGeluTanh:
      return gelu_tanh(x);
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kRelu2:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case Activation::kXielu:
      break;
  }
  return 0;
}

// Functions with an exponential have the slack of GateTimesUp. 1 + erf(x) loses x eps by
// cancellation.
TEST(Activation, OfPlainMlps) {
  on_every_machine([](Context& ctx, Context& alone) {
    for (Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu,
                                  Activation::kRelu, Activation::kRelu2}) {
      for (std::int64_t n : {1, 8, 75}) {
        Owned x(DType::kF32, {300, n}, 3), out(DType::kF32, {300, n}, 1),
            half(DType::kBF16, {300, n});
        Owned one(DType::kF32, {1, n}), both(DType::kF32, {300, 2 * n}),
            gated(DType::kF32, {300, n});
        fill(x, 1, 6.0);
        activate(ctx, activation, x, out);
        activate(ctx, activation, x, half);
        for_each(out, [&](std::int64_t i, std::int64_t j, std::int64_t) {
          const double v = get(x, {i, j}), want = reference(activation, v);
          const double argument = 1.6 * (std::abs(v) + 0.045 * std::abs(v * v * v));
          ASSERT_NEAR(get(out, {i, j}), want,
                      kEps * ((8 + 4 * argument) * std::abs(want) + 2 * std::abs(v)));
          ASSERT_EQ(half.data<BF16>()[i * n + j].bits,
                    BF16(static_cast<float>(get(out, {i, j}))).bits);
          put(both, {i, j}, v);
          put(both, {i, n + j}, 1.0);
        });
        EXPECT_TRUE(gaps_untouched(out));
        act_and_mul(ctx, activation, both, gated);
        activate(alone, activation, x->rows(150, 1), one);
        EXPECT_TRUE(same_bits(out->rows(150, 1), one));
        for_each(out, [&](std::int64_t i, std::int64_t j, std::int64_t) {
          ASSERT_EQ(get(gated, {i, j}), get(out, {i, j}));
        });
      }
    }
  });
}

TEST(Activation, Xielu) {
  on_every_machine([](Context& ctx, Context&) {
    Owned x(DType::kF32, {200, 37}, 2), out(DType::kF32, {200, 37}, 1),
        half(DType::kBF16, {200, 37});
    Owned params(DType::kF32, {4});
    assign<float>(params, {0.8f, -0.4f, 0.5f, -1e-6f});
    fill(x, 1, 5.0);
    put(x, {0, 0}, 0.0);
    put(x, {0, 1}, -60.0);
    xielu(ctx, x, params, out);
    xielu(ctx, x, params, half);
    const double up = std::log1p(std::exp(get(params, {0}))),
                 down = 0.5 + std::log1p(std::exp(get(params, {1})));
    for_each(out, [&](std::int64_t i, std::int64_t j, std::int64_t) {
      const double v = get(x, {i, j});
      const double want = v > 0 ? up * v * v + 0.5 * v
                                : down * (std::expm1(std::min(v, get(params, {3}))) - v) + 0.5 * v;
      // Eight roundings, of terms no larger than these.
      ASSERT_NEAR(get(out, {i, j}), want,
                  8 * kEps * (v > 0 ? want : (down + 0.5) * (std::abs(v) + 1)));
      ASSERT_EQ(half.data<BF16>()[i * 37 + j].bits,
                BF16(static_cast<float>(get(out, {i, j}))).bits);
    });
    EXPECT_TRUE(gaps_untouched(out));
  });
}

TEST(Elementwise, ClampCapAndGrowth) {
  on_every_machine([](Context& ctx, Context& alone) {
    Owned x(DType::kF32, {260, 41}, 1), cut(DType::kF32, {260, 41}, 2),
        capped(DType::kF32, {260, 41}, 3);
    Owned one(DType::kF32, {1, 41});
    fill(x, 1, 20.0);
    clamp(ctx, x, 1.5f, cut);
    softcap(ctx, x, 6.0f, capped);
    for_each(x, [&](std::int64_t i, std::int64_t j, std::int64_t) {
      ASSERT_EQ(get(cut, {i, j}), std::clamp(get(x, {i, j}), -1.5, 1.5));
      ASSERT_NEAR(get(capped, {i, j}), 6.0 * std::tanh(get(x, {i, j}) / 6.0), 4 * kEps * 6.0);
    });
    EXPECT_TRUE(gaps_untouched(cut) && gaps_untouched(capped));
    softcap(alone, x->rows(100, 1), 6.0f, one);
    EXPECT_TRUE(same_bits(capped->rows(100, 1), one));
    softcap(ctx, x, 6.0f, x);
    EXPECT_TRUE(same_bits(x, capped));

    Owned positions(DType::kI32, {130}), q(DType::kF32, {130, 3, 10}, 2),
        before(DType::kF32, {130, 3, 10});
    for (int t = 0; t < 130; ++t) put(positions, {t}, t);
    fill(q, 2);
    fill(before, 2);
    scale_queries(ctx, positions, 0.1f, 16, 1, q);
    for_each(q, [&](std::int64_t t, std::int64_t h, std::int64_t i) {
      const double factor = 1 + 0.1 * std::log(1 + std::floor(static_cast<double>(t + 1) / 16));
      ASSERT_NEAR(get(q, {t, h, i}), get(before, {t, h, i}) * factor,
                  4 * kEps * std::abs(get(q, {t, h, i})));
    });
    EXPECT_TRUE(gaps_untouched(q));
  });
}

TEST(Activation, ExtremeGates) {
  on_every_machine([](Context& ctx, Context&) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const std::vector<float> gates = {-kInf, -1e30f, -200.0f, -100.0f, -90.0f,
                                      -0.0f, 0.0f,   90.0f,   1e30f,   kInf};
    Owned x(DType::kF32, {1, 20}), out(DType::kF32, {1, 10});
    for (int i = 0; i < 10; ++i) {
      put(x, {0, i}, gates[i]);
      put(x, {0, 10 + i}, 1.0);
    }
    silu_and_mul(ctx, x, out);
    for (int i = 1; i < 6; ++i) EXPECT_NEAR(get(out, {0, i}), 0.0, 1e-36) << gates[i];
    for (int i = 7; i < 10; ++i) EXPECT_EQ(get(out, {0, i}), gates[i]);
    put(x, {0, 0}, std::nan(""));
    silu_and_mul(ctx, x, out);
    EXPECT_TRUE(std::isnan(get(out, {0, 0})));
  });
}

TEST(Activation, SigmoidGate) {
  on_every_machine([](Context& ctx, Context&) {
    Owned x(DType::kF32, {210, 85}, 1), gate(DType::kF32, {210, 1}, 4), out(DType::kF32, {210, 85});
    fill(x, 1);
    fill(gate, 2, 8.0);
    sigmoid_mul(ctx, x, gate, out);
    for_each(x, [&](std::int64_t i, std::int64_t j, std::int64_t) {
      const double want = get(x, {i, j}) / (1 + std::exp(-get(gate, {i, 0})));
      ASSERT_NEAR(get(out, {i, j}), want,
                  kEps * (8 + std::abs(get(gate, {i, 0}))) * std::abs(want));
    });
    sigmoid_mul(ctx, x, gate, x);
    EXPECT_TRUE(same_bits(x, out));
  });
}

TEST(Rope, TableAndBothLayouts) {
  on_every_machine([](Context& ctx, Context&) {
    constexpr std::int64_t kTokens = 70, kHeads = 3, kDim = 12;
    Owned positions(DType::kI32, {kTokens}), inv_freq(DType::kF32, {kDim / 2}),
        table(DType::kF32, {kTokens, kDim});
    for (std::int64_t t = 0; t < kTokens; ++t) put(positions, {t}, static_cast<double>(t * t * 37));
    for (int i = 0; i < kDim / 2; ++i) put(inv_freq, {i}, std::pow(10000.0, -2.0 * i / kDim));
    rope_cos_sin(ctx, positions, inv_freq, 1.25f, table);
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t i = 0; i < kDim / 2; ++i) {
        const float angle =
            static_cast<float>(get(positions, {t})) * static_cast<float>(get(inv_freq, {i}));
        ASSERT_NEAR(get(table, {t, i}), 1.25 * std::cos(static_cast<double>(angle)), 2 * kEps);
        ASSERT_NEAR(get(table, {t, kDim / 2 + i}), 1.25 * std::sin(static_cast<double>(angle)),
                    2 * kEps);
      }
    for (bool interleaved : {false, true}) {
      // The rotated slice is the first kDim of kDim + 5 dimensions: partial rotary.
      Owned x(DType::kF32, {kTokens, kHeads, kDim + 5}),
          before(DType::kF32, {kTokens, kHeads, kDim + 5});
      fill(x, 3);
      fill(before, 3);
      rope(ctx, table, x->slice(2, 0, kDim), interleaved);
      EXPECT_TRUE(same_bits(x->slice(2, kDim, 5), before->slice(2, kDim, 5)));
      for (std::int64_t t = 0; t < kTokens; ++t)
        for (std::int64_t h = 0; h < kHeads; ++h)
          for (std::int64_t i = 0; i < kDim / 2; ++i) {
            const std::int64_t ia = interleaved ? 2 * i : i,
                               ib = interleaved ? 2 * i + 1 : i + kDim / 2;
            const double a = get(before, {t, h, ia}), b = get(before, {t, h, ib});
            const double c = get(table, {t, i}), s = get(table, {t, kDim / 2 + i});
            ASSERT_NEAR(get(x, {t, h, ia}), a * c - b * s,
                        2 * kEps * (std::abs(a * c) + std::abs(b * s)));
            ASSERT_NEAR(get(x, {t, h, ib}), b * c + a * s,
                        2 * kEps * (std::abs(b * c) + std::abs(a * s)));
          }
    }
  });
}

TEST(Elementwise, AddScaleAndGather) {
  on_every_machine([](Context& ctx, Context&) {
    Owned a(DType::kF32, {500, 41}, 1), b(DType::kF32, {500, 41}, 2),
        out(DType::kF32, {500, 41}, 3);
    fill(a, 1);
    fill(b, 2);
    add(ctx, a, b, out);
    for_each(out, [&](std::int64_t i, std::int64_t j, std::int64_t) {
      ASSERT_EQ(get(out, {i, j}),
                static_cast<float>(get(a, {i, j})) + static_cast<float>(get(b, {i, j})));
    });
    scale(ctx, a, 0.5f, out);
    EXPECT_EQ(get(out, {499, 40}), 0.5 * get(a, {499, 40}));
    EXPECT_TRUE(gaps_untouched(out));
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      Owned x(dtype, {9, 5}, 1), rows(DType::kI32, {4}), picked(dtype, {4, 5});
      fill(x, 3);
      assign<std::int32_t>(rows, {8, 0, 8, 3});
      gather_rows(ctx, x, rows, picked);
      EXPECT_TRUE(same_bits(picked->rows(0, 1), x->rows(8, 1)));
      EXPECT_TRUE(same_bits(picked->rows(2, 1), x->rows(8, 1)));
      EXPECT_TRUE(same_bits(picked->rows(3, 1), x->rows(3, 1)));
      put(rows, {1}, 9);
      EXPECT_THROW(gather_rows(ctx, x, rows, picked), Error);
    }
  });
}

TEST(Elementwise, ConvertRoundsToNearestEven) {
  on_every_machine([](Context& ctx, Context&) {
    for (DType from : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (DType to : {DType::kF32, DType::kBF16, DType::kF16}) {
        Owned x(from, {260, 3, 71}, 2), out(to, {260, 3, 71}, 1);
        fill(x, 1);
        convert(ctx, x, out);
        for_each(x, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
          const auto value = static_cast<float>(get(x, {i, j, k}));
          const float want = to == DType::kBF16  ? static_cast<float>(BF16(value))
                             : to == DType::kF16 ? static_cast<float>(F16(value))
                                                 : value;
          ASSERT_EQ(get(out, {i, j, k}), want);
        });
        EXPECT_TRUE(gaps_untouched(out));
      }
    }
  });
}

TEST(Embedding, WidensRowsAndRefusesForeignIds) {
  on_every_machine([](Context& ctx, Context&) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      Owned table(dtype, {50, 19}), ids(DType::kI32, {5}), out(DType::kF32, {5, 19}, 1);
      fill(table, 1);
      assign<std::int32_t>(ids, {49, 0, 7, 7, 31});
      embedding(ctx, ids, table, out);
      for_each(out, [&](std::int64_t i, std::int64_t j, std::int64_t) {
        ASSERT_EQ(get(out, {i, j}), get(table, {ids.data<std::int32_t>()[i], j}));
      });
      for (int wrong : {-1, 50}) {
        put(ids, {3}, wrong);
        EXPECT_THROW(embedding(ctx, ids, table, out), Error);
      }
    }
  });
}

}  // namespace
}  // namespace sluice::ops
