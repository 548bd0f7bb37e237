// int8 weights in rows, by which rows of int8 are multiplied (kernels/types/int8_rows.h).
#include <cmath>
#include <random>

#include "ops/fused.h"
#include "ops/gemm.h"
#include "ops/packing.h"
#include "oracle.h"

namespace sluice::oracle {
namespace {

using ops::Weight;

struct Shape {
  std::int64_t m, n, k;
};
// Every tile of kernels/cuda/fp8/fp8_plan.h, whole and partial.
constexpr Shape kShapes[] = {
    {1, 16, 16},      {1, 4096, 4096},   {2, 272, 144},     {8, 100, 400},     {9, 128, 256},
    {16, 6144, 4096}, {17, 2112, 1536},  {33, 33, 4096},    {64, 768, 784},    {65, 96, 128},
    {130, 4100, 512}, {300, 2304, 1040}, {512, 1024, 4096}, {700, 6144, 2048}, {5, 64, 28672},
    {1, 100, 400},    {1, 2304, 8320},   {1, 48, 16512}};

// A weight of numbers up to `size`, on both sides.
struct Int8Twin {
  Twin codes, scales;
  std::int64_t rows, columns;

  Int8Twin(Bench& bench, std::int64_t n, std::int64_t k, double size)
      : codes(bench, DType::kU8, {n, k}), scales(bench, DType::kF32, {n}), rows(n), columns(k) {
    std::mt19937 random(77);
    codes.set([&](std::int64_t, std::int64_t, std::int64_t) {
      const auto code = static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
      return static_cast<double>(static_cast<std::uint8_t>(code));
    });
    scales.set([&](std::int64_t, std::int64_t, std::int64_t) {
      return size / 127 * (0.5 + static_cast<double>(random() % 512) / 1024);
    });
  }
  Weight operator()(const Context& ctx) const {
    Weight w = ops::weight_form(ctx, ops::Format::kInt8, DType::kBF16, 0);
    w.data = codes(ctx), w.scales = scales(ctx);
    w.data.dtype = DType::kI8;
    w.rows = rows, w.columns = columns;
    return w;
  }
};

void check_linear(Bench& bench, const Shape& s) {
  Int8Twin w(bench, s.n, s.k, 1);
  Twin x(bench, DType::kBF16, {s.m, s.k}, 8), bias(bench, DType::kF32, {s.n}),
      out(bench, DType::kF32, {s.m, s.n}, 8), sum(bench, DType::kF32, {s.m, s.n}, 8),
      branch(bench, DType::kF32, {s.m, s.n});
  // Rows have sizes of their own; one is zero.
  std::mt19937 random(41);
  std::uniform_real_distribution<double> uniform(-1, 1);
  x.set([&](std::int64_t m, std::int64_t, std::int64_t) {
    return m % 7 == 5 ? 0.0 : std::ldexp(uniform(random), static_cast<int>(-6 * (m % 3)));
  });
  bias.fill(43);
  const std::string label = fmt::format("{} x {} x {}", s.m, s.n, s.k);
  for (const bool biased : {false, true})
    for (const bool is_deterministic : {false, true})
      bench.compare(
          "linear_int8",
          label + (biased ? " and bias" : "") + (is_deterministic ? " deterministic" : ""),
          {{&out, {.exact = true}}}, [&](Context& given) {
            Context ctx = is_deterministic ? deterministic(given) : given;
            Arena::Scope scope(*ctx.arena);
            const Weight weight = w(ctx);
            ops::linear(ctx, ops::prepared(ctx, x(ctx), weight), weight,
                        biased ? bias(ctx) : Tensor{}, out(ctx));
          });
  sum.fill(44);
  // The product may be fused into the sum. It is below the columns times a weight and an x of 1.
  const Allowed rounded{.absolute = 2 * kUnit * static_cast<double>(s.k)};
  bench.compare("linear_add_int8", label, {{&sum, rounded}}, [&](Context& ctx) {
    Arena::Scope scope(*ctx.arena);
    const Weight weight = w(ctx);
    ops::Residual stream{.hidden = sum(ctx), .branch = branch(ctx)};
    ops::linear_add(ctx, ops::prepared(ctx, x(ctx), weight), weight, {}, false, stream);
    ops::add_branch(ctx, stream);
  });
}

// A side rounds normalised rows to bfloat16 first, which moves a number by up to a quarter of a
// step of int8, and the row's scale as much. So at most half of the codes are the neighbouring
// ones. Sums of k such errors, of a step times a weight of this root mean square, stay below 6
// times the root of the sum of their squares.
double neighbours(std::int64_t k, double step, double weight) {
  return 6 * std::sqrt(static_cast<double>(k) / 2) * step * weight;
}

void check_normed(Bench& bench, const Shape& s) {
  const double size = 1 / std::sqrt(static_cast<double>(s.k)), uniform = 1 / std::sqrt(3.0);
  Int8Twin w(bench, 2 * s.n, s.k, size), second(bench, 16, s.n, 1);
  Twin x(bench, DType::kF32, {s.m, s.k}, 8), weight(bench, DType::kF32, {s.k});
  Twin both(bench, DType::kF32, {s.m, 2 * s.n}), out(bench, DType::kF32, {s.m, 16});
  x.fill(101, 3);
  weight.fill(102);
  // Normalised uniform rows are below the root of 3.
  const double error = neighbours(s.k, std::sqrt(3.0) / 127, size * uniform) + 16 * kUnit;
  const std::string label = fmt::format("{} x {} x {}", s.m, s.n, s.k);
  const auto norm = [&](const Context& ctx) { return ops::RowNorm{weight(ctx), 1e-5f}; };
  bench.compare("norm_linear_int8", label, {{&both, {.absolute = error}}}, [&](Context& ctx) {
    ops::Residual stream{.hidden = x(ctx), .branch = {}};
    ops::norm_linear(ctx, {stream, norm(ctx)}, w(ctx), {}, both(ctx));
  });
  // Outputs of gate and up are below `top`, and act(gate) up below its square.
  const double top = 6 * uniform * uniform, gate_error = 2.2 * top * (error + top * kBf16Unit),
               second_error = std::sqrt(static_cast<double>(s.n)) * 6 * uniform * gate_error +
                              neighbours(s.n, top * top / 127, uniform);
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu})
    bench.compare("norm_gate_up_int8", label + fmt::format(" {}", static_cast<int>(activation)),
                  {{&out, {.absolute = second_error}}}, [&](Context& ctx) {
                    Arena::Scope scope(*ctx.arena);
                    const Weight next = second(ctx);
                    const ops::PreparedRows form = ops::prepared_shape(ctx, next, s.m);
                    const Tensor inner = ctx.arena->take(form.dtype, {s.m, form.elements});
                    ops::Residual stream{.hidden = x(ctx), .branch = {}};
                    ops::norm_gate_up(ctx, {stream, norm(ctx)}, w(ctx), {}, activation, next,
                                      inner);
                    ops::linear(ctx, inner, next, {}, out(ctx));
                  });
}

}  // namespace

void check_int8(Bench& bench) {
  for (const Shape& s : kShapes) {
    check_linear(bench, s);
    if (s.n % 16 == 0) check_normed(bench, s);
  }
}

}  // namespace sluice::oracle
