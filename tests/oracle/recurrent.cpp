// The parts of recurrent layers: the short convolution, the scan of a head's state, the gates.
#include "ops/recurrent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "oracle.h"

namespace sluice::oracle {
namespace {

// Rows of a sequence in this step, previous tokens, and the slot of its state. `continued`: the
// slot with the state before it, of the piece before.
struct Piece {
  std::int64_t rows, before, slot, continued = -1;

  bool begins() const { return continued < 0; }
};

class Sequences {
 public:
  Sequences(Bench& bench, const std::vector<Piece>& pieces)
      : count_(std::ssize(pieces)),
        start_(bench, DType::kI32, {count_ + 1}),
        before_(bench, DType::kI32, {count_}),
        slots_(bench, DType::kI32, {count_}),
        sources_(bench, DType::kI32, {count_}) {
    std::vector<std::int64_t> start = {0};
    for (const Piece& piece : pieces) start.push_back(start.back() + piece.rows);
    rows_ = start.back();
    start_.set([&](std::int64_t i, std::int64_t, std::int64_t) {
      return start[static_cast<std::size_t>(i)];
    });
    before_.set([&](std::int64_t i, std::int64_t, std::int64_t) {
      return pieces[static_cast<std::size_t>(i)].before;
    });
    slots_.set([&](std::int64_t i, std::int64_t, std::int64_t) {
      return pieces[static_cast<std::size_t>(i)].slot;
    });
    sources_.set([&](std::int64_t i, std::int64_t, std::int64_t) {
      const Piece& piece = pieces[static_cast<std::size_t>(i)];
      return piece.begins() ? piece.slot : piece.continued;
    });
  }
  std::int64_t rows() const { return rows_; }
  ops::SequenceRows operator()(const Context& ctx) const {
    return {start_(ctx), before_(ctx), slots_(ctx), sources_(ctx)};
  }

 private:
  std::int64_t count_, rows_ = 0;
  Twin start_, before_, slots_, sources_;
};

// Prompts in one piece and in several, decoding sequences, and one with drafts behind its token.
// Slots that begin anew hold NaN until then.
const std::vector<Piece> kPieces = {{37, 0, 4},    {9, 64, 1},    {1, 3, 0},   {1, 50, 2},
                                    {1, 51, 7, 2}, {1, 52, 5, 7}, {1, 900, 6}, {1, 0, 3}};
constexpr std::int64_t kSlots = 8;

// Numbers in the states that are read, NaN in all other states.
void fill_states(Twin& state, unsigned seed, double size) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-size, size);
  state.set([&](std::int64_t slot, std::int64_t, std::int64_t) {
    const bool read = std::any_of(kPieces.begin(), kPieces.end(), [&](const Piece& p) {
      return p.slot == slot && p.before > 0 && p.begins();
    });
    return read ? uniform(random) : std::numeric_limits<double>::quiet_NaN();
  });
}

void check_convolution(Bench& bench) {
  const Sequences sequences(bench, kPieces);
  const std::int64_t tokens = sequences.rows();
  for (std::int64_t taps = ops::kMinConvTaps; taps <= ops::kMaxConvTaps; ++taps)
    for (const std::int64_t channels : {1, 67, 640}) {
      Twin x(bench, DType::kF32, {tokens, channels}, 5),
          weight(bench, DType::kF32, {taps, channels});
      Twin bias(bench, DType::kF32, {channels}),
          state(bench, DType::kF32, {kSlots, (taps - 1) * channels}, 3);
      Twin out(bench, DType::kF32, {tokens, channels}, 2);
      x.fill(1, 2);
      weight.fill(2);
      bias.fill(3);
      fill_states(state, 4, 2);
      const std::string label = fmt::format("{} taps, {} channels", taps, channels);
      // Both sides sum in the same order; silu has an exponential.
      bench.compare("causal_conv", label, {{&out, {.exact = true}}, {&state, {.exact = true}}},
                    [&](Context& ctx) {
                      ops::causal_conv(ctx, x(ctx), weight(ctx), bias(ctx), false, sequences(ctx),
                                       state(ctx), out(ctx));
                    });
      bench.compare("causal_conv", label + ", silu, in place",
                    {{&x, {.relative = 48 * kUnit}}, {&state, {.exact = true}}}, [&](Context& ctx) {
                      ops::causal_conv(ctx, x(ctx), weight(ctx), {}, true, sequences(ctx),
                                       state(ctx), x(ctx));
                    });
    }
}

struct ScanCase {
  std::int64_t key_heads, heads, dk, dv;
  bool by_key, delta;
};

// The maximum difference of two float32 computations of a scan, element by element: the first-order
// propagation of their rounding errors, in doubles. `after` is the bound of the states.
void set_scan_error(const ScanCase& c, const Twin& q, const Twin& k, const Twin& v,
                    const Twin& decay, const Twin& beta, const Twin& skip, const Twin& state,
                    Twin& error_of_out, Twin& error_of_state) {
  const auto get = [](const Twin& t, std::int64_t i, std::int64_t j, std::int64_t n) {
    return t.at(t.host.data, i, j, n);
  };
  std::vector<double> outs(static_cast<std::size_t>(error_of_out.host.numel())),
      states(static_cast<std::size_t>(error_of_state.host.numel()));
  // Number of additions per term: four chains of keys on the CPU; on a GPU up to 32 in a lane and
  // five reduction steps.
  const double sums = static_cast<double>(std::max<std::int64_t>(c.dk / 4 + 2, 37)) + 3;
  const std::int64_t blocks = (c.dv + ops::kStateColumns - 1) / ops::kStateColumns;
  for (std::int64_t head = 0; head < c.heads; ++head)
    for (std::int64_t column = 0; column < c.dv; ++column) {
      const std::int64_t key_head = head / (c.heads / c.key_heads);
      const auto place = [&](std::int64_t d) {
        return ((head * blocks + column / ops::kStateColumns) * c.dk + d) * ops::kStateColumns +
               column % ops::kStateColumns;
      };
      std::int64_t t = 0;
      std::vector<double> s(static_cast<std::size_t>(c.dk)), e(s);
      for (const Piece& piece : kPieces) {
        for (std::int64_t d = 0; d < c.dk && piece.begins(); ++d) {
          s[static_cast<std::size_t>(d)] =
              piece.before > 0 ? get(state, piece.slot, place(d), 0) : 0;
          e[static_cast<std::size_t>(d)] = 0;
        }
        for (std::int64_t i = 0; i < piece.rows; ++i, ++t) {
          const auto factor = [&](std::int64_t d) {
            return get(decay, t, c.by_key ? head * c.dk + d : head, 0);
          };
          const double value = get(v, t, head, column), rate = get(beta, t, head, 0);
          double seen = 0, seen_size = 0, seen_error = 0;
          for (std::int64_t d = 0; d < c.dk; ++d) {
            const auto n = static_cast<std::size_t>(d);
            const double key = get(k, t, key_head, d) * factor(d);
            seen += key * s[n];
            seen_size += std::abs(key * s[n]);
            seen_error += std::abs(key) * e[n];
          }
          const double u = rate * (c.delta ? value - seen : value);
          const double u_error = (c.delta ? rate * (seen_error + kUnit * sums * seen_size) : 0) +
                                 2 * kUnit * (std::abs(u) + rate * std::abs(value));
          double read_size = 0, read_error = 0;
          for (std::int64_t d = 0; d < c.dk; ++d) {
            const auto n = static_cast<std::size_t>(d);
            const double key = get(k, t, key_head, d), query = get(q, t, key_head, d),
                         kept = factor(d) * s[n];
            e[n] = factor(d) * e[n] + std::abs(key) * u_error +
                   2 * kUnit * (std::abs(kept) + std::abs(key * u));
            s[n] = kept + key * u;
            read_size += std::abs(query * s[n]);
            read_error += std::abs(query) * e[n];
          }
          const double skipped = c.delta ? 0 : std::abs(get(skip, head, 0, 0) * value);
          outs[static_cast<std::size_t>((t * c.heads + head) * c.dv + column)] =
              2 * (read_error + kUnit * (sums * read_size + 2 * skipped));
        }
        for (std::int64_t d = 0; d < c.dk; ++d)
          states[static_cast<std::size_t>(piece.slot * error_of_state.host.dim(1) + place(d))] =
              2 * e[static_cast<std::size_t>(d)];
      }
    }
  error_of_out.set([&](std::int64_t i, std::int64_t j, std::int64_t n) {
    return outs[static_cast<std::size_t>((i * c.heads + j) * c.dv + n)];
  });
  error_of_state.set([&](std::int64_t i, std::int64_t j, std::int64_t) {
    return states[static_cast<std::size_t>(i * error_of_state.host.dim(1) + j)];
  });
}

void check_scan(Bench& bench) {
  const Sequences sequences(bench, kPieces);
  const std::int64_t tokens = sequences.rows();
  std::vector<ScanCase> cases;
  for (const bool by_key : {false, true})
    for (const bool delta : {false, true})
      for (const auto& [key_heads, heads, dk, dv] : {std::array<std::int64_t, 4>{1, 1, 1, 1},
                                                     {2, 4, 12, 20},
                                                     {3, 3, 64, 16},
                                                     {1, 2, 33, 37},
                                                     {2, 4, 128, 128}})
        cases.push_back({key_heads, heads, dk, dv, by_key, delta});
  cases.push_back({1, 3, 200, 40, true, true});
  cases.push_back({1, 2, 257, 24, false, true});
  cases.push_back({1, 1, 1000, 20, true, false});
  cases.push_back({1, 24, 128, 64, false, false});
  for (const ScanCase& c : cases) {
    const std::int64_t elements = ops::recurrent_state_elements(c.heads, c.dk, c.dv);
    Twin q(bench, DType::kF32, {tokens, c.key_heads, c.dk}, 3),
        k(bench, DType::kF32, {tokens, c.key_heads, c.dk}, 1);
    Twin v(bench, DType::kF32, {tokens, c.heads, c.dv}, 2),
        decay(bench, DType::kF32, {tokens, c.by_key ? c.heads * c.dk : c.heads});
    Twin beta(bench, DType::kF32, {tokens, c.heads}, 1), skip(bench, DType::kF32, {c.heads});
    Twin state(bench, DType::kF32, {kSlots, elements}),
        out(bench, DType::kF32, {tokens, c.heads, c.dv}, 4);
    Twin error(bench, DType::kF32, {tokens, c.heads, c.dv}),
        state_error(bench, DType::kF32, {kSlots, elements});
    // Keys and queries of length about 1, as in a model.
    const double size = std::sqrt(3.0 / static_cast<double>(c.dk));
    q.fill(11, size);
    k.fill(12, size);
    v.fill(13);
    skip.fill(14);
    std::mt19937 random(15);
    std::uniform_real_distribution<double> unit(0, 1);
    decay.set([&](std::int64_t, std::int64_t, std::int64_t) { return std::exp(-unit(random)); });
    beta.set([&](std::int64_t, std::int64_t, std::int64_t) { return unit(random); });
    fill_states(state, 16, 1);
    // Padding columns of a block are zero.
    const std::int64_t blocks = (c.dv + ops::kStateColumns - 1) / ops::kStateColumns,
                       width = ops::kStateColumns;
    state.set([&](std::int64_t slot, std::int64_t j, std::int64_t) {
      const std::int64_t column = j / (width * c.dk) % blocks * width + j % width;
      const double there = state.at(state.host.data, slot, j, 0);
      return column < c.dv || std::isnan(there) ? there : 0.0;
    });
    set_scan_error(c, q, k, v, decay, beta, skip, state, error, state_error);
    bench.compare("recurrent_scan",
                  fmt::format("{} heads of {} x {} over {}{}{}", c.heads, c.dk, c.dv, c.key_heads,
                              c.by_key ? ", decays by key" : "", c.delta ? ", delta" : ""),
                  {{&out, {.absolute = 1e-30, .bound = 1, .scale = &error}},
                   {&state, {.absolute = 1e-30, .bound = 1, .scale = &state_error}}},
                  [&](Context& ctx) {
                    ops::recurrent_scan(ctx,
                                        {q(ctx), k(ctx), v(ctx), decay(ctx), beta(ctx),
                                         c.delta ? Tensor{} : skip(ctx), c.delta},
                                        sequences(ctx), state(ctx), out(ctx));
                  });
  }
}

void check_gates(Bench& bench) {
  for (const auto& [rows, n] : {std::array<std::int64_t, 2>{1, 1}, {5, 33}, {70, 2049}}) {
    const std::string label = fmt::format("{} x {}", rows, n);
    Twin x(bench, DType::kF32, {rows, n}, 3), gate(bench, DType::kF32, {rows, n}, 1),
        out(bench, DType::kF32, {rows, n});
    Twin bias(bench, DType::kF32, {n}), rate(bench, DType::kF32, {n}),
        step(bench, DType::kF32, {rows, n}, 2);
    x.fill(21, 12);
    gate.fill(22, 12);
    bias.fill(23, 2);
    std::mt19937 random(24);
    std::uniform_real_distribution<double> uniform(-8, 0);
    rate.set([&](std::int64_t, std::int64_t, std::int64_t) { return uniform(random); });
    // An exponential and a logarithm have errors of a few units each. z e^-z < 0.4 bounds the
    // effect of the step's error on the decay.
    const Allowed steps{.relative = 64 * kUnit}, decays{.absolute = 64 * kUnit};
    bench.compare("decay_gates", label, {{&step, steps}, {&out, decays}}, [&](Context& ctx) {
      ops::decay_gates(ctx, x(ctx), bias(ctx), rate(ctx), 0, 0, step(ctx), out(ctx));
    });
    bench.compare("decay_gates", label + ", bounded, in place", {{&x, steps}, {&out, decays}},
                  [&](Context& ctx) {
                    ops::decay_gates(ctx, x(ctx), bias(ctx), rate(ctx), 0.1f, 4.0f, x(ctx),
                                     out(ctx));
                  });
    bench.compare("sigmoid", label, {{&out, {.relative = 32 * kUnit}}},
                  [&](Context& ctx) { ops::sigmoid(ctx, x(ctx), out(ctx)); });
    for (const ops::Gate fn : {ops::Gate::kLinear, ops::Gate::kSilu, ops::Gate::kSigmoid}) {
      const Allowed allowed =
          fn == ops::Gate::kLinear ? Allowed{.exact = true} : Allowed{.relative = 48 * kUnit};
      bench.compare("gated_mul", label, {{&gate, allowed}},
                    [&](Context& ctx) { ops::gated_mul(ctx, fn, x(ctx), gate(ctx), gate(ctx)); });
    }
  }
  Twin heads(bench, DType::kF32, {9, 5, 48}, 16), gates(bench, DType::kF32, {9, 5, 48}, 48);
  heads.fill(25);
  gates.fill(26, 5);
  bench.compare("gated_mul", "heads", {{&heads, {.relative = 48 * kUnit}}}, [&](Context& ctx) {
    ops::gated_mul(ctx, ops::Gate::kSigmoid, heads(ctx), gates(ctx), heads(ctx));
  });
}

}  // namespace

void check_recurrent(Bench& bench) {
  check_convolution(bench);
  check_scan(bench);
  check_gates(bench);
}

}  // namespace sluice::oracle
