// FP8 on a CPU against its definition: kernels/types/fp8.h.
#include "kernels/types/fp8.h"

#include <cmath>

#include "ops/fused.h"
#include "ops/gemm.h"
#include "ops/packing.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

TEST(Fp8, ValuesAreThoseOfTheFormat) {
  const std::array<float, 256> values = e4m3_values();
  EXPECT_EQ(values[0x00], 0.0f);
  EXPECT_EQ(values[0x01], 0x1p-9f);
  EXPECT_EQ(values[0x08], 0x1p-6f);
  EXPECT_EQ(values[0x38], 1.0f);
  EXPECT_EQ(values[0x39], 1.125f);
  EXPECT_EQ(values[0x7E], 448.0f);
  EXPECT_EQ(values[0xFE], -448.0f);
  EXPECT_TRUE(std::isnan(values[0x7F]) && std::isnan(values[0xFF]));
  for (int i = 0; i < 127; ++i) {
    EXPECT_EQ(to_e4m3(values[static_cast<std::size_t>(i)]), i);
    if (i > 0) {
      EXPECT_EQ(to_e4m3(-values[static_cast<std::size_t>(i)]), i + 128);
    }
  }
}

TEST(Fp8, RoundsToTheNearestTiesToEven) {
  const std::array<float, 256> values = e4m3_values();
  for (int i = 0; i < 126; ++i) {
    const float low = values[static_cast<std::size_t>(i)],
                high = values[static_cast<std::size_t>(i + 1)], middle = (low + high) / 2;
    EXPECT_EQ(to_e4m3(middle), i % 2 == 0 ? i : i + 1) << middle;
    EXPECT_EQ(to_e4m3(std::nextafter(middle, 0.0f)), i) << middle;
    EXPECT_EQ(to_e4m3(std::nextafter(middle, 1000.0f)), i + 1) << middle;
  }
  EXPECT_EQ(to_e4m3(1e9f), 0x7E);
  EXPECT_EQ(to_e4m3(-1e9f), 0xFE);
  EXPECT_EQ(to_e4m3(NAN), 0x7F);
}

TEST(Fp8, ScalesOfGroupsThatNoNumberCanHave) {
  EXPECT_EQ(fp8_scale(0).scale, 0.0f);
  EXPECT_EQ(fp8_scale(0).factor, 0.0f);
  EXPECT_EQ(fp8_scale(1e-40f).scale, 0.0f);
  EXPECT_TRUE(std::isnan(fp8_scale(INFINITY).scale));
  EXPECT_TRUE(std::isnan(fp8_scale(NAN).scale));
  EXPECT_EQ(fp8_scale(448).scale, 1.0f);
}

// A random weight, and its values.
struct Fp8Matrix {
  Owned codes, scales;
  Weight w;

  Fp8Matrix(std::int64_t rows, std::int64_t columns, std::int64_t group)
      : codes(DType::kU8, {rows, columns}, 16),
        scales(DType::kF32,
               {fp8_groups(columns, group), group == 0 ? rows : fp8_scale_stride(rows)}) {
    std::mt19937 random(5);
    for (std::int64_t n = 0; n < rows; ++n)
      for (std::int64_t k = 0; k < columns; ++k) {
        const auto code = static_cast<std::uint8_t>(random() % 255);
        static_cast<std::uint8_t*>(codes.view.data)[n * codes.view.stride[0] + k] =
            (code & 127) == 127 ? 0 : code;
      }
    fill(scales, 6);
    w.format = Format::kFp8;
    w.input = DType::kBF16;
    w.data = codes;
    w.data.dtype = DType::kF8E4M3;
    w.scales = group == 0 ? scales.view.at(0) : scales.view;
    w.rows = rows, w.columns = columns, w.group = group;
  }
  float scale(std::int64_t n, std::int64_t k) const {
    return static_cast<float>(w.group == 0 ? get(scales, {0, n})
                                           : get(scales, {k / w.group, n / kFp8ScaleRows}));
  }
  float code(std::int64_t n, std::int64_t k) const {
    return e4m3_values()[static_cast<std::uint8_t*>(codes.view.data)[n * codes.view.stride[0] + k]];
  }
};

TEST(Fp8, LinearIsTheDefinition) {
  constexpr std::int64_t kRows = 3, kOut = 37, kIn = 272;
  for (const std::int64_t group : {std::int64_t{0}, kFp8Group})
    for (const DType type : {DType::kF32, DType::kBF16}) {
      const Fp8Matrix matrix(kOut, kIn, group);
      Owned x(type, {kRows, kIn}, 8), bias(DType::kF32, {kOut}), out(DType::kF32, {kRows, kOut}, 8);
      fill(x, 1);
      fill(bias, 2);
      Machine machine(CpuIsa::kAvx2);
      linear(machine.ctx, x, matrix.w, bias, out);
      EXPECT_TRUE(gaps_untouched(out));
      const std::int64_t width = group == 0 ? kIn : group;
      for (std::int64_t m = 0; m < kRows; ++m)
        for (std::int64_t n = 0; n < kOut; ++n) {
          double sum = get(bias, {n}), magnitude = std::abs(sum);
          for (std::int64_t begin = 0; begin < kIn; begin += width) {
            const std::int64_t end = std::min(kIn, begin + width);
            float largest = 0;
            for (std::int64_t k = begin; k < end; ++k)
              largest = std::max(largest, std::abs(static_cast<float>(get(x, {m, k}))));
            for (std::int64_t k = begin; k < end; ++k) {
              const float rounded =
                  e4m3_values()[to_e4m3(static_cast<float>(get(x, {m, k})) * (kMaxE4M3 / largest))];
              const double term = static_cast<double>(rounded) * matrix.code(n, k) *
                                  (static_cast<double>(largest) / kMaxE4M3) * matrix.scale(n, k);
              sum += term;
              magnitude += std::abs(term);
            }
          }
          EXPECT_NEAR(get(out, {m, n}), sum, 40 * kEps * magnitude) << m << ", " << n;
        }
    }
}

TEST(Fp8, NotANumberInARowReachesItsOutputsAlone) {
  const Fp8Matrix matrix(16, 256, kFp8Group);
  Owned x(DType::kF32, {2, 256}), out(DType::kF32, {2, 16});
  fill(x, 1);
  put(x, {1, 200}, NAN);
  Machine machine(CpuIsa::kAvx2);
  linear(machine.ctx, x, matrix.w, {}, out);
  for (std::int64_t n = 0; n < 16; ++n) {
    EXPECT_TRUE(std::isfinite(get(out, {0, n})));
    EXPECT_TRUE(std::isnan(get(out, {1, n})));
  }
}

TEST(Fp8, ASliceIsThoseRows) {
  for (const std::int64_t group : {std::int64_t{0}, kFp8Group}) {
    const Fp8Matrix matrix(300, 128, group);
    Owned x(DType::kF32, {2, 128}), out(DType::kF32, {2, 300}), some(DType::kF32, {2, 172});
    fill(x, 1);
    Machine machine(CpuIsa::kAvx2);
    EXPECT_TRUE(matrix.w.begins_at(128));
    EXPECT_FALSE(matrix.w.begins_at(16));
    linear(machine.ctx, x, matrix.w, {}, out);
    linear(machine.ctx, x, matrix.w.slice(128, 172), {}, some);
    for (std::int64_t m = 0; m < 2; ++m)
      for (std::int64_t n = 0; n < 172; ++n) EXPECT_EQ(get(some, {m, n}), get(out, {m, n + 128}));
  }
}

}  // namespace
}  // namespace sluice::ops
