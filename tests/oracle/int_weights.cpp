// Integer weights in fragments (kernels/types/int_fragments.h): every format and group, columns in
// order and not, few and many rows, fused operations, tables of embeddings.
#include <cmath>
#include <cstring>
#include <random>

#include "block_bytes.h"
#include "kernels/types/int_fragments.h"
#include "nv_units.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/gemm.h"
#include "ops/packing.h"
#include "oracle.h"

namespace sluice::oracle {
namespace {

using ops::Format;
using ops::FragmentUnit;
using ops::Weight;

struct Shape {
  std::int64_t m, n, k;
};
// Of real models: 6144 x 4096, 4096 x 14336. Odd: partial tiles, units and groups.
constexpr Shape kShapes[] = {
    {1, 16, 128},     {1, 272, 144},     {1, 6144, 4096},  {2, 272, 144},     {3, 48, 2048},
    {8, 100, 400},    {1, 4096, 14336},  {7, 4096, 1536},  {9, 128, 256},     {16, 4096, 4096},
    {16, 512, 14336}, {12, 200, 640},    {24, 136, 1104},  {17, 2112, 1536},  {33, 40, 4096},
    {64, 768, 784},   {65, 96, 128},     {130, 4100, 512}, {300, 2304, 1040}, {700, 1040, 2048},
    {1024, 272, 400}, {1100, 1040, 2048}};

struct Kind {
  Format format;
  std::int64_t group;
  DType scale;
  bool reordered;
};
constexpr Kind kKinds[] = {
    {Format::kInt4, 128, DType::kF16, false},   {Format::kInt4Zero, 128, DType::kF16, false},
    {Format::kInt8, 128, DType::kBF16, false},  {Format::kInt4, 64, DType::kBF16, true},
    {Format::kInt4Zero, 64, DType::kF16, true}, {Format::kInt8, 32, DType::kF16, false},
    {Format::kInt4, 32, DType::kF16, false},    {Format::kInt4Zero, 32, DType::kBF16, false},
    {Format::kInt8, 64, DType::kF16, true},     {Format::kInt4Zero, 128, DType::kBF16, true},
    {Format::kMxFp4, 32, DType::kF16, false},   {Format::kNvFp4, 16, DType::kF16, false},
    {ops::kQ2K, 32, DType::kF16, false},        {ops::kQ3K, 32, DType::kF16, false},
    {ops::kQ4K, 32, DType::kF16, false},        {ops::kQ5K, 32, DType::kF16, false},
    {ops::kQ6K, 32, DType::kF16, false},        {Format::kInt4Min, 32, DType::kF16, false},
    {ops::kQ50, 32, DType::kF16, false},        {ops::kQ51, 32, DType::kF16, false},
    {ops::kIQ4XS, 32, DType::kF16, false},      {ops::kIQ4NL, 32, DType::kF16, false}};

// Numbers w have a root mean square below 0.8 2^-exponent, and are below 4 2^-exponent.
struct IntTwin {
  Twin data, order;
  Kind kind;
  std::int64_t rows, columns;

  IntTwin(Bench& bench, const Kind& of, std::int64_t n, std::int64_t k, int exponent)
      : data(bench, DType::kU8,
             {ops::fragment_tiles(n) * ops::fragment_units(k), unit_of(of).bytes()}),
        order(bench, DType::kI32, {k}),
        kind(of),
        rows(n),
        columns(k) {
    std::mt19937 random(77);
    const FragmentUnit unit = unit_of(of);
    // Scales are in [1, 2) times a power of two.
    const int power = -exponent - (unit.bits == 4 ? 4 : 8);
    const auto scale = [&] {
      return kind.scale == DType::kBF16
                 ? static_cast<unsigned>((power + 127) << 7) | random() % 128
                 : static_cast<unsigned>((power + 15) << 10) | random() % 1024;
    };
    unsigned bits = 0;
    data.set([&](std::int64_t, std::int64_t j, std::int64_t) {
      if (unit.block_bytes > 0) return block_byte(of.format, j, exponent, random);
      if (j < unit.code_bytes()) return static_cast<double>(random() % 256);
      // e2m1 goes up to 6, with a root mean square of 2.93 over its codes.
      if (unit.has_factors) return nv_byte(unit, j, std::ldexp(0.001f, -exponent), random);
      if (unit.scale_bytes == 1)
        return static_cast<double>(127 - exponent - 2 - static_cast<int>(random() % 2));
      if (j >= unit.zeros_at()) return static_cast<double>(random() % 16);
      if (j % 2 == 0) bits = static_cast<unsigned>(scale());
      return static_cast<double>(j % 2 == 0 ? bits & 255u : bits >> 8);
    });
    std::vector<std::int32_t> columns_of(static_cast<std::size_t>(k));
    for (std::size_t i = 0; i < columns_of.size(); ++i)
      columns_of[i] = static_cast<std::int32_t>(i);
    std::shuffle(columns_of.begin(), columns_of.end(), random);
    order.set([&](std::int64_t i, std::int64_t, std::int64_t) {
      return static_cast<double>(columns_of[static_cast<std::size_t>(i)]);
    });
  }
  static FragmentUnit unit_of(const Kind& kind) {
    return ops::fragment_unit(kind.format, kind.group);
  }
  Weight operator()(const Context& ctx) const {
    Weight w;
    w.format = kind.format, w.layout = ops::Layout::kFragments;
    w.group = kind.group, w.scale = kind.scale, w.input = DType::kBF16;
    w.rows = rows, w.columns = columns;
    w.data = Tensor::dense(data(ctx).data, DType::kU8, {1, data(ctx).numel()}, ctx.device);
    if (kind.reordered) w.order = order(ctx);
    return w;
  }
};

std::string label_of(const Shape& s, const Kind& kind) {
  return fmt::format("{} x {} x {} format {} groups of {} {}{}", s.m, s.n, s.k,
                     static_cast<int>(kind.format), kind.group, dtype_name(kind.scale),
                     kind.reordered ? " reordered" : "");
}

// Tensor cores truncate terms below 2^-24 of the maximum of 16 terms and the sum.
double product_error(std::int64_t k) {
  return 2 * sum_error(k) + 4 * kUnit;
}

// Of sums over k columns where one side rounds weights of this root mean square to bfloat16: 2^-8
// of a weight at most, spread evenly. A GPU does so for many rows; of super-blocks the CPU does,
// and few rows on a GPU do not. Rows of x have the root mean square `x`. Sums stay below 6 times
// the root of the sum of their squares, but for one in 10^7.
double widening_error(const Shape& s, const Kind& kind, double weight, double x) {
  constexpr std::int64_t kWidenedFrom = 257;
  if (s.m < kWidenedFrom && !ops::block_unit(kind.format).exists()) return 0;
  return 6 * std::sqrt(static_cast<double>(s.k) / 3) * kBf16Unit * weight * x;
}

void check_linear(Bench& bench, const Shape& s, const Kind& kind) {
  const Bench::Group group(bench);
  if (!group.is_own()) return;
  IntTwin w(bench, kind, s.n, s.k, 0);
  Twin x(bench, DType::kBF16, {s.m, s.k}, 8), bias(bench, DType::kF32, {s.n}),
      out(bench, DType::kF32, {s.m, s.n}, 8), sum(bench, DType::kF32, {s.m, s.n}, 8),
      branch(bench, DType::kF32, {s.m, s.n}), magnitude(bench, DType::kF32, {s.m, s.n}, 8);
  x.fill(41);
  bias.fill(43);
  sum.fill(44);
  magnitude.set([&](std::int64_t, std::int64_t, std::int64_t) {
    return 1.0 + 0.4 * static_cast<double>(s.k);
  });
  const Allowed unrounded{.bound = product_error(s.k), .scale = &magnitude};
  Allowed allowed = unrounded;
  allowed.absolute = widening_error(s, kind, 0.8, 1 / std::sqrt(3.0));
  const std::string label = label_of(s, kind);
  for (const bool is_deterministic : {false, true})
    bench.compare("linear_int", label + (is_deterministic ? " deterministic" : ""),
                  {{&out, is_deterministic ? unrounded : allowed}}, [&](Context& given) {
                    Context ctx = is_deterministic ? deterministic(given) : given;
                    ops::linear(ctx, x(ctx), w(ctx), bias(ctx), out(ctx));
                  });
  bench.compare("linear_add_int", label, {{&sum, allowed}}, [&](Context& ctx) {
    ops::Residual stream{.hidden = sum(ctx), .branch = branch(ctx)};
    ops::linear_add(ctx, x(ctx), w(ctx), {}, false, stream);
    ops::add_branch(ctx, stream);
  });
}

void check_normed(Bench& bench, const Shape& s, const Kind& kind) {
  const Bench::Group group(bench);
  if (!group.is_own()) return;
  const int exponent = static_cast<int>(std::ceil(std::log2(static_cast<double>(s.k)) / 2));
  IntTwin w(bench, kind, 2 * s.n, s.k, exponent), second(bench, kind, 16, s.n, 0);
  Twin x(bench, DType::kF32, {s.m, s.k}, 8), weight(bench, DType::kF32, {s.k}),
      both(bench, DType::kF32, {s.m, 2 * s.n}), inner(bench, DType::kBF16, {s.m, s.n});
  x.fill(101, 3);
  weight.fill(102);
  const auto norm = [&](const Context& ctx) { return ops::RowNorm{weight(ctx), 1e-5f}; };
  // Both sides round the rows to bfloat16, at different places: an error of 2^-9 / sqrt(3) on
  // average, twice. Sums of K of them stay below 6 times the root of the sum of their squares, but
  // for one in 10^7.
  const double root = std::sqrt(static_cast<double>(s.k)), size = std::ldexp(0.8, -exponent),
               uniform = 1 / std::sqrt(3.0);
  const double error = 6 * root * std::sqrt(2.0 / 3) * 0x1p-9 * size * uniform +
                       product_error(s.k) * static_cast<double>(s.k) * size * uniform +
                       widening_error(s, kind, size, uniform) + 16 * kUnit;
  const std::string label = label_of(s, kind);
  bench.compare("norm_linear_int", label, {{&both, {.absolute = error}}}, [&](Context& ctx) {
    ops::Residual stream{.hidden = x(ctx), .branch = {}};
    ops::norm_linear(ctx, {stream, norm(ctx)}, w(ctx), {}, both(ctx));
  });
  // Outputs of the gate/up projections are below `top`; the derivative of x sigmoid(x) is below
  // 1.1.
  const double top = 6 * root * size * uniform;
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu})
    bench.compare("norm_gate_up_int", label + fmt::format(" {}", static_cast<int>(activation)),
                  {{&inner, {.absolute = 2.2 * top * (error + top * kBf16Unit)}}},
                  [&](Context& ctx) {
                    ops::Residual stream{.hidden = x(ctx), .branch = {}};
                    ops::norm_gate_up(ctx, {stream, norm(ctx)}, w(ctx), {}, activation, second(ctx),
                                      inner(ctx));
                  });
}

// Both sides round each number once.
void check_table(Bench& bench, const Kind& kind, std::int64_t rows, std::int64_t columns,
                 std::int64_t count) {
  IntTwin table(bench, kind, rows, columns, 0);
  Twin ids(bench, DType::kI32, {count}), out(bench, DType::kF32, {count, columns}, 3);
  // The last row first; then some more than once.
  ids.set([&](std::int64_t i, std::int64_t, std::int64_t) {
    return static_cast<double>((rows - 1 + i * 37) % rows);
  });
  bench.compare("embedding_int", label_of({count, rows, columns}, kind), {{&out, {.exact = true}}},
                [&](Context& ctx) { ops::embedding(ctx, ids(ctx), table(ctx), out(ctx)); });
}

// Rows alone have the bits that they have among others.
void check_alone(Bench& bench, const Kind& kind, std::int64_t n, std::int64_t k) {
  const Bench::Group group(bench);
  if (!group.is_own()) return;
  constexpr std::int64_t kRows = 300;
  IntTwin w(bench, kind, n, k, 0);
  Twin x(bench, DType::kBF16, {kRows, k}, 8), out(bench, DType::kF32, {kRows, n});
  x.fill(141);
  const std::string label = label_of({kRows, n, k}, kind);
  if (!bench.fits("linear_int, alone")) return;
  Context ctx = deterministic(bench.gpu);
  ops::linear(ctx, x.device, w(ctx), {}, out.device);
  bench.stream.synchronize();
  const std::vector<std::byte> whole = out.download();
  for (const std::int64_t count : {1, 7, 8, 16, 17, 33, 64, 65, 200}) {
    Twin part(bench, DType::kF32, {count, n});
    const std::int64_t first = kRows - count;
    ops::linear(ctx, x.device.rows(first, count), w(ctx), {}, part.device);
    bench.stream.synchronize();
    const std::vector<std::byte> alone = part.download();
    const bool same = std::memcmp(alone.data(), whole.data() + first * n * 4, alone.size()) == 0;
    bench.expect("linear_int, alone", fmt::format("{}: {} rows", label, count),
                 same ? "" : "the rows have other bits than among others");
  }
}

}  // namespace

void check_int_weights(Bench& bench) {
  std::size_t turn = 0;
  for (const Shape& s : kShapes) {
    const bool is_small = s.m * s.n * s.k < 2000000;
    for (std::size_t i = 0; i < std::size(kKinds); ++i) {
      // Large shapes take the kinds in turn, three at a time.
      if (!is_small && (i + turn) % std::size(kKinds) >= 3) continue;
      check_linear(bench, s, kKinds[i]);
      if (s.n % 16 == 0 && s.k <= 4096 && (s.m <= 65 || s.m >= 700))
        check_normed(bench, s, kKinds[i]);
    }
    if (!is_small) turn += 3;
  }
  for (const Kind& kind : kKinds) check_alone(bench, kind, 528, 1160);
  for (const Kind& kind : kKinds) {
    check_table(bench, kind, 16, 128, 1);
    check_table(bench, kind, 1003, 1160, 67);
    check_table(bench, kind, 8200, 4096, 5);
  }
}

}  // namespace sluice::oracle
