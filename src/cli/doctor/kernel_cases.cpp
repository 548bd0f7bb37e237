// Norms, rotation, gates, products and experts.
#include "cli/doctor/kernel_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "kernels/types/quantize_model.h"
#include "kernels/types/super_block_model.h"
#include "layers/moe.h"
#include "ops/activation.h"
#include "ops/gemm.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/packing.h"
#include "ops/rope.h"

namespace sluice {
namespace {

// Of a wide matrix so many rows are checked: all of them are computed alike.
constexpr std::int64_t kMaxRows = 2048;
constexpr std::int64_t kRows = 3;

void check_norms(KernelCheck& check, const ModelConfig& config) {
  const std::int64_t n = config.hidden_size;
  const float eps = 1e-5f;
  Sample x(check, DType::kF32, {kRows, n}), weight(check, DType::kBF16, {n}),
      out(check, DType::kF32, {kRows, n});
  x.fill(1, 3);
  weight.fill(2);
  Expected expected;
  for (std::int64_t t = 0; t < kRows; ++t) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += x.at(t * n + i) * x.at(t * n + i);
    const double factor = 1 / std::sqrt(sum / static_cast<double>(n) + eps);
    for (std::int64_t i = 0; i < n; ++i) {
      const double want = x.at(t * n + i) * factor * weight.at(i);
      // The error of the sum, halved by the root, and four roundings.
      expected.add(want, std::abs(want) * (sum_error(n) + 8 * kFloatUnit));
    }
  }
  check.compare("rms_norm", fmt::format("{} x {}", kRows, n), out, expected,
                [&](Context& ctx) { ops::rms_norm(ctx, x(ctx), weight(ctx), eps, out(ctx)); });
}

void check_rotation(KernelCheck& check, const ModelConfig& config) {
  const std::int64_t dim = config.rope.rotary_dim, heads = 4;
  if (dim == 0) return;
  Sample table(check, DType::kF32, {kRows, dim}), x(check, DType::kF32, {kRows, heads, dim});
  Sample out(check, DType::kF32, {kRows, heads, dim});
  table.fill(3);
  x.fill(4);
  for (const bool interleaved : {false, true}) {
    Expected expected;
    for (std::int64_t t = 0; t < kRows; ++t)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < dim; ++i) {
          const std::int64_t pair = interleaved ? i / 2 : i % (dim / 2);
          const bool second = interleaved ? i % 2 == 1 : i >= dim / 2;
          const std::int64_t other = interleaved ? i ^ 1 : (second ? i - dim / 2 : i + dim / 2);
          const double own = x.at((t * heads + h) * dim + i),
                       mate = x.at((t * heads + h) * dim + other);
          const double c = table.at(t * dim + pair), s = table.at(t * dim + dim / 2 + pair);
          expected.add(own * c + (second ? mate : -mate) * s,
                       3 * kFloatUnit * (std::abs(own * c) + std::abs(mate * s)));
        }
    check.compare("rope",
                  fmt::format("{} heads of {}, {}", heads, dim, interleaved ? "pairs" : "halves"),
                  out, expected, [&](Context& ctx) {
                    // It works in place.
                    std::vector<double> values;
                    for (std::int64_t i = 0; i < x.size(); ++i) values.push_back(x.at(i));
                    out.set([&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
                    ops::rope(ctx, table(ctx), out(ctx), interleaved);
                  });
  }
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}

void check_gates(KernelCheck& check, const ModelConfig& config) {
  const std::int64_t n = std::min<std::int64_t>(std::max(config.intermediate_size, 64), 16384);
  Sample both(check, DType::kF32, {kRows, 2 * n});
  both.fill(5, 8);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Sample out(check, dtype, {kRows, n});
    Expected expected;
    for (std::int64_t t = 0; t < kRows; ++t)
      for (std::int64_t i = 0; i < n; ++i) {
        const double want = silu(both.at(t * 2 * n + i)) * both.at(t * 2 * n + n + i);
        // An exponential of a few units whose argument has one of its own, up to 8 of them; in
        // bfloat16 half a unit.
        expected.add(
            want,
            std::abs(want) * (48 * kFloatUnit + (dtype == DType::kBF16 ? kBf16Unit : 0)) + 1e-30);
      }
    check.compare(
        "act_and_mul", fmt::format("{} x {}, {}", kRows, n, dtype_name(dtype)), out, expected,
        [&](Context& ctx) { ops::act_and_mul(ctx, Activation::kSilu, both(ctx), out(ctx)); });
  }
}

// A matrix of a format, packed for ctx.
struct Packed {
  Packed(const Context& ctx, ops::Format format, const Tensor& plain, std::int64_t group)
      : matrix(ops::weight_form(ctx, format, DType::kBF16, group)) {
    matrix.count = plain.rank == 3 ? plain.dim(0) : 1;
    matrix.rows = plain.dim(-2);
    matrix.columns = plain.dim(-1);
    const std::int64_t bytes = ops::packed_bytes(ctx, matrix);
    memory = Buffer(matrix.count * bytes);
    matrix.data = memory.tensor(DType::kU8, {matrix.count, bytes});
    for (std::int64_t i = 0; i < matrix.count; ++i)
      ops::pack_rows(ctx, plain.rank == 3 ? plain.at(i) : plain, matrix, i, 0);
  }
  // A matrix [rows, columns] of a file's blocks.
  Packed(const Context& ctx, ops::Format format, const Tensor& blocks, std::int64_t rows,
         std::int64_t columns)
      : matrix(ops::weight_form(ctx, format, DType::kBF16, 32)) {
    matrix.rows = rows;
    matrix.columns = columns;
    const std::int64_t bytes = ops::packed_bytes(ctx, matrix);
    memory = Buffer(bytes);
    matrix.data = memory.tensor(DType::kU8, {1, bytes});
    ops::pack_rows(ctx, blocks, matrix, 0, 0);
  }
  // x [M, columns] f32 as products with it read rows.
  Tensor rows_of(Context& ctx, const Tensor& x) {
    const ops::PreparedRows shape = ops::prepared_shape(ctx, matrix, x.dim(0));
    const Tensor rows = ctx.arena->take(shape.dtype, {x.dim(0), shape.elements});
    ops::prepare_rows(ctx, x, matrix, rows);
    return rows;
  }
  ops::Weight matrix;
  Buffer memory;
};

// Blocks of GGUF files, whose products have the same bits on every instruction set, too.
void check_blocks(KernelCheck& check, Sample& x, Sample& out, std::int64_t n, std::int64_t columns,
                  const std::string& shape) {
  for (const auto& [format, name] : ops::testing::kBlockKinds) {
    if (columns % ops::super_columns(format) != 0) continue;
    auto model = ops::testing::SuperBlockMatrix::random(format, n, columns, 5);
    const Context host{};
    Expected exact;
    for (std::int64_t t = 0; t < kRows; ++t)
      for (std::int64_t r = 0; r < n; ++r)
        exact.add(model.product(x(host).ptr<float>() + t * columns, r), 0);
    const Tensor blocks = Tensor::dense(model.bytes.data(), DType::kU8, {n, model.row_bytes()});
    check.compare(fmt::format("linear {}", name), shape, out, exact,
                  [&, kind = format](Context& ctx) {
                    Packed packed(ctx, kind, blocks, n, columns);
                    ops::linear(ctx, packed.rows_of(ctx, x(ctx)), packed.matrix, {}, out(ctx));
                  });
  }
}

void check_product(KernelCheck& check, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = std::min(rows, kMaxRows);
  const std::string shape = fmt::format("{} x {}", n, columns);
  Sample x(check, DType::kF32, {kRows, columns}), half(check, DType::kBF16, {kRows, columns});
  Sample w(check, DType::kBF16, {n, columns}), out(check, DType::kF32, {kRows, n});
  x.fill(6);
  w.fill(7, 0.5);
  half.set([&](std::int64_t i) { return x.at(i); });
  Expected expected;
  for (std::int64_t t = 0; t < kRows; ++t)
    for (std::int64_t r = 0; r < n; ++r) {
      double sum = 0, size = 0;
      for (std::int64_t k = 0; k < columns; ++k) {
        const double term = x.at(t * columns + k) * w.at(r * columns + k);
        sum += term;
        size += std::abs(term);
      }
      expected.add(sum, sum_error(columns) * size);
    }
  check.compare("linear float32", shape, out, expected,
                [&](Context& ctx) { ops::linear(ctx, x(ctx), w(ctx), {}, out(ctx)); });
  check.compare("linear bfloat16", shape, out, expected,
                [&](Context& ctx) { ops::linear(ctx, half(ctx), w(ctx), {}, out(ctx)); });
  if (check.on_gpu()) return;  // repacked weights are a CPU's
  check.compare("linear bfloat16 tiles", shape, out, expected, [&](Context& ctx) {
    Packed packed(ctx, ops::Format::kBf16, w(ctx), 0);
    ops::linear(ctx, packed.rows_of(ctx, x(ctx)), packed.matrix, {}, out(ctx));
  });
  for (const auto& [format, name] : {std::pair(ops::Format::kInt8, "linear int8"),
                                     std::pair(ops::Format::kInt4, "linear int4")}) {
    // Quantised products have the same bits on every instruction set
    // (kernels/cpu/gemm/quant_layout.h).
    const Context host{};
    const auto model = ops::testing::ModelMatrix::quantised(format, w(host), 32);
    Expected exact;
    for (std::int64_t t = 0; t < kRows; ++t) {
      const ops::testing::ModelRow row(x(host).ptr<float>() + t * columns, columns, 32);
      for (std::int64_t r = 0; r < n; ++r) exact.add(model.product(row, r), 0);
    }
    check.compare(name, shape, out, exact, [&, kind = format](Context& ctx) {
      Packed packed(ctx, kind, w(ctx), 32);
      ops::linear(ctx, packed.rows_of(ctx, x(ctx)), packed.matrix, {}, out(ctx));
    });
  }
  check_blocks(check, x, out, n, columns, shape);
}

void check_products(KernelCheck& check, const ModelConfig& config) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t heads =
      config.mla ? config.mla->kv_lora_rank : std::int64_t{config.num_heads} * config.head_dim;
  check_product(check, heads, hidden);
  if (config.intermediate_size > 0) {
    check_product(check, config.intermediate_size, hidden);
    check_product(check, hidden, config.intermediate_size);
  }
}

void check_router(KernelCheck& check, const ModelConfig& config) {
  if (!config.moe) return;
  const ops::RouterParams params = router_params(*config.moe);
  if (params.method == TopkMethod::kSparseMixer || params.n_group > 1)
    return;  // their choice is not the plain one
  const std::int64_t experts = config.moe->num_experts, k = params.top_k;
  const bool biased = params.method == TopkMethod::kNoauxTc;
  Sample logits(check, DType::kF32, {kRows, experts}), bias(check, DType::kF32, {experts});
  Sample weights(check, DType::kF32, {kRows, k}), ids(check, DType::kI32, {kRows, k});
  // Logits that lie well apart, in an order of their own for each row.
  logits.set([&](std::int64_t i) {
    const std::int64_t t = i / experts, e = i % experts;
    return 6.0 * static_cast<double>((e * 7919 + t * 104729) % experts) /
               static_cast<double>(experts) -
           3.0;
  });
  bias.set([](std::int64_t) { return 0.0; });
  Expected chosen, weighed;
  for (std::int64_t t = 0; t < kRows; ++t) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    const auto logit = [&](std::int64_t e) { return logits.at(t * experts + e); };
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return logit(a) > logit(b); });
    order.resize(static_cast<std::size_t>(k));
    std::sort(order.begin(), order.end());
    double all = 0, sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) all += std::exp(logit(e));
    const auto score = [&](std::int64_t e) {
      return params.scoring == RouterScoring::kSigmoid ? 1 / (1 + std::exp(-logit(e)))
                                                       : std::exp(logit(e)) / all;
    };
    for (const std::int64_t e : order) sum += score(e);
    if (params.renormalise)
      sum = std::max<double>(sum + params.renormalise_eps, params.renormalise_min);
    for (const std::int64_t e : order) {
      const double want = score(e) / (params.renormalise ? sum : 1) * params.scaling;
      chosen.add(static_cast<double>(e), 0);
      weighed.add(want, want * (sum_error(experts) + 48 * kFloatUnit));
    }
  }
  const auto run = [&](Context& ctx) {
    ops::route(ctx, logits(ctx), biased ? bias(ctx) : Tensor{}, params, weights(ctx), ids(ctx));
  };
  check.compare("route", fmt::format("ids, {} of {}", k, experts), ids, chosen, run);
  check.compare("route", fmt::format("weights, {} of {}", k, experts), weights, weighed, run);
}

void check_experts(KernelCheck& check, const ModelConfig& config) {
  if (!config.moe || config.moe->swiglu_limit > 0 || config.moe->weigh_input) return;
  constexpr std::int64_t kExperts = 4, kTop = 2, kTokens = 2;
  const std::int64_t hidden = config.hidden_size, width = config.moe->moe_intermediate_size;
  Sample x(check, DType::kBF16, {kTokens, hidden}),
      w13(check, DType::kBF16, {kExperts, 2 * width, hidden});
  Sample w2(check, DType::kBF16, {kExperts, hidden, width}),
      out(check, DType::kF32, {kTokens, hidden});
  Sample weights(check, DType::kF32, {kTokens, kTop}), ids(check, DType::kI32, {kTokens, kTop});
  x.fill(21);
  w13.fill(22, 2 / std::sqrt(static_cast<double>(hidden)));
  w2.fill(23, 2 / std::sqrt(static_cast<double>(width)));
  weights.fill(24);
  ids.set([](std::int64_t i) { return std::array{0, 2, 1, 2}[static_cast<std::size_t>(i)]; });
  std::vector<double> sums(static_cast<std::size_t>(kTokens * hidden)), errors(sums.size());
  for (std::int64_t pair = 0; pair < kTokens * kTop; ++pair) {
    const std::int64_t t = pair / kTop, e = static_cast<std::int64_t>(ids.at(pair));
    std::vector<double> inner, inner_error;
    const auto dot = [&](std::int64_t row, double& size) {
      double sum = 0;
      for (std::int64_t k = 0; k < hidden; ++k) {
        const double term = x.at(t * hidden + k) * w13.at((e * 2 * width + row) * hidden + k);
        sum += term;
        size += std::abs(term);
      }
      return sum;
    };
    for (std::int64_t i = 0; i < width; ++i) {
      double gate_size = 0, up_size = 0;
      const double gate = dot(i, gate_size), up = dot(width + i, up_size), value = silu(gate) * up;
      inner.push_back(value);
      // The slope of SiLU is below 1.1; then the exponential's units and the rounding to bfloat16.
      inner_error.push_back(sum_error(hidden) *
                                (1.1 * gate_size * std::abs(up) + std::abs(silu(gate)) * up_size) +
                            std::abs(value) * (48 * kFloatUnit + kBf16Unit));
    }
    for (std::int64_t r = 0; r < hidden; ++r) {
      double sum = 0, size = 0, error = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        const double w = w2.at((e * hidden + r) * width + i);
        sum += w * inner[static_cast<std::size_t>(i)];
        size += std::abs(w * inner[static_cast<std::size_t>(i)]);
        error += std::abs(w) * inner_error[static_cast<std::size_t>(i)];
      }
      const auto at = static_cast<std::size_t>(t * hidden + r);
      sums[at] += weights.at(pair) * sum;
      errors[at] +=
          std::abs(weights.at(pair)) * (error + (sum_error(width) + 4 * kFloatUnit) * size);
    }
  }
  Expected expected{std::move(sums), std::move(errors)};
  const auto run = [&](Context& ctx, const Tensor& rows, const ops::Weight& a, const ops::Weight& b,
                       ops::PreparedRows form) {
    const ops::MoeWorkspace workspace =
        ops::take_moe_workspace(*ctx.arena, kTokens, kTop, kExperts, hidden, width, form);
    ops::fused_experts(ctx, rows, a, b, weights(ctx), ids(ctx), Activation::kSilu, workspace,
                       out(ctx));
  };
  const std::string shape = fmt::format("{} x {}", hidden, width);
  check.compare("fused_experts", shape, out, expected,
                [&](Context& ctx) { run(ctx, x(ctx), w13(ctx), w2(ctx), {DType::kBF16, width}); });
  if (check.on_gpu()) return;
  check.compare("fused_experts tiles", shape, out, expected, [&](Context& ctx) {
    Packed a(ctx, ops::Format::kBf16, w13(ctx), 0), b(ctx, ops::Format::kBf16, w2(ctx), 0);
    run(ctx, x(ctx), a.matrix, b.matrix, ops::prepared_shape(ctx, b.matrix, kTokens));
  });
}

}  // namespace

const std::vector<KernelFamily>& kernel_families() {
  static const std::vector<KernelFamily> families = {{"norms", check_norms},
                                                     {"rotation", check_rotation},
                                                     {"gates", check_gates},
                                                     {"products", check_products},
                                                     {"stored products", check_stored_products},
                                                     {"attention", check_attention_kernels},
                                                     {"latents", check_latent_kernels},
                                                     {"indexer", check_indexer},
                                                     {"recurrent", check_recurrent_kernels},
                                                     {"router", check_router},
                                                     {"experts", check_experts},
                                                     {"stored experts", check_stored_experts},
                                                     {"masks", check_masks}};
  return families;
}

ModelConfig usual_shapes() {
  ModelConfig config;
  config.hidden_size = 2048;
  config.num_layers = 1;
  config.num_heads = 16;
  config.num_kv_heads = 4;
  config.head_dim = 128;
  config.intermediate_size = 5632;
  config.rope.rotary_dim = 128;
  config.layers.resize(1);
  return config;
}

}  // namespace sluice
