// Expert MLPs with weights in fragments (kernels/types/int_fragments.h): few and many tokens.
#include <cmath>
#include <cstring>
#include <random>

#include "away.h"
#include "block_bytes.h"
#include "kernels/types/int_fragments.h"
#include "nv_units.h"
#include "ops/fused.h"
#include "ops/moe.h"
#include "oracle.h"

namespace sluice::oracle {
namespace {

using ops::Format;
using ops::Weight;

struct Shape {
  std::int64_t tokens, experts, top_k, hidden, width;
};
// 2048 x 768 are Qwen3-30B-A3B's, 7168 x 2048 DeepSeek-V3's; tiles of 16, 64 and 128 rows. The last
// shapes have rows that two or more warps share, and that do not fit in their registers.
constexpr Shape kShapes[] = {
    {1, 8, 2, 64, 32},     {1, 16, 8, 2048, 768},  {5, 4, 3, 136, 24},       {8, 32, 8, 2048, 768},
    {1, 4, 3, 7168, 2048}, {8, 16, 2, 7168, 2048}, {64, 128, 8, 256, 96},    {700, 16, 4, 128, 64},
    {12, 4, 3, 72, 40},    {300, 8, 2, 2048, 768}, {1024, 16, 8, 2048, 256}, {72, 128, 8, 256, 96},
    {2, 4, 2, 8448, 24},   {3, 8, 3, 136, 24},     {4, 4, 2, 4352, 32},      {1, 2, 1, 16640, 16}};
struct Kind {
  Format format;
  std::int64_t group;
};
constexpr Kind kKinds[] = {{Format::kFp8, 128}, {Format::kInt4Zero, 128}, {Format::kInt4, 32},
                           {Format::kInt8, 64}, {Format::kMxFp4, 32},     {Format::kNvFp4, 16}};
// Of gate and up, and of `down`.
struct Kinds {
  Kind up, down;
};
// Files of Q4_K_M, and what llama.cpp stores where a width is no multiple of 256.
constexpr Kinds kBlockKinds[] = {{{ops::kQ4K, 32}, {ops::kQ6K, 32}},
                                 {{ops::kQ5K, 32}, {Format::kInt8, 32}},
                                 {{ops::kQ6K, 32}, {ops::kQ51, 32}},
                                 {{ops::kQ3K, 32}, {ops::kQ4K, 32}},
                                 {{ops::kQ2K, 32}, {ops::kQ3K, 32}},
                                 {{ops::kIQ4XS, 32}, {ops::kQ5K, 32}},
                                 {{ops::kIQ4NL, 32}, {Format::kMxFp4, 32}},
                                 {{Format::kInt4Min, 32}, {ops::kIQ4XS, 32}},
                                 {{ops::kQ50, 32}, {ops::kIQ4NL, 32}},
                                 {{ops::kQ51, 32}, {ops::kQ50, 32}},
                                 {{Format::kInt4, 32}, {Format::kInt4Min, 32}},
                                 {{Format::kMxFp4, 32}, {ops::kQ2K, 32}}};
// Widths of gpt-oss, whose last unit of columns is half empty.
constexpr Shape kGptOss[] = {{1, 8, 4, 2880, 2880}, {8, 8, 4, 2880, 2880}, {64, 8, 4, 2880, 2880}};

// kGptOss: clamped, with biases in the order of interleaved rows.
enum class Extra : std::uint8_t { kNone, kGelu, kClamped, kBiased, kWeighed, kGptOss };
constexpr Extra kExtras[] = {Extra::kNone,   Extra::kGelu,    Extra::kClamped,
                             Extra::kBiased, Extra::kWeighed, Extra::kGptOss};

// A stack of random numbers with a root mean square of about `size`.
struct StackTwin {
  Twin data;
  Kind kind;
  std::int64_t experts, rows, columns;

  StackTwin(Bench& bench, const Kind& of, std::int64_t count, std::int64_t n, std::int64_t k,
            double size)
      : data(bench, DType::kU8,
             {count * ops::fragment_tiles(n) * ops::fragment_units(k),
              ops::fragment_unit(of.format, of.group).bytes()}),
        kind(of),
        experts(count),
        rows(n),
        columns(k) {
    std::mt19937 random(91);
    std::uniform_real_distribution<float> uniform(-448, 448);
    const ops::FragmentUnit unit = ops::fragment_unit(kind.format, kind.group);
    if (unit.block_bytes > 0) {
      const int exponent = -static_cast<int>(std::floor(std::log2(size)));
      data.set([&](std::int64_t, std::int64_t j, std::int64_t) {
        return block_byte(kind.format, j, exponent, random);
      });
      return;
    }
    // The root mean square of the codes: uniform ones, and differences of two nibbles.
    const double of_codes = kind.format == Format::kFp8     ? 448 / std::sqrt(3.0)
                            : kind.format == Format::kInt8  ? 74
                            : kind.format == Format::kInt4  ? 4.6
                            : kind.format == Format::kMxFp4 ? 2.93
                            : kind.format == Format::kNvFp4 ? 726  // with its scales
                                                            : 6.5;
    const int power = static_cast<int>(std::floor(std::log2(size / of_codes)));
    std::uint8_t bytes[4] = {};
    data.set([&](std::int64_t, std::int64_t j, std::int64_t) {
      if (j < unit.code_bytes())
        return static_cast<double>(kind.format == Format::kFp8 ? ops::to_e4m3(uniform(random))
                                                               : random() % 256);
      if (unit.has_factors) return nv_byte(unit, j, static_cast<float>(size / of_codes), random);
      if (unit.scale_bytes == 1)
        return static_cast<double>(127 + power - static_cast<int>(random() % 2));
      if (j >= unit.zeros_at()) return static_cast<double>(random() % 16);
      const int at = static_cast<int>(j % unit.scale_bytes);
      if (at == 0) {
        const auto scale = static_cast<float>(size / of_codes *
                                              (0.75 + static_cast<double>(random() % 512) / 1024));
        if (unit.scale_bytes == 4) {
          std::memcpy(bytes, &scale, 4);
        } else {
          const F16 narrow(scale);
          std::memcpy(bytes, &narrow, 2);
        }
      }
      return static_cast<double>(bytes[at]);
    });
  }
  Weight operator()(const Context& ctx) const {
    Weight w;
    w.format = kind.format, w.layout = ops::Layout::kFragments;
    w.group = kind.group, w.input = DType::kBF16;
    w.count = experts, w.rows = rows, w.columns = columns;
    w.data = Tensor::dense(data(ctx).data, DType::kU8, {experts, data(ctx).numel() / experts},
                           ctx.device);
    return w;
  }
};

void check_mlp(Bench& bench, const Shape& s, const Kinds& kinds, Extra extra,
               Away away = Away::kFew) {
  const Bench::Group group(bench);
  if (!group.is_own()) return;
  // gate and up have about the variance of x, and so have the results.
  const double up_size = 1 / std::sqrt(static_cast<double>(s.hidden)),
               down_size = 1 / std::sqrt(static_cast<double>(s.width));
  StackTwin w13(bench, kinds.up, s.experts, 2 * s.width, s.hidden, up_size),
      w2(bench, kinds.down, s.experts, s.hidden, s.width, down_size);
  Twin x(bench, DType::kBF16, {s.tokens, s.hidden}, 8),
      weights(bench, DType::kF32, {s.tokens, s.top_k}),
      ids(bench, DType::kI32, {s.tokens, s.top_k}),
      out(bench, DType::kF32, {s.tokens, s.hidden}, 4),
      sum(bench, DType::kF32, {s.tokens, s.hidden}, 4),
      branch(bench, DType::kF32, {s.tokens, s.hidden}),
      up_bias(bench, DType::kF32, {s.experts, 2 * s.width}),
      down_bias(bench, DType::kF32, {s.experts, s.hidden});
  // Rows have sizes of their own, which powers of two a row must not mix up. Some are zero.
  std::mt19937 random(81);
  std::uniform_real_distribution<double> uniform(-std::sqrt(3.0), std::sqrt(3.0));
  x.set([&](std::int64_t t, std::int64_t, std::int64_t) {
    return t % 7 == 5 ? 0.0 : std::ldexp(uniform(random), static_cast<int>(-6 * (t % 3)));
  });
  sum.fill(86);
  up_bias.fill(84);
  down_bias.fill(85);
  weights.set([&](std::int64_t t, std::int64_t j, std::int64_t) {
    return 1.0 / static_cast<double>(1 + t % 3 + j);
  });
  // Ascending ids; some belong to another rank.
  ids.set([&](std::int64_t t, std::int64_t j, std::int64_t) {
    if (is_away(away, t, j)) return -1.0;
    return static_cast<double>(j + (s.experts - s.top_k) * (t % 4) / 4);
  });
  const auto params = [&](const Context& ctx) {
    ops::ExpertParams p(extra == Extra::kGelu ? Activation::kGeluTanh : Activation::kSilu);
    if (extra == Extra::kClamped || extra == Extra::kGptOss) p.clamp = 1.5f;
    p.groups = groups_of(away);
    p.weigh_input = extra == Extra::kWeighed;
    if (extra == Extra::kBiased || extra == Extra::kGptOss)
      p.up_bias = up_bias(ctx), p.down_bias = down_bias(ctx);
    p.interleaved = extra == Extra::kGptOss;
    return p;
  };
  // gate and up stay below 6 times their deviation, plus a bias, so their product below 64. Sums of
  // the sides differ by the roundings of a float32 sum and of the tensor cores. That changes the
  // rounding of act(gate) * up to bfloat16 where a value is near a tie: at most one in 256 of the
  // width, by 2^-8 of its size, which adds up like a sum of independent errors.
  const auto width = static_cast<double>(s.width);
  const double largest = 64, root = std::sqrt(width);
  const double sums =
                   (2 * sum_error(s.hidden) + 68 * kUnit) * root * 6 * largest * down_size * root,
               flips = 6 * std::sqrt(width / 256 + 1) * largest * kBf16Unit * down_size,
               last = (2 * sum_error(s.width) + 4 * kUnit) * width * largest * down_size;
  const auto top_k = static_cast<double>(s.top_k);
  const Allowed unrounded{.absolute = top_k * (sums + flips + last)};
  // The CPU and tiles round weights of blocks to bfloat16, few tokens do not: 2^-8 of a weight at
  // most, spread evenly. Sums of independent errors stay below 6 times the root of the sum of their
  // squares. gate and up, with a bias or 1 more, have a root mean square below 2, and so act(gate)
  // * up below 4. An error of gate or up changes that by at most 1.1 times the other one.
  const auto is_blocks = [](const Kind& kind) { return ops::block_unit(kind.format).exists(); };
  const double rounded = 6 * kBf16Unit / std::sqrt(3.0),
               inner = is_blocks(kinds.up) ? 2.2 * 2 * rounded : 0,
               outer = is_blocks(kinds.down) ? 4 * rounded : 0;
  Allowed allowed = unrounded;
  allowed.absolute += top_k * (inner + outer);
  const std::string label =
      fmt::format("{} tokens, {} of {}, {} x {} formats {} and {} groups of {}, form {}, away {}",
                  s.tokens, s.top_k, s.experts, s.hidden, s.width,
                  static_cast<int>(kinds.up.format), static_cast<int>(kinds.down.format),
                  kinds.up.group, static_cast<int>(extra), static_cast<int>(away));
  for (const bool is_deterministic : {false, true})
    bench.compare("experts_fragments", label + (is_deterministic ? " deterministic" : ""),
                  {{&out, is_deterministic ? unrounded : allowed}}, [&](Context& given) {
                    Context ctx = is_deterministic ? deterministic(given) : given;
                    Arena::Scope scope(*ctx.arena);
                    const ops::MoeWorkspace workspace =
                        ops::take_moe_workspace(*ctx.arena, s.tokens, s.top_k, s.experts, s.hidden,
                                                s.width, {DType::kBF16, s.width});
                    ops::fused_experts(ctx, x(ctx), w13(ctx), w2(ctx), weights(ctx), ids(ctx),
                                       params(ctx), workspace, out(ctx));
                  });
  bench.compare("experts_add_fragments", label, {{&sum, allowed}}, [&](Context& ctx) {
    ops::Residual stream{.hidden = sum(ctx), .branch = branch(ctx)};
    ops::experts_add(ctx, x(ctx), w13(ctx), w2(ctx), weights(ctx), ids(ctx), params(ctx), false,
                     stream);
    ops::add_branch(ctx, stream);
  });
}

}  // namespace

void check_expert_fragments(Bench& bench) {
  for (const Shape& s : kShapes)
    for (const Kind& kind : kKinds) {
      const bool is_large = s.experts * s.hidden * s.width > 4 << 20;
      if (is_large && kind.format == Format::kInt8) continue;
      for (const Extra extra : kExtras)
        if (extra == Extra::kNone || !is_large) check_mlp(bench, s, {kind, kind}, extra);
      for (const Away away : {Away::kHalf, Away::kAll})
        if (!is_large) check_mlp(bench, s, {kind, kind}, Extra::kNone, away);
    }
  constexpr Kind kMx{Format::kMxFp4, 32};
  for (const Shape& s : kGptOss) check_mlp(bench, s, {kMx, kMx}, Extra::kGptOss);
  std::size_t turn = 0;
  for (const Shape& s : kShapes) {
    const bool is_large = s.experts * s.hidden * s.width > 4 << 20;
    for (std::size_t i = 0; i < std::size(kBlockKinds); ++i) {
      // Large shapes take the kinds in turn, two at a time.
      if (is_large && (i + turn) % std::size(kBlockKinds) >= 2) continue;
      check_mlp(bench, s, kBlockKinds[i], Extra::kNone);
      if (is_large) continue;
      check_mlp(bench, s, kBlockKinds[i], Extra::kGptOss);
      check_mlp(bench, s, kBlockKinds[i], Extra::kWeighed, Away::kHalf);
    }
    if (is_large) turn += 2;
  }
}

}  // namespace sluice::oracle
