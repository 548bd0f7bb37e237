// Weights in fragments on AMX, over a model of its tiles (kernels/cpu/isa/amx_model.h), on any
// processor with AVX-512 BF16 and VBMI.
#include "kernels/cpu/fragments/amx_blocks.h"
#include "kernels/cpu/fragments/fragment_rows.h"
#include "kernels/cpu/isa/isa_prelude.h"
#include "ops/testing/coded_fragments.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vbmi,fma,f16c")

#include "kernels/cpu/isa/amx_model.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/fragments/fragment_rows_impl.h"

#include "kernels/cpu/fragments/bf16_fragments.h"

#include "kernels/cpu/fragments/fragment_rows_amx_impl.h"

#pragma GCC pop_options

namespace sluice::ops {
namespace {

using coded::Coded, coded::kForms, coded::kRows;

constexpr cpu::FragmentRows kModel = {.input = DType::kBF16,
                                      .to_tiles = cpu::rows_to_tiles,
                                      .scratch_bytes = nullptr,
                                      .multiply = cpu::multiply_fragments_on_amx};

class AmxFragments : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::has_bf16_fragment_rows(detect_cpu_isa()))
      GTEST_SKIP() << "this processor has no AVX-512 BF16 or no VBMI";
  }
  void TearDown() override { EXPECT_EQ(cpu::amx_faults, 0); }
  void multiply(const Tensor& x, const Weight& w, const Tensor& bias, const Tensor& out) {
    cpu::linear_fragment_rows(machine_.ctx, kModel, x, w, bias, out);
  }
  Machine machine_{detect_cpu_isa(), 2};
};

TEST(AmxFragmentsChoice, IsOfTheTypeOfXAndTheFormat) {
  if (!cpu::has_bf16_fragment_rows(CpuIsa::kAmx)) GTEST_SKIP() << "this processor has no VBMI";
  const auto is_amx = [](CpuIsa isa, DType x, Format format) {
    return cpu::fragment_rows(isa, x, format).to_tiles != nullptr;
  };
  EXPECT_TRUE(is_amx(CpuIsa::kAmx, DType::kBF16, Format::kFp8));
  EXPECT_TRUE(is_amx(CpuIsa::kAmx, DType::kBF16, Format::kInt4Zero));
  EXPECT_FALSE(is_amx(CpuIsa::kAmx, DType::kBF16, Format::kNvFp4));
  EXPECT_FALSE(is_amx(CpuIsa::kAmx, DType::kF32, Format::kFp8));
  EXPECT_FALSE(is_amx(CpuIsa::kAvx512Bf16, DType::kBF16, Format::kFp8));
}

TEST_F(AmxFragments, EachCodeIsItsNumber) {
  for (const auto& [format, group, scale] : kForms) {
    if (format == Format::kNvFp4) continue;  // AMX does not take it
    for (const std::int64_t columns : {136, 256}) {
      const Coded matrix(format, group, scale, columns);
      Owned x(DType::kBF16, {columns, columns}), out(DType::kF32, {columns, kRows}, 3),
          one(DType::kF32, {1, kRows});
      for (std::int64_t m = 0; m < columns; ++m)
        for (std::int64_t k = 0; k < columns; ++k) put(x, {m, k}, m == k ? 1 : 0);
      multiply(x, matrix.w, {}, out);
      EXPECT_TRUE(gaps_untouched(out));
      for (std::int64_t m = 0; m < columns; ++m) {
        multiply(x.view.rows(m, 1), matrix.w, {}, one);
        for (std::int64_t n = 0; n < kRows; ++n) {
          SCOPED_TRACE(::testing::Message() << "format " << static_cast<int>(format)
                                            << " in groups of " << group << ", " << m << ", " << n);
          ASSERT_EQ(get(out, {m, n}), matrix.number(n, m));
          ASSERT_EQ(get(one, {0, n}), matrix.number(n, m));
        }
      }
    }
  }
}

// Rows of x, rows of w and columns.
struct Shape {
  std::int64_t m, n, k;
};
// Blocks of rows and what is left of them, one tile, odd ones, more than four pairs, one unit, odd
// numbers of units.
constexpr Shape kShapes[] = {{18, 16, 128}, {49, 40, 264}, {33, 300, 128}, {20, 90, 640}};
constexpr Shape kManyRows = {530, 24, 200}, kOneMoreRow = {513, 24, 136};

TEST_F(AmxFragments, BitsDoNotDependOnOtherRows) {
  const auto check = [&](const coded::Form& form, const Shape& shape) {
    const auto& [rows, n, k] = shape;
    SCOPED_TRACE(::testing::Message()
                 << "format " << static_cast<int>(form.format) << ", groups of " << form.group
                 << ", " << rows << " x " << n << " x " << k);
    Coded matrix(form.format, form.group, form.scale, k, 5, n);
    std::vector<std::int32_t> order;  // of columns
    for (std::int32_t i = 0; i < k; ++i)
      order.push_back((i * 7 + 3) % static_cast<std::int32_t>(k));
    if (form.format == Format::kInt4Zero && k % 7 != 0)
      matrix.w.order = Tensor::dense(order.data(), DType::kI32, {k});
    Owned x(DType::kBF16, {rows, k}), bias(DType::kBF16, {n}), whole(DType::kF32, {rows, n}),
        wanted(DType::kF32, {rows, n}), some(DType::kF32, {33, n});
    fill(x, 9);
    fill(bias, 8);
    put(x, {1, k / 2}, INFINITY);
    put(x, {5, k - 1}, NAN);
    for (std::int64_t i = 0; i < k; ++i) put(x, {2, i}, 0);
    multiply(x, matrix.w, bias, whole);
    for (const std::int64_t count : {1, 2, 15, 16, 17, 33})
      for (const std::int64_t m : {std::int64_t{0}, rows - count}) {
        if (count > rows) continue;
        multiply(x.view.rows(m, count), matrix.w, bias, some.view.rows(0, count));
        for (std::int64_t i = 0; i < count; ++i)
          ASSERT_EQ(std::memcmp(&some.data<float>()[i * n], &whole.data<float>()[(m + i) * n],
                                static_cast<std::size_t>(n) * 4),
                    0)
              << count << " rows, " << m + i;
      }
    // The sums are those of vdpbf16ps in another order.
    cpu::linear_fragment_rows(machine_.ctx, cpu::bf16_fragment_rows(), x, matrix.w, bias, wanted);
    for (std::int64_t m = 0; m < rows; ++m) {
      double magnitude = 0;  // of the largest output
      for (std::int64_t i = 0; i < n && m != 1 && m != 5; ++i) {
        double sum = std::abs(get(bias, {i}));
        for (std::int64_t c = 0; c < k; ++c) sum += std::abs(get(x, {m, c})) * 1e-9;
        magnitude = std::max({magnitude, sum, std::abs(get(wanted, {m, i}))});
      }
      for (std::int64_t i = 0; i < n; ++i)
        if (m == 1 || m == 5)
          ASSERT_FALSE(std::isfinite(get(whole, {m, i})) != std::isfinite(get(wanted, {m, i})));
        else
          ASSERT_NEAR(get(whole, {m, i}), get(wanted, {m, i}), 1e-5 * magnitude);
    }
  };
  for (const coded::Form& form : kForms) {
    if (form.format == Format::kNvFp4) continue;
    for (const Shape& shape : kShapes) check(form, shape);
    if (form.format == Format::kFp8) check(form, kManyRows);
    if (form.format == Format::kMxFp4) check(form, kOneMoreRow);
  }
}

}  // namespace
}  // namespace sluice::ops
