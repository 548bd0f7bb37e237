// Products, embeddings and experts with weights in the forms of quantised checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "cli/doctor/kernel_cases.h"
#include "kernels/types/fp4.h"
#include "kernels/types/fp8.h"
#include "kernels/types/int_fragments.h"
#include "kernels/types/super_block_model.h"
#include "layers/weights/block_fragments.h"
#include "layers/weights/fragments.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "ops/moe.h"
#include "ops/packing.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

using ops::Format;

constexpr std::int64_t kRows = 3, kMaxRows = 1024;
// Tensor cores add the products of e4m3 with at least 13 bits below the largest of a step.
constexpr double kFp8Accumulators = 0x1p-12;

struct Stored {
  Format format;
  std::int64_t group;
  std::string_view name;
  float d = 0;  // of blocks, about

  bool is_blocks() const { return ops::block_unit(format).exists(); }
};
constexpr Stored kStored[] = {
    {Format::kFp8, 128, "FP8"},           {Format::kInt8, 32, "int8 groups"},
    {Format::kInt4, 32, "int4 groups"},   {Format::kInt4Zero, 128, "int4 with zeros"},
    {Format::kMxFp4, 32, "MXFP4 groups"}, {Format::kNvFp4, 16, "NVFP4 groups"}};
// Gate and up, and `down` of experts as GGUF files have them. The first pair has super-blocks.
constexpr Stored kExpertBlocks[][2] = {
    {{ops::kQ4K, 32, "Q4_K", 4e-4F}, {ops::kQ6K, 32, "Q6_K", 1e-4F}},
    {{ops::kIQ4NL, 32, "IQ4_NL", 4e-3F}, {ops::kQ50, 32, "Q5_0", 2e-2F}}};

// Random matrices in fragments on the device of `check`, and their numbers.
class FragmentStack {
 public:
  FragmentStack(const KernelCheck& check, const Stored& form, std::int64_t count, std::int64_t rows,
                std::int64_t columns, unsigned seed)
      : random_(seed) {
    weight_.format = form.format;
    weight_.layout = ops::Layout::kFragments;
    weight_.group = form.group;
    weight_.input = DType::kBF16;
    weight_.count = count;
    weight_.rows = rows;
    weight_.columns = columns;
    memory_ = Buffer(count * fragment_bytes(weight_), check.device());
    weight_.data = memory_.tensor(DType::kU8, {count, fragment_bytes(weight_)});
    for (std::int64_t i = 0; i < count; ++i) form.is_blocks() ? put_blocks(i, form.d) : put(i);
  }
  const ops::Weight& weight() const { return weight_; }
  double at(std::int64_t index, std::int64_t row, std::int64_t column) const {
    return numbers_[static_cast<std::size_t>((index * weight_.rows + row) * weight_.columns +
                                             column)];
  }

 private:
  void put(std::int64_t index) {
    const std::int64_t rows = weight_.rows, columns = weight_.columns, group = weight_.group;
    QuantCodes codes = empty_codes(weight_, rows);
    const bool is_nvfp4 = weight_.format == Format::kNvFp4;
    if (is_nvfp4) codes.factor = 0x1.8p-13F;
    for (std::int64_t g = 0; g < (columns + group - 1) / group; ++g)
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto at = static_cast<std::size_t>(g * rows + r);
        // Powers of two, which every type of scales holds.
        codes.scales[at] = std::ldexp(1.0F, -6 - static_cast<int>((r + g) % 3));
        if (is_nvfp4)
          codes.scales[at] = ops::e4m3_values()[static_cast<std::size_t>((5 * r + 3 * g) % 127)];
        if (weight_.format == Format::kInt4Zero)
          codes.zeros[at] = static_cast<std::uint8_t>((r + 3 * g) % 16);
      }
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::uint8_t code = random_code();
        const auto of_group = static_cast<std::size_t>(c / group * rows + r);
        codes.codes[static_cast<std::size_t>(r * columns + c)] = code;
        numbers_.push_back(value_of(code, codes.zeros[of_group]) * codes.scales[of_group] *
                           codes.factor);
      }
    put_fragment_rows(weight_, index, 0, rows,
                      [&](std::int64_t row) { return CodeRow{&codes, row, rows}; }, {});
  }
  void put_blocks(std::int64_t index, float d) {
    const auto model = ops::testing::SuperBlockMatrix::random(
        weight_.format, weight_.rows, weight_.columns, static_cast<unsigned>(random_()), d);
    for (std::int64_t r = 0; r < weight_.rows; ++r)
      for (std::int64_t c = 0; c < weight_.columns; ++c) numbers_.push_back(model.value(r, c));
    put_block_rows(weight_, index, 0, weight_.rows, 0,
                   [&](std::int64_t row) { return model.bytes.data() + row * model.row_bytes(); });
  }
  std::uint8_t random_code() {
    const auto bits = static_cast<std::uint8_t>(random_() >> 8);
    if (weight_.format == Format::kInt8) return bits;
    // e4m3 below 16, of both signs.
    return weight_.format == Format::kFp8 ? bits % 0x58 | (bits & 0x80) : bits % 16;
  }
  double value_of(std::uint8_t code, std::uint8_t zero) const {
    static const std::array<float, 256> e4m3 = ops::e4m3_values();
    if (weight_.format == Format::kFp8) return e4m3[code];
    if (weight_.format == Format::kMxFp4 || weight_.format == Format::kNvFp4)
      return ops::kE2M1[code];
    return static_cast<double>(code) - zero;
  }

  std::mt19937 random_;
  ops::Weight weight_;
  Buffer memory_;
  std::vector<double> numbers_;
};

// Rows of a table in fragments, rounded to bfloat16. number(row, column); slack(row, column): what
// the number may be off before it is rounded.
void check_table(KernelCheck& check, std::string_view name, const ops::Weight& w,
                 const std::function<double(std::int64_t, std::int64_t)>& number,
                 const std::function<double(std::int64_t, std::int64_t)>& slack) {
  Sample ids(check, DType::kI32, {kRows}), out(check, DType::kF32, {kRows, w.columns});
  const std::array<std::int64_t, kRows> rows = {w.rows - 1, 0, w.rows / 2};
  ids.set([&](std::int64_t i) { return static_cast<double>(rows[static_cast<std::size_t>(i)]); });
  Expected expected;
  for (const std::int64_t row : rows)
    for (std::int64_t k = 0; k < w.columns; ++k)
      expected.add(number(row, k), 1.01 * kBf16Unit * std::abs(number(row, k)) + slack(row, k));
  check.compare(fmt::format("embedding {}", name), fmt::format("{} x {}", w.rows, w.columns), out,
                expected, [&](Context& ctx) { ops::embedding(ctx, ids(ctx), w, out(ctx)); });
}

void check_product(KernelCheck& check, const Stored& form, std::int64_t n, std::int64_t columns) {
  const FragmentStack w(check, form, 1, n, columns, 61);
  Sample x(check, DType::kBF16, {kRows, columns}), out(check, DType::kF32, {kRows, n});
  x.fill(62);
  Expected expected;
  for (std::int64_t t = 0; t < kRows; ++t)
    for (std::int64_t r = 0; r < n; ++r) {
      double sum = 0, size = 0;
      for (std::int64_t k = 0; k < columns; ++k) {
        const double term = x.at(t * columns + k) * w.at(0, r, k);
        sum += term;
        size += std::abs(term);
      }
      expected.add(sum, (sum_error(columns) + 4 * kFloatUnit) * size);
    }
  check.compare(fmt::format("linear {}", form.name), fmt::format("{} x {}", n, columns), out,
                expected, [&](Context& ctx) {
                  ops::linear(ctx, ops::prepared(ctx, x(ctx), w.weight()), w.weight(), {},
                              out(ctx));
                });
  check_table(
      check, form.name, w.weight(),
      [&](std::int64_t row, std::int64_t column) { return w.at(0, row, column); },
      [](std::int64_t, std::int64_t) { return 0.0; });
}

// Super-blocks of GGUF files in fragments. Weights may be rounded to bfloat16.
void check_super_blocks(KernelCheck& check, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kMaxBlockRows = 256;
  const std::int64_t n = std::min(rows, kMaxBlockRows);
  Sample x(check, DType::kBF16, {kRows, columns});
  x.fill(68);
  for (const auto& [format, name] : ops::testing::kBlockKinds) {
    if (!ops::block_unit(format).exists() || columns % ops::super_columns(format) != 0) continue;
    auto model = ops::testing::SuperBlockMatrix::random(format, n, columns, 69);
    std::vector<double> sums(static_cast<std::size_t>(kRows * n)), sizes(sums.size());
    for (std::int64_t r = 0; r < n; ++r)
      for (std::int64_t k = 0; k < columns; ++k) {
        const double value = model.value(r, k);
        for (std::int64_t t = 0; t < kRows; ++t) {
          const double term = x.at(t * columns + k) * value;
          sums[static_cast<std::size_t>(t * n + r)] += term;
          sizes[static_cast<std::size_t>(t * n + r)] += std::abs(term);
        }
      }
    ops::Weight w;
    w.format = format, w.layout = ops::Layout::kFragments, w.group = 32;
    w.input = DType::kBF16, w.rows = n, w.columns = columns;
    const Buffer memory(fragment_bytes(w), check.device());
    w.data = memory.tensor(DType::kU8, {1, fragment_bytes(w)});
    put_block_rows(w, 0, 0, 0,
                   Tensor::dense(model.bytes.data(), DType::kU8, {n, model.row_bytes()}));
    check_table(
        check, fmt::format("{} fragments", name), w,
        [&](std::int64_t row, std::int64_t k) { return model.value(row, k); },
        [&](std::int64_t row, std::int64_t k) {
          return 0x1p-16 * std::abs(model.d(row, k)) * std::abs(model.scale(row, k));
        });
    // One row has a kernel of its own.
    for (const std::int64_t m : {std::int64_t{1}, kRows}) {
      Sample out(check, DType::kF32, {m, n});
      Expected expected;
      for (std::size_t i = 0; i < static_cast<std::size_t>(m * n); ++i)
        expected.add(sums[i], (sum_error(columns) + 1.01 * kBf16Unit) * sizes[i]);
      check.compare(fmt::format("linear {} fragments", name),
                    fmt::format("{} x {} x {}", m, n, columns), out, expected,
                    [&](Context& ctx) { ops::linear(ctx, x(ctx).rows(0, m), w, {}, out(ctx)); });
    }
  }
}

// The e4m3 next to a random number. Tensor cores drop bits of small products beside large ones, so
// most products of a step are of one size.
std::uint8_t uniform_e4m3(std::mt19937& random) {
  return ops::to_e4m3(std::uniform_real_distribution<float>(-448, 448)(random));
}

// e4m3 in rows, by which rows of e4m3 are multiplied. Each group of x has a 448, so its scale is 1.
void check_fp8_rows(KernelCheck& check, std::int64_t n, std::int64_t columns) {
  if (columns % 16 != 0) return;
  const std::array<float, 256> values = ops::e4m3_values();
  const Buffer memory(n * columns, check.device());
  const Tensor data = memory.tensor(DType::kF8E4M3, {n, columns});
  std::mt19937 random(63);
  HostImage image(data);
  const auto* bytes = static_cast<const std::uint8_t*>(image.tensor().data);
  for (std::int64_t i = 0; i < n * columns; ++i)
    static_cast<std::uint8_t*>(image.tensor().data)[i] = uniform_e4m3(random);
  image.put();
  Sample x(check, DType::kF32, {kRows, columns}), out(check, DType::kF32, {kRows, n});
  x.set([&](std::int64_t i) {
    if (i % columns % ops::kFp8Group == 0) return 448.0;
    return static_cast<double>(values[uniform_e4m3(random)]);
  });
  for (const std::int64_t group : {std::int64_t{0}, ops::kFp8Group}) {
    const std::int64_t groups = ops::fp8_groups(columns, group), stride = ops::fp8_scale_stride(n);
    Sample row_scales(check, DType::kF32, {n}), block_scales(check, DType::kF32, {groups, stride});
    Sample& scales = group == 0 ? row_scales : block_scales;
    scales.set([](std::int64_t i) { return std::ldexp(1.0, -16 - static_cast<int>(i % 3)); });
    Expected expected;
    for (std::int64_t t = 0; t < kRows; ++t)
      for (std::int64_t r = 0; r < n; ++r) {
        double sum = 0, size = 0;
        for (std::int64_t k = 0; k < columns; ++k) {
          const std::int64_t scale = group == 0 ? r : k / group * stride + r / ops::kFp8ScaleRows;
          const double term =
              x.at(t * columns + k) * values[bytes[r * columns + k]] * scales.at(scale);
          sum += term;
          size += std::abs(term);
        }
        expected.add(sum, (sum_error(columns) + kFp8Accumulators) * size);
      }
    check.compare("linear FP8 rows",
                  fmt::format("{} x {}, groups of {}", n, columns, group == 0 ? columns : group),
                  out, expected, [&](Context& ctx) {
                    ops::Weight w = ops::weight_form(ctx, Format::kFp8, DType::kBF16, group);
                    w.data = data;
                    w.scales = scales(ctx);
                    w.rows = n;
                    w.columns = columns;
                    ops::linear(ctx, ops::prepared(ctx, x(ctx), w), w, {}, out(ctx));
                  });
  }
}

// int8 in rows, by which rows of int8 are multiplied. Each row of x has a 127, so its scale is 1.
void check_int8_rows(KernelCheck& check, std::int64_t n, std::int64_t columns) {
  if (columns % 16 != 0) return;
  std::mt19937 random(70);
  const auto code = [&] { return static_cast<double>(random() % 255) - 127; };
  Sample x(check, DType::kBF16, {kRows, columns}), scales(check, DType::kF32, {n});
  x.set([&](std::int64_t i) { return i % columns == 0 ? 127.0 : code(); });
  scales.set([](std::int64_t i) { return std::ldexp(1.0, -16 - static_cast<int>(i % 3)); });
  const Buffer memory(n * columns, check.device());
  const Tensor data = memory.tensor(DType::kI8, {n, columns});
  HostImage image(data);
  auto* const codes = image.tensor().ptr<std::int8_t>();
  for (std::int64_t i = 0; i < n * columns; ++i) codes[i] = static_cast<std::int8_t>(code());
  std::vector<double> sums;
  for (std::int64_t t = 0; t < kRows; ++t)
    for (std::int64_t r = 0; r < n; ++r) {
      double sum = 0;
      for (std::int64_t k = 0; k < columns; ++k)
        sum += x.at(t * columns + k) * codes[r * columns + k];
      sums.push_back(sum * scales.at(r));
    }
  image.put();
  // One row has a kernel of its own.
  for (const std::int64_t m : {std::int64_t{1}, kRows}) {
    Sample out(check, DType::kF32, {m, n});
    Expected expected;
    for (std::size_t i = 0; i < static_cast<std::size_t>(m * n); ++i)
      expected.add(sums[i], 2 * kFloatUnit * std::abs(sums[i]));
    check.compare("linear int8 rows", fmt::format("{} x {} x {}", m, n, columns), out, expected,
                  [&](Context& ctx) {
                    ops::Weight w = ops::weight_form(ctx, Format::kInt8, DType::kBF16, 0);
                    w.data = data;
                    w.scales = scales(ctx);
                    w.rows = n;
                    w.columns = columns;
                    ops::linear(ctx, ops::prepared(ctx, x(ctx).rows(0, m), w), w, {}, out(ctx));
                  });
  }
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}

void check_experts(KernelCheck& check, const Stored& up_form, const Stored& down_form,
                   std::int64_t hidden, std::int64_t width) {
  constexpr std::int64_t kExperts = 4, kTop = 2, kTokens = 2;
  const FragmentStack w13(check, up_form, kExperts, 2 * width, hidden, 64),
      w2(check, down_form, kExperts, hidden, width, 65);
  // Weights of blocks may be rounded to bfloat16.
  const auto rounding = [](const Stored& form) { return form.is_blocks() ? 1.01 * kBf16Unit : 0; };
  Sample x(check, DType::kBF16, {kTokens, hidden}), weights(check, DType::kF32, {kTokens, kTop});
  Sample ids(check, DType::kI32, {kTokens, kTop}), out(check, DType::kF32, {kTokens, hidden});
  x.fill(66, 0.05);
  weights.fill(67);
  ids.set([](std::int64_t i) { return std::array{0, 2, 1, 2}[static_cast<std::size_t>(i)]; });
  std::vector<double> sums(static_cast<std::size_t>(kTokens * hidden)), errors(sums.size());
  for (std::int64_t pair = 0; pair < kTokens * kTop; ++pair) {
    const std::int64_t t = pair / kTop, e = static_cast<std::int64_t>(ids.at(pair));
    std::vector<double> inner, inner_error;
    const auto dot = [&](std::int64_t row, double& size) {
      double sum = 0;
      for (std::int64_t k = 0; k < hidden; ++k) {
        const double term = x.at(t * hidden + k) * w13.at(e, row, k);
        sum += term;
        size += std::abs(term);
      }
      return sum;
    };
    for (std::int64_t i = 0; i < width; ++i) {
      double gate_size = 0, up_size = 0;
      const double gate = dot(ops::gate_row_of_fragments(i), gate_size),
                   up = dot(ops::up_row_of_fragments(i), up_size), value = silu(gate) * up;
      inner.push_back(value);
      inner_error.push_back((sum_error(hidden) + 4 * kFloatUnit + rounding(up_form)) *
                                (1.1 * gate_size * std::abs(up) + std::abs(silu(gate)) * up_size) +
                            std::abs(value) * (48 * kFloatUnit + kBf16Unit) + 1e-30);
    }
    for (std::int64_t r = 0; r < hidden; ++r) {
      double sum = 0, size = 0, error = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        const double term = w2.at(e, r, i) * inner[static_cast<std::size_t>(i)];
        sum += term;
        size += std::abs(term);
        error += std::abs(w2.at(e, r, i)) * inner_error[static_cast<std::size_t>(i)];
      }
      const auto at = static_cast<std::size_t>(t * hidden + r);
      sums[at] += weights.at(pair) * sum;
      errors[at] += std::abs(weights.at(pair)) *
                    (error + (sum_error(width) + 8 * kFloatUnit + rounding(down_form)) * size);
    }
  }
  const std::string name = up_form.name == down_form.name
                               ? std::string(up_form.name)
                               : fmt::format("{} and {}", up_form.name, down_form.name);
  check.compare(fmt::format("fused_experts {}", name), fmt::format("{} x {}", hidden, width), out,
                Expected{std::move(sums), std::move(errors)}, [&](Context& ctx) {
                  const ops::MoeWorkspace workspace =
                      ops::take_moe_workspace(*ctx.arena, kTokens, kTop, kExperts, hidden, width,
                                              ops::prepared_shape(ctx, w2.weight(), kTokens));
                  ops::fused_experts(ctx, x(ctx), w13.weight(), w2.weight(), weights(ctx), ids(ctx),
                                     Activation::kSilu, workspace, out(ctx));
                });
}

}  // namespace

void check_stored_products(KernelCheck& check, const ModelConfig& config) {
  if (!ops::multiplies_experts_in_fragments(check.context())) return;
  const std::int64_t columns = config.hidden_size,
                     n = std::min<std::int64_t>(
                         std::max(config.intermediate_size, config.hidden_size), kMaxRows);
  check_fp8_rows(check, n, columns);
  check_int8_rows(check, n, columns);
  check_super_blocks(check, n, columns);
  for (const Stored& form : kStored)
    // A GPU keeps e4m3 of linear layers in rows.
    if (columns % 8 == 0 && !(check.on_gpu() && form.format == Format::kFp8))
      check_product(check, form, n, columns);
}

void check_stored_experts(KernelCheck& check, const ModelConfig& config) {
  if (!config.moe || !ops::multiplies_experts_in_fragments(check.context())) return;
  // Wide experts are alike.
  const std::int64_t width = std::min<std::int64_t>(config.moe->moe_intermediate_size, 512);
  if (width % 8 != 0 || config.hidden_size % 8 != 0) return;
  for (const Stored& form : kStored) check_experts(check, form, form, config.hidden_size, width);
  for (const auto& [up, down] : kExpertBlocks)
    if (config.hidden_size % ops::super_columns(up.format) == 0 &&
        width % ops::super_columns(down.format) == 0)
      check_experts(check, up, down, config.hidden_size, width);
}

}  // namespace sluice
