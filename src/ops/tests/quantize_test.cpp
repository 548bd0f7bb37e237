// Quantised weights against a reference in plain loops: the same bits on every instruction set.
#include <cmath>
#include <tuple>

#include "base/error.h"
#include "kernels/types/quantize_model.h"
#include "ops/activation.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "ops/moe.h"
#include "ops/packing.h"
#include "ops/testing/support.h"
#include "tensor/buffer.h"

namespace sluice::ops {
namespace {

using testing::ModelMatrix;

const std::vector<Format> kFormats = {Format::kInt8, Format::kInt4, Format::kInt4Min};

// Memory for a stack of matrices, zeroed as the weight loader does.
struct Packed {
  Packed(const Context& ctx, Format format, std::int64_t rows, std::int64_t columns,
         std::int64_t group, std::int64_t count = 1)
      : w(weight_form(ctx, format, DType::kF32, group)) {
    w.rows = rows;
    w.columns = columns;
    w.count = count;
    memory = Buffer(count * packed_bytes(ctx, w));
    w.data = memory.tensor(DType::kU8, {count, packed_bytes(ctx, w)});
  }
  Weight w;
  Buffer memory;
};

// GGUF blocks that hold `model`, written by the definition of the format.
std::vector<std::byte> blocks_of(const ModelMatrix& model) {
  std::vector<std::byte> out;
  const auto put16 = [&](F16 x) {
    out.push_back(static_cast<std::byte>(x.bits & 255));
    out.push_back(static_cast<std::byte>(x.bits >> 8));
  };
  for (std::size_t g = 0; g < model.scales.size(); ++g) {
    const int* u = model.u.data() + g * 32;
    put16(model.scales[g]);
    if (model.format == Format::kInt4Min) put16(model.minima[g]);
    if (model.format == Format::kInt8)
      for (int i = 0; i < 32; ++i) out.push_back(static_cast<std::byte>(u[i] - 128));
    else
      for (int i = 0; i < 16; ++i) out.push_back(static_cast<std::byte>(u[i] | u[i + 16] << 4));
  }
  return out;
}

// A matrix of random blocks, all -128 and all 127 among them, with scales from subnormal to large.
ModelMatrix random_blocks(Format format, std::int64_t rows, std::int64_t columns, unsigned seed) {
  ModelMatrix model(format, rows, columns, 32);
  std::mt19937 random(seed);
  const int levels = format == Format::kInt8 ? 256 : 16;
  std::uniform_int_distribution<int> level(0, levels - 1), special(0, 9);
  std::uniform_real_distribution<float> scale(-0.02f, 0.02f);
  for (std::size_t g = 0; g < model.scales.size(); ++g) {
    const int what = special(random);
    for (std::size_t i = 0; i < 32; ++i)
      model.u[g * 32 + i] = what == 0 ? 0 : what == 1 ? levels - 1 : level(random);
    model.scales[g] = F16(what == 2   ? 6e-8f
                          : what == 3 ? 40000.0f
                          : what == 4 ? 0.0f
                                      : scale(random));
    model.minima[g] = F16(scale(random) * 8);
  }
  return model;
}

void expect_bits(float got, float want, const std::string& where) {
  if (std::isnan(want))
    EXPECT_TRUE(std::isnan(got)) << where;
  else
    EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want))
        << where << ": " << got << " for " << want;
}

// out = x w^T + bias through ops, of the rows `x`.
void run(Context& ctx, const Weight& w, const Tensor& x, const Tensor& bias, const Tensor& out) {
  const PreparedRows shape = prepared_shape(ctx, w, x.dim(0));
  Owned prepared(shape.dtype, {x.dim(0), shape.elements}, 64);
  prepare_rows(ctx, x, w, prepared);
  linear(ctx, prepared, w, bias, out);
  EXPECT_TRUE(gaps_untouched(prepared));
}

TEST(QuantisedWeight, ProductsOfGgufBlocksAreThoseOfTheModel) {
  for (const Format format : kFormats)
    for (const auto& [rows, columns] :
         std::vector<std::pair<int, int>>{{1, 32}, {16, 64}, {37, 96}, {48, 32}, {130, 2080}}) {
      SCOPED_TRACE(fmt::format("format {} [{}, {}]", static_cast<int>(format), rows, columns));
      const ModelMatrix model =
          random_blocks(format, rows, columns, 5u + static_cast<unsigned>(rows));
      std::vector<std::byte> blocks = blocks_of(model);
      const std::int64_t row_bytes = static_cast<std::int64_t>(blocks.size()) / rows;
      Owned x(DType::kF32, {23, columns}, 3), bias(DType::kF16, {rows});
      fill(x, 9);
      fill(bias, 10);
      on_every_machine([&](Context& ctx, Context&) {
        const Packed packed(ctx, format, rows, columns, 32);
        // In two pieces, the second first.
        const Tensor all = Tensor::dense(blocks.data(), DType::kU8, {rows, row_bytes});
        const std::int64_t cut = rows / 2;
        pack_rows(ctx, all.rows(cut, rows - cut), packed.w, 0, cut);
        if (cut > 0) pack_rows(ctx, all.rows(0, cut), packed.w, 0, 0);
        for (const std::int64_t m : {1, 2, 3, 5, 7, 23}) {
          Owned out(DType::kF32, {m, rows}, 5);
          run(ctx, packed.w, x->rows(0, m), bias, out);
          EXPECT_TRUE(gaps_untouched(out));
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t n = 0; n < rows; ++n)
              expect_bits(out.data<float>()[i * (rows + 5) + n],
                          model.product(&x.data<float>()[i * (columns + 3)], n) +
                              static_cast<float>(get(bias, {n})),
                          fmt::format("{} of {} rows, column {}", i, m, n));
        }
        Owned ids(DType::kI32, {1}), row(DType::kF32, {1, columns});
        ids.data<std::int32_t>()[0] = rows - 1;
        embedding(ctx, ids, packed.w, row);
        for (std::int64_t k = 0; k < columns; ++k)
          expect_bits(row.data<float>()[k], model.value(rows - 1, k), fmt::format("value {}", k));
      });
    }
}

// Every byte of x is 127 or -127 and every weight has the largest magnitude: sums in 16 bits are at
// their bounds.
TEST(QuantisedWeight, LargestProductsAreExact) {
  constexpr std::int64_t kRows = 64, kColumns = 256, kTokens = 13;
  Owned x(DType::kF32, {kTokens, kColumns});
  for (std::int64_t m = 0; m < kTokens; ++m)
    for (std::int64_t k = 0; k < kColumns; ++k)
      put(x, {m, k},
          m % 4 == 0 || (m % 4 == 1 && k % 2 == 0) || (m % 4 == 2 && k / 2 % 2 == 0) ? 3 : -3);
  const auto expect_model = [&](Context& ctx, const Packed& packed, const ModelMatrix& model) {
    for (const std::int64_t m : {std::int64_t{1}, std::int64_t{6}, kTokens}) {
      Owned out(DType::kF32, {m, kRows});
      run(ctx, packed.w, x->rows(0, m), {}, out);
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t n = 0; n < kRows; ++n)
          expect_bits(out.data<float>()[i * kRows + n],
                      model.product(&x.data<float>()[i * kColumns], n),
                      fmt::format("{} of {} rows, column {}", i, m, n));
    }
  };
  for (const Format format : kFormats) {
    const int most = format == Format::kInt8 ? 255 : 15;
    ModelMatrix blocks(format, kRows, kColumns, 32);
    for (std::size_t i = 0; i < blocks.u.size(); ++i)
      blocks.u[i] = i / kColumns % 3 == 0   ? most
                    : i / kColumns % 3 == 1 ? 0
                                            : static_cast<int>(i % 2) * most;
    std::ranges::fill(blocks.scales, F16(0.5f));
    std::ranges::fill(blocks.minima, F16(-2.0f));
    std::vector<std::byte> bytes = blocks_of(blocks);
    on_every_machine([&](Context& ctx, Context&) {
      const Packed packed(ctx, format, kRows, kColumns, 32);
      pack_rows(ctx,
                Tensor::dense(bytes.data(), DType::kU8,
                              {kRows, static_cast<std::int64_t>(bytes.size()) / kRows}),
                packed.w, 0, 0);
      expect_model(ctx, packed, blocks);
    });
  }
  Owned plain(DType::kF32, {kRows, kColumns});  // int4: 15 and 0; int8: 255 and 1
  for (std::int64_t n = 0; n < kRows; ++n)
    for (std::int64_t k = 0; k < kColumns; ++k)
      put(plain, {n, k}, k % 128 == 0 || n % 2 == 0 ? -1 : 1);
  for (const Format format : {Format::kInt8, Format::kInt4}) {
    const ModelMatrix model = ModelMatrix::quantised(format, plain, 128);
    on_every_machine([&](Context& ctx, Context&) {
      const Packed packed(ctx, format, kRows, kColumns, 128);
      pack_rows(ctx, plain, packed.w, 0, 0);
      expect_model(ctx, packed, model);
    });
  }
}

// [format, group, columns]
class QuantisedAtLoad : public ::testing::TestWithParam<std::tuple<Format, int, int>> {};

TEST_P(QuantisedAtLoad, WeightsAndProductsAreThoseOfTheModel) {
  const auto [format, group, columns] = GetParam();
  constexpr std::int64_t kRows = 70, kTokens = 25;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    Owned plain(dtype, {kRows, columns}), x(DType::kF32, {kTokens, columns});
    fill(plain, 3, 0.05);
    fill(x, 4, 3);
    // Rows of zeros, of equal weights of either sign, of one outlier, of subnormal weights and of
    // large ones.
    for (std::int64_t k = 0; k < columns; ++k) {
      put(plain, {1, k}, 0);
      put(plain, {2, k}, -0.5);
      put(plain, {3, k}, k % group == 3 ? 900 : 1e-3);
      put(plain, {4, k}, k % 2 == 0 ? 1e-40 : -1e-40);
      put(plain, {5, k}, k % 2 == 0 ? 5e4 : -3e4);
      put(x, {1, k}, 0);
      put(x, {2, k}, k % 2 == 0 ? 1e-38 : -1e-41);
      put(x, {3, k}, k % 2 == 0 ? 2e30 : -1e30);
    }
    const ModelMatrix model = ModelMatrix::quantised(format, plain, group);
    on_every_machine([&](Context& ctx, Context&) {
      const Packed packed(ctx, format, kRows, columns, group);
      pack_rows(ctx, plain->rows(0, 5), packed.w, 0, 0);
      pack_rows(ctx, plain->rows(5, kRows - 5), packed.w, 0, 5);
      Owned ids(DType::kI32, {kRows}), values(DType::kF32, {kRows, columns}),
          out(DType::kF32, {kTokens, kRows});
      for (int n = 0; n < kRows; ++n) ids.data<std::int32_t>()[n] = n;
      embedding(ctx, ids, packed.w, values);
      for (std::int64_t n = 0; n < kRows; ++n)
        for (std::int64_t k = 0; k < columns; ++k)
          expect_bits(values.data<float>()[n * columns + k], model.value(n, k),
                      fmt::format("weight {} {}", n, k));
      run(ctx, packed.w, x, {}, out);
      for (std::int64_t m = 0; m < kTokens; ++m)
        for (std::int64_t n = 0; n < kRows; ++n)
          expect_bits(out.data<float>()[m * kRows + n],
                      model.product(&x.data<float>()[m * columns], n), fmt::format("{} {}", m, n));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, QuantisedAtLoad,
                         ::testing::Combine(::testing::Values(Format::kInt8, Format::kInt4),
                                            ::testing::Values(32, 128),
                                            ::testing::Values(1, 33, 128, 200, 513)));

TEST(QuantisedWeight, ErrorOfAWeightIsAtMostHalfAStep) {
  Machine machine(CpuIsa::kAvx2);
  Owned plain(DType::kF32, {32, 256});
  fill(plain, 8, 0.1);
  for (const auto& [format, steps] :
       std::vector<std::pair<Format, double>>{{Format::kInt8, 127}, {Format::kInt4, 8}}) {
    const Packed packed(machine.ctx, format, 32, 256, 32);
    pack_rows(machine.ctx, plain, packed.w, 0, 0);
    Owned ids(DType::kI32, {1}), row(DType::kF32, {1, 256});
    for (std::int32_t n = 0; n < 32; ++n) {
      ids.data<std::int32_t>()[0] = n;
      embedding(machine.ctx, ids, packed.w, row);
      for (std::int64_t g = 0; g < 8; ++g) {
        double largest = 0;
        for (std::int64_t k = 32 * g; k < 32 * g + 32; ++k)
          largest = std::max(largest, std::abs(get(plain, {n, k})));
        // One step, plus the shift of the last level when the scale is rounded to float16. Nibbles
        // have no level +8.
        const double step = largest / steps, moved = largest * 0x1p-11;
        for (std::int64_t k = 32 * g; k < 32 * g + 32; ++k)
          EXPECT_LE(std::abs(get(row, {0, k}) - get(plain, {n, k})),
                    (format == Format::kInt4 ? step : step / 2) + moved + 1e-9);
      }
    }
  }
}

TEST(QuantisedWeight, BitsDependOnTheRowAloneAtAnyShapeAndThreads) {
  constexpr std::int64_t kRows = 200, kColumns = 1100, kTokens = 300;
  Owned plain(DType::kBF16, {kRows, kColumns}), x(DType::kF32, {kTokens, kColumns});
  fill(plain, 1);
  fill(x, 2);
  for (const auto& [format, group] :
       {std::pair(Format::kInt8, 32), {Format::kInt4, 32}, {Format::kInt8, 128}}) {
    Owned want(DType::kF32, {kTokens, kRows});
    bool first = true;
    on_every_machine([&, group = group, format = format](Context& ctx, Context& alone) {
      const Packed packed(ctx, format, kRows, kColumns, group);
      pack_rows(ctx, plain, packed.w, 0, 0);
      if (first) run(alone, packed.w, x, {}, want);
      first = false;
      for (const auto& [begin, count] : std::vector<std::pair<int, int>>{
               {0, 300}, {299, 1}, {7, 2}, {20, 17}, {30, 64}, {3, 257}}) {
        Owned out(DType::kF32, {count, kRows});
        run(ctx, packed.w, x->rows(begin, count), {}, out);
        EXPECT_TRUE(same_bits(out, want->rows(begin, count))) << begin << " " << count;
      }
    });
  }
}

TEST(QuantisedWeight, AnInputThatIsNotFiniteGivesNaN) {
  Owned plain(DType::kBF16, {20, 64}), x(DType::kF32, {3, 64});
  fill(plain, 1);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    on_every_machine([&](Context& ctx, Context&) {
      for (const Format format : {Format::kInt8, Format::kInt4}) {
        const Packed packed(ctx, format, 20, 64, 32);
        pack_rows(ctx, plain, packed.w, 0, 0);
        fill(x, 2);
        put(x, {1, 40}, bad);
        Owned out(DType::kF32, {3, 20});
        run(ctx, packed.w, x, {}, out);
        for (std::int64_t n = 0; n < 20; ++n) {
          EXPECT_TRUE(std::isfinite(get(out, {0, n})) && std::isfinite(get(out, {2, n})));
          EXPECT_TRUE(std::isnan(get(out, {1, n})));
        }
      }
    });
}

TEST(QuantisedWeight, WeightsOutsideTheScalesAreRefusedAndNaNStaysNaN) {
  Machine machine(CpuIsa::kAvx2);
  Owned plain(DType::kF32, {1, 32});
  for (const Format format : {Format::kInt8, Format::kInt4}) {
    const Packed packed(machine.ctx, format, 1, 32, 32);
    fill(plain, 1);
    put(plain, {0, 7}, 1e7);
    EXPECT_THROW(pack_rows(machine.ctx, plain, packed.w, 0, 0), Error);
    put(plain, {0, 7}, std::numeric_limits<double>::quiet_NaN());
    pack_rows(machine.ctx, plain, packed.w, 0, 0);
    Owned ids(DType::kI32, {1}), row(DType::kF32, {1, 32});
    ids.data<std::int32_t>()[0] = 0;
    embedding(machine.ctx, ids, packed.w, row);
    EXPECT_TRUE(std::isnan(get(row, {0, 0})));
  }
}

TEST(QuantisedWeight, ExpertsAreTheProductsOfTheirParts) {
  constexpr std::int64_t kExperts = 5, kHidden = 1088, kWidth = 48, kTopK = 2;
  Owned up(DType::kBF16, {kExperts, 2 * kWidth, kHidden}),
      down(DType::kBF16, {kExperts, kHidden, kWidth});
  fill(up, 1, 0.2);
  fill(down, 2, 0.2);
  for (const Format format : {Format::kInt8, Format::kInt4})
    on_every_machine([&](Context& ctx, Context& alone) {
      Packed first(ctx, format, 2 * kWidth, kHidden, 32, kExperts),
          second(ctx, format, kHidden, kWidth, 32, kExperts);
      for (std::int64_t e = 0; e < kExperts; ++e) {
        pack_rows(ctx, up->at(e), first.w, e, 0);
        pack_rows(ctx, down->at(e), second.w, e, 0);
      }
      for (const std::int64_t tokens : {1, 4, 33}) {
        Owned x(DType::kF32, {tokens, kHidden}), weights(DType::kF32, {tokens, kTopK}),
            ids(DType::kI32, {tokens, kTopK}), out(DType::kF32, {tokens, kHidden});
        fill(x, 3);
        fill(weights, 4);
        for (std::int64_t t = 0; t < tokens; ++t) {
          put(ids, {t, 0}, static_cast<double>(t % (kExperts - 1)));
          put(ids, {t, 1}, static_cast<double>(kExperts - 1));
        }
        Arena arena(1 << 22);
        const PreparedRows outer = prepared_shape(ctx, first.w, tokens),
                           inner = prepared_shape(ctx, second.w, tokens);
        Owned prepared(outer.dtype, {tokens, outer.elements});
        prepare_rows(ctx, x, first.w, prepared);
        const MoeWorkspace workspace =
            take_moe_workspace(arena, tokens, kTopK, kExperts, kHidden, kWidth, inner);
        fused_experts(ctx, prepared, first.w, second.w, weights, ids, Activation::kSilu, workspace,
                      out);
        for (std::int64_t t = 0; t < tokens; ++t) {
          std::vector<float> want(kHidden, 0.0f);
          for (std::int64_t j = 0; j < kTopK; ++j) {
            const auto e = static_cast<std::int64_t>(get(ids, {t, j}));
            Owned both(DType::kF32, {1, 2 * kWidth}), hidden(DType::kF32, {1, kWidth}),
                result(DType::kF32, {1, kHidden});
            run(alone, first.w.at(e), x->rows(t, 1), {}, both);
            act_and_mul(alone, Activation::kSilu, both, hidden);
            run(alone, second.w.at(e), hidden, {}, result);
            const auto weight = static_cast<float>(get(weights, {t, j}));
            for (std::int64_t i = 0; i < kHidden; ++i)
              want[static_cast<std::size_t>(i)] += weight * result.data<float>()[i];
          }
          for (std::int64_t i = 0; i < kHidden; ++i)
            ASSERT_EQ(get(out, {t, i}), want[static_cast<std::size_t>(i)])
                << tokens << " " << t << " " << i;
        }
      }
    });
}

TEST(QuantisedWeight, WrongShapesAreBugs) {
  Machine machine(CpuIsa::kAvx2);
  Owned w(DType::kBF16, {20, 64}), blocks(DType::kU8, {20, 68}), x(DType::kF32, {2, 64}),
      out(DType::kF32, {2, 20});
  fill(w, 1);
  fill(x, 2);
  const Packed wide(machine.ctx, Format::kInt8, 20, 64, 128),
      odd(machine.ctx, Format::kInt8, 20, 65, 32);
  EXPECT_THROW(linear(machine.ctx, x, wide.w, {}, out), Error);       // not prepared
  EXPECT_THROW(pack_rows(machine.ctx, blocks, wide.w, 0, 0), Error);  // blocks have groups of 32
  EXPECT_THROW(pack_rows(machine.ctx, blocks, odd.w, 0, 0), Error);
  const Packed minima(machine.ctx, Format::kInt4Min, 20, 64, 32);
  EXPECT_THROW(pack_rows(machine.ctx, w, minima.w, 0, 0), Error);  // comes from GGUF files only
  Weight strange = wide.w;
  strange.group = 48;
  EXPECT_THROW(packed_bytes(machine.ctx, strange), Error);
}

}  // namespace
}  // namespace sluice::ops
