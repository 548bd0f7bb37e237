// Recurrent ops against plain loops in double, with bounds that follow the rounding errors through
// the recurrence. Also: equal bits for any cut into steps, any batch, any number of threads and any
// instruction set.
#include "ops/recurrent.h"

#include <cmath>

#include "base/error.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

// Sequences of a batch: their rows, tokens before, and slots.
struct Batch {
  Batch(std::vector<std::int32_t> counts, std::vector<std::int32_t> before,
        std::vector<std::int32_t> at, std::vector<std::int32_t> from = {})
      : prefix(std::move(before)), slots(std::move(at)), sources(std::move(from)) {
    for (const std::int32_t count : counts) start.push_back(start.back() + count);
  }
  SequenceRows rows() {
    const auto view = [](std::vector<std::int32_t>& v) {
      return Tensor::dense(v.data(), DType::kI32, {static_cast<std::int64_t>(v.size())});
    };
    return {view(start), view(prefix), view(slots), sources.empty() ? Tensor{} : view(sources)};
  }
  std::vector<std::int32_t> start = {0}, prefix, slots, sources;
};

double silu(double x) {
  return x / (1 + std::exp(-x));
}

TEST(Recurrent, ConvolutionInEveryWidthAndNumberOfTaps) {
  on_every_machine([](Context& ctx, Context&) {
    for (std::int64_t taps = kMinConvTaps; taps <= kMaxConvTaps; ++taps)
      for (std::int64_t channels : {1, 5, 16, 67, 200}) {
        constexpr std::int64_t kTokens = 9;
        Owned x(DType::kF32, {kTokens, channels}, 3), weight(DType::kF32, {taps, channels}),
            bias(DType::kF32, {channels});
        Owned state(DType::kF32, {3, (taps - 1) * channels}),
            out(DType::kF32, {kTokens, channels}, 5);
        fill(x, 1, 2.0);
        fill(weight, 2);
        fill(bias, 3);
        const bool with_bias = channels % 2 == 0, active = taps % 2 == 0;
        Batch batch({kTokens}, {0}, {1});
        causal_conv(ctx, x, weight, with_bias ? bias.view : Tensor{}, active, batch.rows(), state,
                    out);
        for (std::int64_t t = 0; t < kTokens; ++t)
          for (std::int64_t c = 0; c < channels; ++c) {
            double y = with_bias ? get(bias, {c}) : 0, size = std::abs(y);
            for (std::int64_t j = 0; j < taps; ++j) {
              const std::int64_t from = t - taps + 1 + j;
              const double term = from < 0 ? 0 : get(weight, {j, c}) * get(x, {from, c});
              y += term;
              size += std::abs(term);
            }
            // silu'| < 1.1, and its own rounding is a few units of the result.
            const double bound =
                kEps * (static_cast<double>(taps + 1) * size * 1.1 + 8 * std::abs(y));
            ASSERT_NEAR(get(out, {t, c}), active ? silu(y) : y, bound)
                << taps << " taps, " << t << ", " << c;
          }
        EXPECT_TRUE(same_bits(state->rows(1, 1).reshape({taps - 1, channels}),
                              x->rows(kTokens - taps + 1, taps - 1)));
        EXPECT_TRUE(gaps_untouched(out));
      }
  });
}

TEST(Recurrent, ConvolutionInPlaceAndCutIntoSteps) {
  on_every_machine([](Context& ctx, Context& alone) {
    constexpr std::int64_t kTokens = 40, kChannels = 83, kTaps = 4;
    Owned x(DType::kF32, {kTokens, kChannels}), weight(DType::kF32, {kTaps, kChannels});
    Owned state(DType::kF32, {4, (kTaps - 1) * kChannels}),
        whole(DType::kF32, {kTokens, kChannels});
    Owned cut(DType::kF32, {kTokens, kChannels}), other(DType::kF32, {2 * kTokens, kChannels});
    fill(x, 1, 2.0);
    fill(weight, 2);
    Batch one({kTokens}, {0}, {0});
    causal_conv(alone, x, weight, {}, true, one.rows(), state, whole);
    fill(cut, 1, 2.0);
    std::int64_t first = 0;
    for (const std::int32_t count : {1, 2, 7, 1, 29}) {
      // Another sequence in the same batch, with a state of its own.
      fill(other, 9);
      std::memcpy(other.data<float>(), cut.data<float>() + first * kChannels,
                  sizeof(float) * count * kChannels);
      Batch two({count, 3}, {static_cast<std::int32_t>(first), 0}, {2, 3});
      const Tensor in = other->rows(0, count + 3);
      causal_conv(ctx, in, weight, {}, true, two.rows(), state, in);
      EXPECT_TRUE(same_bits(in.rows(0, count), whole->rows(first, count))) << "from " << first;
      first += count;
    }
    EXPECT_TRUE(same_bits(state->rows(0, 1), state->rows(2, 1)));
  });
}

// A random scan of `tokens` rows. Keys and queries have a norm of about 1, as in a model.
struct Scan {
  Scan(std::int64_t tokens, std::int64_t key_heads, std::int64_t heads, std::int64_t dk,
       std::int64_t dv, bool by_key, bool delta)
      : q(DType::kF32, {tokens, key_heads, dk}, 3),
        k(DType::kF32, {tokens, key_heads, dk}, 1),
        v(DType::kF32, {tokens, heads, dv}, 2),
        decay(DType::kF32, {tokens, by_key ? heads * dk : heads}),
        beta(DType::kF32, {tokens, heads}),
        skip(DType::kF32, {heads}) {
    const double size = std::sqrt(3.0 / static_cast<double>(dk));
    fill(q, 1, size);
    fill(k, 2, size);
    fill(v, 3);
    fill(decay, 4);
    fill(beta, 5);
    fill(skip, 6);
    for_each(decay, [&](auto i, auto j, auto) {
      put(decay, {i, j}, std::exp(-std::abs(get(decay, {i, j}))));
    });
    for_each(beta, [&](auto i, auto j, auto) { put(beta, {i, j}, std::abs(get(beta, {i, j}))); });
    in = {q, k, v, decay, beta, delta ? Tensor{} : skip.view, delta};
  }
  ScanInputs rows(std::int64_t first, std::int64_t count) const {
    return {in.q.rows(first, count),
            in.k.rows(first, count),
            in.v.rows(first, count),
            in.decay.rows(first, count),
            in.beta.rows(first, count),
            in.skip,
            in.delta};
  }
  Owned q, k, v, decay, beta, skip;
  ScanInputs in;
};

// One head in double. Each value has a bound of the float computation's error (first order in eps).
void expect_scan(const Scan& scan, std::int64_t head, const Tensor& out) {
  const ScanInputs& in = scan.in;
  const std::int64_t tokens = in.v.dim(0), heads = in.v.dim(1), dk = in.k.dim(2), dv = in.v.dim(2);
  const std::int64_t key_head = head / (heads / in.k.dim(1));
  const bool by_key = in.decay.dim(1) != heads;
  const double sums =
      static_cast<double>(dk) / 4 + 8;  // additions that a term of a sum over the keys goes through
  std::vector<double> state(dk, 0), error(dk, 0);
  for (std::int64_t column = 0; column < dv; ++column) {
    std::fill(state.begin(), state.end(), 0.0);
    std::fill(error.begin(), error.end(), 0.0);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto factor = [&](std::int64_t d) {
        return get(in.decay, {t, by_key ? head * dk + d : head});
      };
      const double v = get(in.v, {t, head, column}), beta = get(in.beta, {t, head});
      double seen = 0, seen_size = 0, seen_error = 0;
      for (std::int64_t d = 0; d < dk; ++d) {
        const double key = get(in.k, {t, key_head, d}) * factor(d);
        seen += key * state[d];
        seen_size += std::abs(key * state[d]);
        seen_error += std::abs(key) * error[d];
      }
      const double u = beta * (in.delta ? v - seen : v);
      const double u_error = (in.delta ? beta * (seen_error + kEps * sums * seen_size) : 0) +
                             2 * kEps * (std::abs(u) + beta * std::abs(v));
      double read = 0, read_size = 0, read_error = 0;
      for (std::int64_t d = 0; d < dk; ++d) {
        const double key = get(in.k, {t, key_head, d}), query = get(in.q, {t, key_head, d});
        error[d] = factor(d) * error[d] + std::abs(key) * u_error +
                   2 * kEps * (std::abs(factor(d) * state[d]) + std::abs(key * u));
        state[d] = factor(d) * state[d] + key * u;
        read += query * state[d];
        read_size += std::abs(query * state[d]);
        read_error += std::abs(query) * error[d];
      }
      const double skip = in.skip.defined() ? get(in.skip, {head}) * v : 0;
      ASSERT_NEAR(get(out, {t, head, column}), read + skip,
                  read_error + kEps * (sums * read_size + 2 * std::abs(skip)) + 1e-30)
          << "head " << head << ", token " << t << ", column " << column;
    }
  }
}

TEST(Recurrent, ScanInEveryForm) {
  on_every_machine([](Context& ctx, Context&) {
    for (const bool by_key : {false, true})
      for (const bool delta : {false, true})
        for (const auto& [key_heads, heads, dk, dv] :
             {std::array{1, 1, 1, 1}, std::array{2, 4, 12, 20}, std::array{3, 3, 64, 16},
              std::array{1, 2, 33, 37}}) {
          Scan scan(21, key_heads, heads, dk, dv, by_key, delta);
          Owned state(DType::kF32, {2, recurrent_state_elements(heads, dk, dv)});
          Owned out(DType::kF32, {21, heads, dv}, 4);
          Batch batch({21}, {0}, {1});
          recurrent_scan(ctx, scan.in, batch.rows(), state, out);
          for (std::int64_t head = 0; head < heads; ++head) expect_scan(scan, head, out);
          EXPECT_TRUE(gaps_untouched(out));
        }
  });
}

TEST(Recurrent, ScanCutIntoStepsOnEveryInstructionSet) {
  constexpr std::int64_t kTokens = 50, kHeads = 4, kKeys = 20, kValues = 24;
  Scan scan(kTokens, 2, kHeads, kKeys, kValues, true, true);
  Owned first_state(DType::kF32, {1, recurrent_state_elements(kHeads, kKeys, kValues)});
  Owned whole(DType::kF32, {kTokens, kHeads, kValues});
  Machine first(CpuIsa::kAvx2);
  Batch one({kTokens}, {0}, {0});
  recurrent_scan(first.ctx, scan.in, one.rows(), first_state, whole);
  on_every_machine([&](Context& ctx, Context&) {
    Owned state(DType::kF32, {3, recurrent_state_elements(kHeads, kKeys, kValues)});
    Owned out(DType::kF32, {kTokens, kHeads, kValues});
    // The same tokens twice, the second time a few steps later, both in each step's batch.
    std::int32_t a = 0, b = 0;
    for (const std::int32_t count : {1, 3, 16, 7, 16, 7}) {
      Batch step({count}, {a}, {2});
      recurrent_scan(ctx, scan.rows(a, count), step.rows(), state, out->rows(a, count));
      a += count;
      EXPECT_TRUE(same_bits(out->rows(0, a), whole->rows(0, a)));
    }
    for (const std::int32_t count : {25, 25}) {
      // Two sequences in one batch: the rows [b, b + count), split between them.
      Batch step({count - 5, 5}, {b, 0}, {0, 1});
      recurrent_scan(ctx, scan.rows(b, count), step.rows(), state, out->rows(b, count));
      if (b == 0) {
        EXPECT_TRUE(same_bits(out->rows(0, count - 5), whole->rows(0, count - 5)));
      }
      b += count;
    }
    EXPECT_TRUE(same_bits(state->rows(2, 1), first_state->rows(0, 1)));
  });
}

// A sequence continues the one before it: its slot gets the state behind its row, and what comes
// out stays the same.
TEST(Recurrent, StatesOfRowsAreThoseOfSteps) {
  on_every_machine([](Context& ctx, Context&) {
    constexpr std::int64_t kTokens = 5, kChannels = 83, kTaps = 4;
    Owned x(DType::kF32, {kTokens, kChannels}), weight(DType::kF32, {kTaps, kChannels});
    Owned state(DType::kF32, {8, (kTaps - 1) * kChannels}),
        whole(DType::kF32, {kTokens, kChannels}), rows_out(DType::kF32, {kTokens, kChannels});
    fill(x, 1, 2.0);
    fill(weight, 2);
    Scan scan(kTokens, 2, 4, 20, 24, false, true);
    const std::int64_t elements = recurrent_state_elements(4, 20, 24);
    Owned matrix(DType::kF32, {8, elements}), out(DType::kF32, {kTokens, 4, 24}),
        by_row(DType::kF32, {kTokens, 4, 24});
    // The rows of the first share slot 1. The third continues the second, and the last the third.
    Batch batch({2, 1, 1, 1}, {0, 0, 1, 2}, {1, 2, 5, 4}, {1, 2, 2, 5});
    causal_conv(ctx, x, weight, {}, true, batch.rows(), state, rows_out);
    recurrent_scan(ctx, scan.in, batch.rows(), matrix, by_row);
    for (const auto& [count, slot] : {std::pair{1, 2}, std::pair{2, 5}, std::pair{3, 4}}) {
      Owned plain_state(DType::kF32, {8, (kTaps - 1) * kChannels}),
          plain_matrix(DType::kF32, {8, elements});
      Batch plain({2, count}, {0, 0}, {1, 0});
      const std::int64_t rows = 2 + count;
      causal_conv(ctx, x->rows(0, rows), weight, {}, true, plain.rows(), plain_state,
                  whole->rows(0, rows));
      recurrent_scan(ctx, scan.rows(0, rows), plain.rows(), plain_matrix, out->rows(0, rows));
      EXPECT_TRUE(same_bits(whole->rows(0, rows), rows_out->rows(0, rows)));
      EXPECT_TRUE(same_bits(out->rows(0, rows), by_row->rows(0, rows)));
      EXPECT_TRUE(same_bits(plain_state->rows(0, 1), state->rows(slot, 1))) << slot;
      EXPECT_TRUE(same_bits(plain_matrix->rows(0, 1), matrix->rows(slot, 1))) << slot;
      EXPECT_TRUE(same_bits(plain_matrix->rows(1, 1), matrix->rows(1, 1)));
    }
  });
}

TEST(Recurrent, GatesAndProducts) {
  on_every_machine([](Context& ctx, Context&) {
    for (std::int64_t n : {1, 7, 40}) {
      constexpr std::int64_t kTokens = 30;
      Owned x(DType::kF32, {kTokens, n}, 2), bias(DType::kF32, {n}), rate(DType::kF32, {n});
      Owned step(DType::kF32, {kTokens, n}), decay(DType::kF32, {kTokens, n}),
          out(DType::kF32, {kTokens, n}, 1);
      fill(x, 1, 30.0);
      fill(bias, 2);
      fill(rate, 3, 4.0);
      for_each(rate, [&](auto i, auto, auto) { put(rate, {i}, -std::abs(get(rate, {i}))); });
      for (const auto& [low, high] : {std::pair{0.0f, 0.0f}, std::pair{0.25f, 2.0f}}) {
        decay_gates(ctx, x, bias, rate, low, high, step, decay);
        for (std::int64_t t = 0; t < kTokens; ++t)
          for (std::int64_t i = 0; i < n; ++i) {
            const double z = get(x, {t, i}) + get(bias, {i});
            double want = std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z)));
            want = std::max<double>(low, high > 0 ? std::min<double>(high, want) : want);
            // z has an error of half a unit of a sum below 32; |softplus'| <= 1.
            const double bound = 16 * kEps + 16 * kEps * want;
            ASSERT_NEAR(get(step, {t, i}), want,
                        std::min(bound, 16 * kEps * want * (1 + std::abs(z))));
            const double product = get(rate, {i}) * get(step, {t, i});
            ASSERT_NEAR(get(decay, {t, i}), std::exp(product),
                        std::exp(product) * kEps * (4 - 2 * product) + 1e-37);
          }
      }
      Owned gate(DType::kF32, {kTokens, n});
      fill(gate, 4, 9.0);
      sigmoid(ctx, gate, step);
      for (const Gate fn : {Gate::kLinear, Gate::kSilu, Gate::kSigmoid}) {
        gated_mul(ctx, fn, x, gate, out);
        for_each(out, [&](auto t, auto i, auto) {
          const double g = get(gate, {t, i}), s = 1 / (1 + std::exp(-g));
          const double want = get(x, {t, i}) * (fn == Gate::kLinear ? g
                                                : fn == Gate::kSilu ? g * s
                                                                    : s);
          ASSERT_NEAR(get(out, {t, i}), want, 8 * kEps * std::abs(want));
          ASSERT_NEAR(get(step, {t, i}), s, 8 * kEps * s);
        });
      }
      EXPECT_TRUE(gaps_untouched(out));
    }
  });
}

TEST(Recurrent, WhatCannotBeIsABug) {
  Machine machine(CpuIsa::kAvx2);
  Owned x(DType::kF32, {4, 8}), weight(DType::kF32, {4, 8}), state(DType::kF32, {2, 24}),
      out(DType::kF32, {4, 8});
  fill(x, 1);
  fill(weight, 2);
  const auto conv = [&](Batch batch) {
    causal_conv(machine.ctx, x, weight, {}, true, batch.rows(), state, out);
  };
  EXPECT_NO_THROW(conv({{4}, {0}, {1}}));
  EXPECT_THROW(conv({{4}, {0}, {2}}), Error);  // no such slot
  EXPECT_THROW(conv({{3}, {0}, {1}}), Error);  // a row belongs to no sequence
  EXPECT_THROW(conv({{5}, {0}, {1}}), Error);
  EXPECT_NO_THROW(conv({{3, 1}, {0, 3}, {1, 0}, {1, 1}}));
  EXPECT_THROW(conv({{3, 1}, {0, 3}, {1, 0}, {0, 0}}), Error);  // no state is before it
  EXPECT_THROW(conv({{2, 2}, {0, 2}, {1, 0}, {1, 1}}), Error);  // two rows, and one state
}

}  // namespace
}  // namespace sluice::ops
