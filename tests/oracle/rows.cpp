// Sums, conversions, copies, norms, gates, rotary embedding and the rows of the KV pool.
#include <array>
#include <cmath>
#include <deque>

#include "ops/activation.h"
#include "ops/elementwise.h"
#include "ops/heads.h"
#include "ops/kv.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/tokens.h"
#include "oracle.h"

namespace sluice::oracle {
namespace {

constexpr std::array kFloats = {DType::kF32, DType::kBF16, DType::kF16};
constexpr Allowed kExact{.exact = true};

struct Extent {
  std::int64_t rows, n, pad;
};
constexpr Extent kExtents[] = {{1, 1, 0},    {3, 7, 3},     {5, 64, 0},
                               {2, 1023, 1}, {65, 4096, 8}, {1, 12288, 0}};

std::string label(const Extent& e) {
  return fmt::format("{} x {} (+{})", e.rows, e.n, e.pad);
}

void check_elementwise(Bench& bench) {
  for (const Extent& e : kExtents) {
    Twin a(bench, DType::kF32, {e.rows, e.n}, e.pad), b(bench, DType::kF32, {e.rows, e.n});
    Twin out(bench, DType::kF32, {e.rows, e.n}, e.pad);
    a.fill(1);
    b.fill(2);
    bench.compare("add", label(e), {{&out, kExact}},
                  [&](Context& ctx) { ops::add(ctx, a(ctx), b(ctx), out(ctx)); });
    bench.compare("add", label(e) + " in place", {{&a, kExact}},
                  [&](Context& ctx) { ops::add(ctx, a(ctx), b(ctx), a(ctx)); });
    bench.compare("scale", label(e), {{&out, kExact}},
                  [&](Context& ctx) { ops::scale(ctx, a(ctx), 0.37f, out(ctx)); });
    bench.compare("clamp", label(e), {{&out, kExact}},
                  [&](Context& ctx) { ops::clamp(ctx, a(ctx), 0.5f, out(ctx)); });
    // tanh is within 4 units of 1 on the CPU (its own bound) and on the GPU.
    bench.compare("softcap", label(e), {{&out, {.absolute = 16 * 0.3 * kUnit}}},
                  [&](Context& ctx) { ops::softcap(ctx, a(ctx), 0.3f, out(ctx)); });
    for (const DType from : kFloats)
      for (const DType to : kFloats) {
        Twin x(bench, from, {e.rows, e.n}, e.pad), y(bench, to, {e.rows, e.n}, e.pad);
        x.fill(3, 1000);
        bench.compare("convert",
                      fmt::format("{} {} to {}", label(e), dtype_name(from), dtype_name(to)),
                      {{&y, kExact}}, [&](Context& ctx) { ops::convert(ctx, x(ctx), y(ctx)); });
      }
  }
  Twin positions(bench, DType::kI32, {37}), queries(bench, DType::kF32, {37, 5, 72}, 8);
  positions.set([](std::int64_t i, std::int64_t, std::int64_t) { return i * i * 911; });
  queries.fill(9);
  for (const std::int64_t offset : {0, 1})
    bench.compare("scale_queries", fmt::format("offset {}", offset),
                  {{&queries, {.relative = 12 * kUnit}}}, [&](Context& ctx) {
                    ops::scale_queries(ctx, positions(ctx), 0.1f, 8192, offset, queries(ctx));
                  });
  // Heads that all read one row, and heads of a strided row.
  Twin row(bench, DType::kF32, {5, 16}), heads(bench, DType::kF32, {5, 3, 16}, 4);
  row.fill(4);
  bench.compare("convert", "one row for each head", {{&heads, kExact}}, [&](Context& ctx) {
    Tensor x = row(ctx);
    x.rank = 3;
    x.shape = {5, 3, 16, 0};
    x.stride = {16, 0, 1, 0};
    ops::convert(ctx, x, heads(ctx));
  });
}

// Moves of draft trees: planes of equal rows in one launch and others, slots that stay.
void check_moves(Bench& bench) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    std::deque<Twin> planes;
    for (int i = 0; i < 11; ++i) {
      planes.emplace_back(bench, dtype, std::initializer_list<std::int64_t>{256, i < 9 ? 1024 : 40},
                          i == 4 ? 8 : 0);
      planes.back().fill(static_cast<unsigned>(20 + i));
    }
    Twin from(bench, DType::kI64, {48}), to(bench, DType::kI64, {48});
    from.set([](std::int64_t i, std::int64_t, std::int64_t) { return i < 30 ? 64 + i / 3 : 255; });
    to.set([](std::int64_t i, std::int64_t, std::int64_t) { return i < 30 ? 128 + 3 * i : 255; });
    std::vector<Output> moved;
    for (Twin& plane : planes) moved.push_back({&plane, kExact});
    bench.compare("kv_move", fmt::format("{} of many planes, padded", dtype_name(dtype)), moved,
                  [&](Context& ctx) {
                    std::vector<ops::KvPlane> views;
                    for (Twin& plane : planes) views.emplace_back(plane(ctx));
                    ops::kv_move(ctx, views, from(ctx), to(ctx));
                  });
  }
}

void check_gathers(Bench& bench) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Twin table(bench, dtype, {37, 129}, 5), ids(bench, DType::kI32, {9}),
        out(bench, DType::kF32, {9, 129}, 2);
    table.fill(5);
    ids.set([](std::int64_t i, std::int64_t, std::int64_t) { return (i * 11) % 37; });
    bench.compare("embedding", std::string(dtype_name(dtype)), {{&out, kExact}},
                  [&](Context& ctx) { ops::embedding(ctx, ids(ctx), table(ctx), out(ctx)); });
    Twin same(bench, dtype, {9, 129}, 1);
    bench.compare("gather_rows", std::string(dtype_name(dtype)), {{&same, kExact}},
                  [&](Context& ctx) { ops::gather_rows(ctx, table(ctx), ids(ctx), same(ctx)); });
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Twin plane(bench, dtype, {256, 96}), src(bench, DType::kF32, {70, 96}, 7),
        slots(bench, DType::kI64, {70});
    Twin chosen(bench, DType::kI32, {70}), out(bench, DType::kF32, {70, 96});
    plane.fill(6);
    src.fill(7);
    slots.set([](std::int64_t i, std::int64_t, std::int64_t) { return (i * 37) % 256; });
    chosen.set([](std::int64_t i, std::int64_t, std::int64_t) { return (i * 5) % 256; });
    const std::string name(dtype_name(dtype));
    bench.compare("kv_write", name, {{&plane, kExact}},
                  [&](Context& ctx) { ops::kv_write(ctx, src(ctx), slots(ctx), plane(ctx)); });
    bench.compare("kv_write", name + " part of a row", {{&plane, kExact}}, [&](Context& ctx) {
      ops::kv_write(ctx, src(ctx).slice(1, 0, 32), slots(ctx), plane(ctx).slice(1, 64, 32));
    });
    bench.compare("kv_gather", name, {{&out, kExact}},
                  [&](Context& ctx) { ops::kv_gather(ctx, plane(ctx), chosen(ctx), out(ctx)); });
    Twin from(bench, DType::kI64, {64}), to(bench, DType::kI64, {64}),
        second(bench, DType::kBF16, {256, 33});
    second.fill(8);
    from.set([](std::int64_t i, std::int64_t, std::int64_t) { return i; });
    to.set([](std::int64_t i, std::int64_t, std::int64_t) { return 128 + i; });
    bench.compare("kv_move", name, {{&plane, kExact}, {&second, kExact}}, [&](Context& ctx) {
      const std::array<ops::KvPlane, 2> planes = {plane(ctx), second(ctx)};
      ops::kv_move(ctx, planes, from(ctx), to(ctx));
    });
  }
  check_moves(bench);
}

// So many rows that each CTA processes several.
void check_many_norms(Bench& bench) {
  for (const Extent& e : {Extent{1200, 4096, 8}, Extent{1500, 2052, 0}, Extent{3000, 256, 4}}) {
    Twin x(bench, DType::kF32, {e.rows, e.n}, e.pad),
        residual(bench, DType::kF32, {e.rows, e.n}, e.pad);
    Twin weight(bench, DType::kF32, {e.n}), out(bench, DType::kF32, {e.rows, e.n}),
        rounded(bench, DType::kBF16, {e.rows, e.n}, e.pad);
    x.fill(11, 3);
    weight.fill(12);
    residual.fill(13, 5);
    const Allowed allowed{.absolute = 1e-30, .relative = sum_error(e.n) + 8 * kUnit};
    const Allowed tie{.absolute = 1e-30, .relative = allowed.relative + 2 * kBf16Unit};
    bench.compare("rms_norm", label(e), {{&out, allowed}},
                  [&](Context& ctx) { ops::rms_norm(ctx, x(ctx), weight(ctx), 1e-5f, out(ctx)); });
    bench.compare("add_rms_norm", label(e) + " to bfloat16", {{&residual, kExact}, {&rounded, tie}},
                  [&](Context& ctx) {
                    ops::add_rms_norm(ctx, x(ctx), residual(ctx), weight(ctx), 1e-6f, rounded(ctx));
                  });
    bench.compare("rms_norm", label(e) + " in place", {{&x, allowed}},
                  [&](Context& ctx) { ops::rms_norm(ctx, x(ctx), weight(ctx), 1e-5f, x(ctx)); });
  }
}

void check_norms(Bench& bench) {
  check_many_norms(bench);
  for (const Extent& e : kExtents) {
    // The mean square has the error of a sum; the other steps round four times.
    const Allowed allowed{.absolute = 1e-30, .relative = sum_error(e.n) + 8 * kUnit};
    for (const DType dtype : kFloats) {
      Twin x(bench, DType::kF32, {e.rows, e.n}, e.pad), weight(bench, dtype, {e.n}),
          out(bench, DType::kF32, {e.rows, e.n});
      x.fill(11, 3);
      weight.fill(12);
      bench.compare("rms_norm", label(e), {{&out, allowed}}, [&](Context& ctx) {
        ops::rms_norm(ctx, x(ctx), weight(ctx), 1e-5f, out(ctx));
      });
      Twin residual(bench, DType::kF32, {e.rows, e.n}, e.pad);
      residual.fill(13, 5);
      bench.compare("add_rms_norm", label(e), {{&residual, kExact}, {&out, allowed}},
                    [&](Context& ctx) {
                      ops::add_rms_norm(ctx, x(ctx), residual(ctx), weight(ctx), 1e-6f, out(ctx));
                    });
      Twin bias(bench, dtype, {e.n});
      bias.fill(14);
      // A value near a tie of bfloat16 may go either way.
      Twin rounded(bench, DType::kBF16, {e.rows, e.n}, e.pad);
      const Allowed tie{.absolute = 1e-30, .relative = allowed.relative + 2 * kBf16Unit};
      bench.compare("rms_norm", label(e) + " to bfloat16", {{&rounded, tie}}, [&](Context& ctx) {
        ops::rms_norm(ctx, x(ctx), weight(ctx), 1e-5f, rounded(ctx));
      });
      bench.compare("add_rms_norm", label(e) + " to bfloat16",
                    {{&residual, kExact}, {&rounded, tie}}, [&](Context& ctx) {
                      ops::add_rms_norm(ctx, x(ctx), residual(ctx), weight(ctx), 1e-6f,
                                        rounded(ctx));
                    });
      // x - mean cancels. The error is that of the mean, in units of the maximum element over the
      // deviation.
      const Allowed centred{.absolute = e.n == 1 ? 1e-6 : 16 * (sum_error(e.n) + 8 * kUnit)};
      bench.compare("layer_norm", label(e), {{&out, centred}}, [&](Context& ctx) {
        ops::layer_norm(ctx, x(ctx), weight(ctx), bias(ctx), 1e-6f, out(ctx));
      });
      bench.compare("layer_norm", label(e) + " without bias", {{&out, centred}}, [&](Context& ctx) {
        ops::layer_norm(ctx, x(ctx), weight(ctx), {}, 1e-6f, out(ctx));
      });
    }
  }
  Twin heads(bench, DType::kF32, {33, 8, 128}, 128), weight(bench, DType::kF32, {128});
  heads.fill(15);
  weight.fill(16);
  bench.compare(
      "rms_norm", "heads, in place", {{&heads, {.relative = sum_error(128) + 8 * kUnit}}},
      [&](Context& ctx) { ops::rms_norm(ctx, heads(ctx), weight(ctx), 1e-6f, heads(ctx)); });
}

constexpr std::array kActivations = {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu,
                                     Activation::kRelu, Activation::kRelu2};

// For inputs below 12, and a following factor below `other`. Two exponentials have errors of a few
// units each. The second activation has a polynomial argument: an error of four of its units is an
// error of the exponential, and beyond 28 both are below the absolute bound. 1 + erf cancels: x / 2
// times some units of 1 remain. In bfloat16 a value near a tie may go either way.
Allowed activation_error(Activation activation, DType out, double other) {
  const double exponential = activation == Activation::kSilu       ? 48
                             : activation == Activation::kGeluTanh ? 160
                                                                   : 32;
  const double cancelled = activation == Activation::kGelu ? 6 * other * 8 * kUnit : 0;
  return {.absolute = 1e-10 + cancelled,
          .relative = exponential * kUnit + (out == DType::kBF16 ? 2 * kBf16Unit : 0)};
}

void check_gates(Bench& bench) {
  for (const Extent& e : kExtents)
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Twin x(bench, DType::kF32, {e.rows, 2 * e.n}, e.pad), out(bench, dtype, {e.rows, e.n}, e.pad);
      x.fill(21, 12);
      const auto half = [&](Context& ctx) { return x(ctx).slice(1, 0, e.n); };
      for (const Activation activation : kActivations) {
        bench.compare("act_and_mul", label(e), {{&out, activation_error(activation, dtype, 12)}},
                      [&](Context& ctx) { ops::act_and_mul(ctx, activation, x(ctx), out(ctx)); });
        bench.compare("activate", label(e), {{&out, activation_error(activation, dtype, 1)}},
                      [&](Context& ctx) { ops::activate(ctx, activation, half(ctx), out(ctx)); });
      }
      // Numbers as in a checkpoint. Left of 0 the terms are below 12 and cancel.
      Twin numbers(bench, DType::kF32, {4});
      numbers.set([](std::int64_t i, std::int64_t, std::int64_t) {
        return std::array{0.55, 0.7, 0.5, -1e-6}[static_cast<std::size_t>(i)];
      });
      const Allowed allowed{.absolute = 12 * 2 * 16 * kUnit,
                            .relative = 32 * kUnit + (dtype == DType::kBF16 ? 2 * kBf16Unit : 0)};
      bench.compare("xielu", label(e), {{&out, allowed}},
                    [&](Context& ctx) { ops::xielu(ctx, half(ctx), numbers(ctx), out(ctx)); });
    }
  Twin x(bench, DType::kF32, {9, 300}), gate(bench, DType::kF32, {9, 1}),
      out(bench, DType::kF32, {9, 300});
  x.fill(22);
  gate.fill(23, 8);
  bench.compare("sigmoid_mul", "9 x 300", {{&out, {.relative = 32 * kUnit}}},
                [&](Context& ctx) { ops::sigmoid_mul(ctx, x(ctx), gate(ctx), out(ctx)); });
}

void check_rope(Bench& bench) {
  for (const std::int64_t dim : {2, 64, 128, 192}) {
    Twin positions(bench, DType::kI32, {41}), frequencies(bench, DType::kF32, {dim / 2});
    Twin table(bench, DType::kF32, {41, dim}), x(bench, DType::kF32, {41, 5, dim}, 24);
    positions.set([](std::int64_t i, std::int64_t, std::int64_t) { return i * i * 97; });
    frequencies.set(
        [&](std::int64_t i, std::int64_t, std::int64_t) { return 1.0 / (1.0 + 31.0 * i); });
    bench.compare("rope_cos_sin", fmt::format("{}", dim), {{&table, {.absolute = 4 * kUnit}}},
                  [&](Context& ctx) {
                    ops::rope_cos_sin(ctx, positions(ctx), frequencies(ctx), 1.1f, table(ctx));
                  });
    table.fill(31);
    x.fill(32);
    for (const bool interleaved : {false, true})
      bench.compare("rope", fmt::format("{} {}", dim, interleaved ? "pairs" : "halves"),
                    {{&x, {.absolute = 8 * kUnit}}},
                    [&](Context& ctx) { ops::rope(ctx, table(ctx), x(ctx), interleaved); });
  }
}

void check_heads(Bench& bench) {
  struct Case {
    std::int64_t tokens, heads, kv_heads, dim, rotated;
  };
  for (const Case& c : {Case{1, 32, 8, 128, 128}, Case{37, 5, 1, 64, 32}, Case{3, 16, 2, 24, 24},
                        Case{2, 3, 3, 600, 64}})
    for (const bool normed : {false, true})
      for (const bool interleaved : {false, true}) {
        Twin q(bench, DType::kF32, {c.tokens, c.heads, c.dim}, 8),
            k(bench, DType::kF32, {c.tokens, c.kv_heads, c.dim});
        Twin q_weight(bench, DType::kBF16, {c.dim}), k_weight(bench, DType::kF32, {c.dim});
        Twin table(bench, DType::kF32, {c.tokens, c.rotated});
        q.fill(36, 3);
        k.fill(37, 3);
        q_weight.fill(38);
        k_weight.fill(39);
        table.fill(40);
        // Weights are below 1, so normed heads are below 2 sqrt(dim). Each output is a sum of two
        // terms with the table.
        const double size = normed ? 2 * std::sqrt(static_cast<double>(c.dim)) : 3;
        const Allowed allowed{.absolute =
                                  2 * size * ((normed ? sum_error(c.dim) : 0) + 16 * kUnit)};
        bench.compare(
            "norm_and_rotate_heads",
            fmt::format("{} + {} heads of {}, {} rotated{}{}", c.heads, c.kv_heads, c.dim,
                        c.rotated, normed ? ", normed" : "", interleaved ? ", pairs" : ""),
            {{&q, allowed}, {&k, allowed}}, [&](Context& ctx) {
              ops::norm_and_rotate_heads(ctx, q(ctx), k(ctx), normed ? q_weight(ctx) : Tensor{},
                                         normed ? k_weight(ctx) : Tensor{}, 1e-6f, table(ctx),
                                         interleaved);
            });
        // Queries and keys with different rows: one side has no heads.
        bench.compare(
            "norm_and_rotate_heads",
            fmt::format("{}, then {} heads of {}, {} rotated{}{}", c.heads, c.kv_heads, c.dim,
                        c.rotated, normed ? ", normed" : "", interleaved ? ", pairs" : ""),
            {{&q, allowed}, {&k, allowed}}, [&](Context& ctx) {
              const Tensor queries = q(ctx), keys = k(ctx);
              const auto rotate = [&](const Tensor& some_queries, const Tensor& some_keys) {
                ops::norm_and_rotate_heads(
                    ctx, some_queries, some_keys, normed ? q_weight(ctx) : Tensor{},
                    normed ? k_weight(ctx) : Tensor{}, 1e-6f, table(ctx), interleaved);
              };
              rotate(queries, queries.slice(1, 0, 0));
              rotate(keys.slice(1, 0, 0), keys);
            });
      }
}

void check_tokens(Bench& bench) {
  for (const Extent& e : {Extent{1, 1, 0}, Extent{3, 7, 0}, Extent{5, 4093, 3},
                          Extent{2, 128256, 0}, Extent{64, 151936, 0}}) {
    Twin logits(bench, DType::kF32, {e.rows, e.n}, e.pad), tokens(bench, DType::kI32, {e.rows});
    logits.fill(41, 9);
    Twin draws(bench, DType::kU8, {e.rows, sizeof(ops::SampleRow)});
    const auto compare = [&](const std::string& what) {
      bench.compare("sample_tokens", label(e) + what, {{&tokens, kExact}}, [&](Context& ctx) {
        ops::sample_tokens(ctx, logits(ctx), draws(ctx), tokens(ctx));
      });
    };
    const auto draw = [&](const ops::SampleRow& how, const std::string& what) {
      for (std::int64_t i = 0; i < e.rows; ++i) {
        ops::SampleRow& row = ops::as_sample_rows(draws.host)[i] = how;
        row.uniform = how.uniform + static_cast<double>(i) / static_cast<double>(e.rows);
      }
      draws.keep();
      compare(what);
    };
    draw({.temperature = 0}, "");
    for (const double u : {0.0, 0.999999 / static_cast<double>(e.rows)}) {
      draw({.temperature = 1, .uniform = u}, " drawn");
      draw({.temperature = 0.3f, .top_k = 50, .uniform = u}, " top-k");
      draw({.temperature = 1.7f, .top_p = 0.95f, .uniform = u}, " top-p");
      draw({.temperature = 1, .top_p = 0.8f, .min_p = 0.02f, .top_k = 20, .uniform = u},
           " top-k, top-p and min-p");
      draw({.temperature = 1e-9f, .min_p = 1, .uniform = u}, " cold");
    }
    draw({}, " left out");
    // Few values, so that the maximum occurs often; also rows that are not finite.
    logits.set([&](std::int64_t i, std::int64_t j, std::int64_t) {
      if (i % 4 == 1) return j == e.n - 1 ? static_cast<double>(NAN) : 1.0;
      if (i % 4 == 2) return j == e.n / 2 ? static_cast<double>(INFINITY) : 2.0;
      if (i % 8 == 3) return -static_cast<double>(INFINITY);
      return static_cast<double>((j * 7919 + i) % 5);
    });
    draw({.temperature = 0}, " ties and what is not finite");
    draw({.temperature = 1, .top_p = 0.7f, .top_k = static_cast<std::int32_t>(e.n / 2 + 1)},
         " ties, drawn");
  }
  Twin slot_tokens(bench, DType::kI32, {300}), ids(bench, DType::kI32, {777}),
      slots(bench, DType::kI32, {270});
  Twin chosen(bench, DType::kI32, {270});
  slot_tokens.set([](std::int64_t i, std::int64_t, std::int64_t) { return 1000 + i; });
  ids.set([](std::int64_t i, std::int64_t, std::int64_t) { return i % 3 == 0 ? -1 - i % 300 : i; });
  slots.set(
      [](std::int64_t i, std::int64_t, std::int64_t) { return i % 5 == 0 ? -1 : i * 7 % 300; });
  chosen.set([](std::int64_t i, std::int64_t, std::int64_t) { return i % 11 == 0 ? -1 : i; });
  bench.compare("take_slot_tokens", "777 of 300", {{&ids, kExact}},
                [&](Context& ctx) { ops::take_slot_tokens(ctx, slot_tokens(ctx), ids(ctx)); });
  bench.compare("put_slot_tokens", "270 of 300", {{&slot_tokens, kExact}}, [&](Context& ctx) {
    ops::put_slot_tokens(ctx, chosen(ctx), slots(ctx), slot_tokens(ctx));
  });
}

}  // namespace

void check_rows(Bench& bench) {
  check_elementwise(bench);
  check_gathers(bench);
  check_norms(bench);
  check_gates(bench);
  check_rope(bench);
  check_heads(bench);
  check_tokens(bench);
}

}  // namespace sluice::oracle
