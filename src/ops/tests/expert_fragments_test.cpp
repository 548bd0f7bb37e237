// Expert MLPs with weights in fragments on a CPU against their definition.
#include <cmath>
#include <cstring>

#include "kernels/types/fp4.h"
#include "kernels/types/int_fragments.h"
#include "ops/gemm.h"
#include "ops/moe.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

// A stack of random numbers of e4m3, MXFP4 or NVFP4, and their values.
struct Stack {
  Weight w;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [count, rows, columns]

  Stack(Format format, std::int64_t count, std::int64_t rows, std::int64_t columns, unsigned seed) {
    w.format = format, w.layout = Layout::kFragments;
    w.group = format == Format::kFp8     ? kFragmentColumns
              : format == Format::kMxFp4 ? kMxGroup
                                         : kNvGroup;
    w.input = DType::kBF16, w.count = count, w.rows = rows, w.columns = columns;
    bytes.resize(static_cast<std::size_t>(count * fragment_bytes(w)));
    w.data = Tensor::dense(bytes.data(), DType::kU8, {count, fragment_bytes(w)});
    values.resize(static_cast<std::size_t>(count * rows * columns));
    const FragmentUnit unit = fragment_unit(w);
    const std::array<float, 256> widened = e4m3_values();
    std::mt19937 random(seed);
    auto* const all = reinterpret_cast<std::uint8_t*>(bytes.data());
    for (std::int64_t e = 0; e < count; ++e)
      for (std::int64_t n = 0; n < rows; ++n)
        for (std::int64_t k = 0; k < columns; ++k) {
          std::uint8_t* const to = all + e * fragment_bytes(w) +
                                   (n / 16 * fragment_units(columns) + k / 128) * unit.bytes();
          const int row = static_cast<int>(n % 16), column = static_cast<int>(k % 128);
          const auto [byte, shift] = unit.code_at(row, column);
          float& value = values[static_cast<std::size_t>((e * rows + n) * columns + k)];
          if (format == Format::kMxFp4) {
            const auto code = static_cast<std::uint8_t>(random() % 16);
            // Also the smallest scale, of a group of small numbers.
            const int scale = n == 3 && k < 32 ? 0 : 120 + static_cast<int>((n + k / 32 * 3) % 5);
            to[byte] = static_cast<std::uint8_t>(to[byte] | code << shift);
            to[unit.scale_at(column / 32, row)] = static_cast<std::uint8_t>(scale);
            value = kE2M1[code] * mx_scale(scale);
            continue;
          }
          if (format == Format::kNvFp4) {
            const auto code = static_cast<std::uint8_t>(random() % 16);
            // Also the smallest scale, none, and the largest one.
            const auto scale =
                static_cast<std::uint8_t>(n == 3 && k < 48 ? (k < 16   ? 1
                                                              : k < 32 ? 0
                                                                       : 0x7E)
                                                           : 64 + (n + k / 16 * 3) % 5);
            const float factor = 0.003f * static_cast<float>(1 + n / kFactorRows % 3);
            to[byte] = static_cast<std::uint8_t>(to[byte] | code << shift);
            to[unit.scale_at(column / 16, row)] = scale;
            std::memcpy(to + unit.factor_at(row), &factor, 4);
            value = kE2M1[code] * (widened[scale] * factor);
            continue;
          }
          const auto code = static_cast<std::uint8_t>(random() % 0x7F | (random() % 2) << 7);
          const float scale = 0.001f * static_cast<float>(1 + (n + k / 128 * 3) % 5);
          to[byte] = code;
          std::memcpy(to + unit.scale_at(0, row), &scale, 4);
          value = widened[code] * scale;
        }
  }
  double at(std::int64_t e, std::int64_t n, std::int64_t k) const {
    return values[static_cast<std::size_t>((e * w.rows + n) * w.columns + k)];
  }
};

void expect_definition(Format format, CpuIsa isa) {
  constexpr std::int64_t kTokens = 5, kExperts = 4, kTopK = 2, kHidden = 136, kWidth = 24;
  const Stack w13(format, kExperts, 2 * kWidth, kHidden, 1),
      w2(format, kExperts, kHidden, kWidth, 2);
  Owned x(DType::kBF16, {kTokens, kHidden}, 8), weights(DType::kF32, {kTokens, kTopK}),
      ids(DType::kI32, {kTokens, kTopK}), out(DType::kF32, {kTokens, kHidden}, 4),
      up_bias(DType::kF32, {kExperts, 2 * kWidth}), down_bias(DType::kF32, {kExperts, kHidden});
  fill(x, 3);
  fill(weights, 4);
  fill(up_bias, 5);
  fill(down_bias, 6);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    put(ids, {t, 0}, static_cast<double>(t % 3));
    put(ids, {t, 1}, t == 4 ? -1.0 : 3.0);
  }
  for (const bool biased : {false, true})
    for (const bool interleaved : {false, true}) {
      ExpertParams params(Activation::kSilu);
      if (biased) params.up_bias = up_bias, params.down_bias = down_bias;
      params.interleaved = interleaved;
      Machine machine(isa);
      Arena arena(1 << 20);
      machine.ctx.arena = &arena;
      const MoeWorkspace workspace = take_moe_workspace(arena, kTokens, kTopK, kExperts, kHidden,
                                                        kWidth, {DType::kBF16, kWidth});
      fused_experts(machine.ctx, x, w13.w, w2.w, weights, ids, params, workspace, out);
      EXPECT_TRUE(gaps_untouched(out));
      for (std::int64_t t = 0; t < kTokens; ++t) {
        double wanted[kHidden] = {}, bound[kHidden] = {};
        for (std::int64_t j = 0; j < kTopK; ++j) {
          const auto e = static_cast<std::int64_t>(get(ids, {t, j}));
          if (e < 0) continue;
          double inner[kWidth], error[kWidth];
          for (std::int64_t n = 0; n < kWidth; ++n) {
            double gate = 0, up = 0, size = 0;
            // Tiles have eight gate rows, then the eight up rows of the same columns.
            const std::int64_t row = n / 8 * 16 + n % 8;
            for (std::int64_t k = 0; k < kHidden; ++k) {
              const double value = get(x, {t, k});
              gate += value * w13.at(e, row, k), up += value * w13.at(e, row + 8, k);
              size += std::abs(value * w13.at(e, row, k)) + std::abs(value * w13.at(e, row + 8, k));
            }
            if (biased) {
              gate += get(up_bias, {e, interleaved ? 2 * n : n});
              up += get(up_bias, {e, interleaved ? 2 * n + 1 : kWidth + n});
            }
            inner[n] = gate / (1 + std::exp(-gate)) * up;
            // Sums of 136 terms, the activation, then bfloat16.
            error[n] = (std::abs(gate) + std::abs(up) + 1) * 1.1 * 40 * kEps * size +
                       std::abs(inner[n]) * 0x1.01p-8 + 1e-6;
          }
          for (std::int64_t n = 0; n < kHidden; ++n) {
            double sum = biased ? get(down_bias, {e, n}) : 0, off = 1e-6;
            for (std::int64_t k = 0; k < kWidth; ++k) {
              sum += inner[k] * w2.at(e, n, k);
              off += (error[k] + 40 * kEps * std::abs(inner[k])) * std::abs(w2.at(e, n, k));
            }
            wanted[n] += get(weights, {t, j}) * sum;
            bound[n] += std::abs(get(weights, {t, j})) * off;
          }
        }
        for (std::int64_t n = 0; n < kHidden; ++n)
          EXPECT_NEAR(get(out, {t, n}), wanted[n], bound[n]) << t << ", " << n;
      }
    }
}

// Linear layers with these numbers, against sums in float64 of their exact values. A lane of a
// group has at most 8 terms, and is added to those of at most 8 groups before, and then 16 lanes
// are added: 32 roundings; the scale rounds the value once where it is no power of two.
TEST(ExpertFragments, LinearLayersAreTheDefinition) {
  constexpr std::int64_t kTokens = 5, kRows = 44, kColumns = 264;
  for (const CpuIsa isa : kCpuIsas) {
    if (isa > detect_cpu_isa()) continue;
    Machine machine(isa);
    for (const Format format : {Format::kFp8, Format::kMxFp4, Format::kNvFp4}) {
      const Stack stack(format, 1, kRows, kColumns, 17);
      Owned x(DType::kBF16, {kTokens, kColumns}), out(DType::kF32, {kTokens, kRows}, 8);
      fill(x, 8);
      linear(machine.ctx, x, stack.w, {}, out);
      EXPECT_TRUE(gaps_untouched(out));
      for (std::int64_t t = 0; t < kTokens; ++t)
        for (std::int64_t n = 0; n < kRows; ++n) {
          double sum = 0, magnitude = 0;
          for (std::int64_t k = 0; k < kColumns; ++k) {
            const double term = get(x, {t, k}) * stack.at(0, n, k);
            sum += term;
            magnitude += std::abs(term);
          }
          EXPECT_NEAR(get(out, {t, n}), sum, 33 * kEps * magnitude) << t << ", " << n;
        }
    }
  }
}

TEST(ExpertFragments, AreTheDefinition) {
  for (const Format format : {Format::kFp8, Format::kMxFp4, Format::kNvFp4})
    for (const CpuIsa isa : isas()) {
      SCOPED_TRACE(std::to_string(static_cast<int>(format)) + " on " +
                   std::to_string(static_cast<int>(isa)));
      expect_definition(format, isa);
    }
}

TEST(MxFp4, CodesAreTheNearestNumbers) {
  for (int code = 0; code < 16; ++code)
    EXPECT_EQ(to_e2m1(kE2M1[static_cast<std::size_t>(code)]), code);
  const std::pair<float, float> ties[] = {{0.25f, 0},    {0.75f, 1}, {1.25f, 1}, {1.75f, 2},
                                          {2.5f, 2},     {3.5f, 4},  {5, 4},     {5.01f, 6},
                                          {0.26f, 0.5f}, {7, 6},     {1e9f, 6}};
  for (const auto& [x, wanted] : ties)
    for (const float sign : {1.0f, -1.0f})
      EXPECT_EQ(kE2M1[to_e2m1(sign * x)], sign * wanted) << sign * x;
}

TEST(MxFp4, ScalesArePowersOfTwo) {
  for (int code = 0; code < kMxNan; ++code) EXPECT_EQ(mx_scale_code(mx_scale(code)), code);
  for (const float other : {0.0f, -1.0f, 0.75f, 3.0f, NAN, INFINITY})
    EXPECT_EQ(mx_scale_code(other), -1) << other;
  // Numbers up to the largest are below 8 of the scale, and some are at least 4.
  for (const float largest : {1e-30f, 0.02f, 1.0f, 3.9f, 4.0f, 6.0f, 7.9f, 8.0f, 1e20f}) {
    EXPECT_LT(largest / mx_scale_for(largest), 8) << largest;
    EXPECT_GE(largest / mx_scale_for(largest), 4) << largest;
  }
  EXPECT_EQ(mx_scale_for(0), mx_scale(0));
}

}  // namespace
}  // namespace sluice::ops
