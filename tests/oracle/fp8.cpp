// FP8 weights (kernels/types/fp8.h): few and many rows, both kinds of scales, fused operations.
#include <cmath>
#include <random>

#include "ops/fused.h"
#include "ops/gemm.h"
#include "ops/packing.h"
#include "oracle.h"

namespace sluice::oracle {
namespace {

using ops::kFp8Group;
using ops::Weight;

struct Shape {
  std::int64_t m, n, k;
};
// Of real models: 2112 x 7168, 4096 x 12288. Odd: one column of tiles, partial groups and tiles.
constexpr Shape kShapes[] = {
    {1, 16, 16},      {1, 2112, 7168},  {2, 272, 144},    {3, 48, 2048},     {8, 4096, 12288},
    {8, 100, 400},    {9, 128, 256},    {17, 2112, 1536}, {64, 768, 784},    {65, 96, 128},
    {130, 4100, 512}, {12, 4100, 1040}, {16, 6144, 4096}, {300, 2304, 1040}, {512, 1024, 4096},
    {2, 18432, 1024}, {5, 64, 28672},   {33, 33, 4096},   {700, 6144, 2048}, {1, 64, 28672},
    {1, 48, 12304},   {1, 272, 144}};

// Tensor cores add the products of FP8 with at least 13 bits below the largest of a step.
constexpr double kAccumulators = 0x1p-12;

// A weight of numbers up to 1, on both sides.
struct Fp8Twin {
  Twin codes, scales;
  std::int64_t rows, columns, group;

  Fp8Twin(Bench& bench, std::int64_t n, std::int64_t k, std::int64_t of_group, double size)
      : codes(bench, DType::kU8, {n, k}),
        scales(bench, DType::kF32,
               {ops::fp8_groups(k, of_group), of_group == 0 ? n : ops::fp8_scale_stride(n)}),
        rows(n),
        columns(k),
        group(of_group) {
    std::mt19937 random(77);
    std::uniform_real_distribution<float> uniform(-448, 448);
    codes.set([&](std::int64_t, std::int64_t, std::int64_t) {
      return static_cast<double>(ops::to_e4m3(uniform(random)));
    });
    scales.set([&](std::int64_t, std::int64_t, std::int64_t) {
      return size * (1 + uniform(random) / 896) / 672;
    });
  }
  Weight operator()(const Context& ctx) const {
    Weight w = ops::weight_form(ctx, ops::Format::kFp8, DType::kBF16, group);
    w.data = codes(ctx);
    w.data.dtype = DType::kF8E4M3;
    w.scales = group == 0 ? scales(ctx).at(0) : scales(ctx);
    w.rows = rows, w.columns = columns;
    return w;
  }
};

// Where a side rounds normalised rows to bfloat16 first, some numbers become the neighbouring e4m3:
// one in 2^-9 / 2^-4 of them is off by 2^-3.5 of its size. So the errors of K products have a
// variance of K 2^-12.5 |x|^2 |w|^2. Their sum stays below 6 times its root but for one in 10^7.
double neighbours(std::int64_t k, double product) {
  return 6 * std::sqrt(static_cast<double>(k) * 0x1p-12) * product;
}

void check_linear(Bench& bench, const Shape& s, std::int64_t group) {
  Fp8Twin w(bench, s.n, s.k, group, 1);
  Twin bias(bench, DType::kF32, {s.n}), out(bench, DType::kF32, {s.m, s.n}, 8),
      sum(bench, DType::kF32, {s.m, s.n}, 8), branch(bench, DType::kF32, {s.m, s.n}),
      magnitude(bench, DType::kF32, {s.m, s.n}, 8);
  bias.fill(43);
  magnitude.set([&](std::int64_t, std::int64_t, std::int64_t) {
    return 1.0 + 0.3 * static_cast<double>(s.k);
  });
  const Allowed allowed{.bound = sum_error(s.k) + kAccumulators, .scale = &magnitude};
  for (const DType type : {DType::kBF16, DType::kF32}) {
    Twin x(bench, type, {s.m, s.k}, 8);
    x.fill(41);
    const std::string label =
        fmt::format("{} x {} x {} {} groups of {}", s.m, s.n, s.k, dtype_name(type), group);
    const auto rows = [&](Context& ctx) {
      Weight weight = w(ctx);
      weight.input = type;
      return std::pair(ops::prepared(ctx, x(ctx), weight), weight);
    };
    for (const bool biased : {false, true})
      for (const bool deterministic : {false, true})
        bench.compare("linear_fp8",
                      label + (biased ? " and bias" : "") + (deterministic ? " deterministic" : ""),
                      {{&out, allowed}}, [&](Context& given) {
                        Context ctx = deterministic ? oracle::deterministic(given) : given;
                        Arena::Scope scope(*ctx.arena);
                        const auto [ready, weight] = rows(ctx);
                        ops::linear(ctx, ready, weight, biased ? bias(ctx) : Tensor{}, out(ctx));
                      });
    sum.fill(44);
    bench.compare("linear_add_fp8", label, {{&sum, allowed}}, [&](Context& ctx) {
      Arena::Scope scope(*ctx.arena);
      const auto [ready, weight] = rows(ctx);
      ops::Residual stream{.hidden = sum(ctx), .branch = branch(ctx)};
      ops::linear_add(ctx, ready, weight, {}, false, stream);
      ops::add_branch(ctx, stream);
    });
  }
}

void check_normed(Bench& bench, const Shape& s, std::int64_t group) {
  const double size = 1 / std::sqrt(static_cast<double>(s.k)), uniform = 1 / std::sqrt(3.0);
  Fp8Twin w(bench, 2 * s.n, s.k, group, size), second(bench, 16, s.n, group, 1);
  Twin x(bench, DType::kF32, {s.m, s.k}, 8), weight(bench, DType::kF32, {s.k});
  Twin both(bench, DType::kF32, {s.m, 2 * s.n}), out(bench, DType::kF32, {s.m, 16});
  x.fill(101, 3);
  weight.fill(102);
  const ops::RowNorm norm_host{weight.host, 1e-5f}, norm_device{weight.device, 1e-5f};
  const auto norm = [&](const Context& ctx) {
    return ctx.device.kind == DeviceKind::kCpu ? norm_host : norm_device;
  };
  const double error =
      neighbours(s.k, size * uniform * uniform) +
      (sum_error(s.k) + kAccumulators) * 0.3 * std::sqrt(static_cast<double>(s.k)) + 16 * kUnit;
  const std::string label = fmt::format("{} x {} x {} groups of {}", s.m, s.n, s.k, group);
  bench.compare("norm_linear_fp8", label, {{&both, {.absolute = error}}}, [&](Context& ctx) {
    ops::Residual stream{.hidden = x(ctx), .branch = {}};
    ops::norm_linear(ctx, {stream, norm(ctx)}, w(ctx), {}, both(ctx));
  });
  // Outputs of the gate/up projections are below `top`; the derivative of x sigmoid(x) is below
  // 1.1. The second GEMM rounds them again.
  const double top = 6 * uniform * uniform, gate_error = 2.2 * top * (error + top * kBf16Unit);
  const double second_error =
      std::sqrt(static_cast<double>(s.n)) * 6 * uniform * gate_error +
      neighbours(s.n, top * uniform) +
      (sum_error(s.n) + kAccumulators) * 0.3 * top * static_cast<double>(s.n);
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu})
    bench.compare("norm_gate_up_fp8", label + fmt::format(" {}", static_cast<int>(activation)),
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

void check_fp8(Bench& bench) {
  for (const Shape& s : kShapes)
    for (const std::int64_t group : {std::int64_t{0}, kFp8Group}) {
      check_linear(bench, s, group);
      if (s.n % 16 == 0) check_normed(bench, s, group);
    }
}

}  // namespace sluice::oracle
