// Blocks of GGUF files against a reference in plain loops: the same bits on every instruction set.
#include <bit>
#include <cmath>

#include "base/error.h"
#include "kernels/types/super_block_model.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "ops/packing.h"
#include "ops/testing/support.h"
#include "tensor/buffer.h"

namespace sluice::ops {
namespace {

using testing::kBlockKinds;
using testing::ModelRow;
using testing::SuperBlockMatrix;

struct Packed {
  Packed(const Context& ctx, SuperBlockMatrix& model)
      : w(weight_form(ctx, model.format, DType::kBF16, 32)) {
    w.rows = model.rows;
    w.columns = model.columns;
    w.count = 1;
    memory = Buffer(packed_bytes(ctx, w));
    w.data = memory.tensor(DType::kU8, {1, packed_bytes(ctx, w)});
    const Tensor all =
        Tensor::dense(model.bytes.data(), DType::kU8, {model.rows, model.row_bytes()});
    // In two pieces, the second first.
    const std::int64_t cut = model.rows / 2;
    pack_rows(ctx, all.rows(cut, model.rows - cut), w, 0, cut);
    if (cut > 0) pack_rows(ctx, all.rows(0, cut), w, 0, 0);
  }
  Weight w;
  Buffer memory;
};

void expect_bits(float got, float want, const std::string& where) {
  if (std::isnan(want))
    EXPECT_TRUE(std::isnan(got)) << where;
  else
    EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(want))
        << where << ": " << got << " for " << want;
}

void run(Context& ctx, const Weight& w, const Tensor& x, const Tensor& bias, const Tensor& out) {
  const PreparedRows shape = prepared_shape(ctx, w, x.dim(0));
  Owned prepared(shape.dtype, {x.dim(0), shape.elements}, 64);
  prepare_rows(ctx, x, w, prepared);
  linear(ctx, prepared, w, bias, out);
  EXPECT_TRUE(gaps_untouched(prepared));
}

TEST(SuperBlocks, ProductsAndValuesAreThoseOfTheModel) {
  for (const auto& [format, name] : kBlockKinds)
    for (const auto& [rows, columns] :
         std::vector<std::pair<int, int>>{{1, 256}, {16, 512}, {37, 256}, {130, 1280}, {50, 96}}) {
      if (columns % super_columns(format) != 0) continue;
      SCOPED_TRACE(fmt::format("{} [{}, {}]", name, rows, columns));
      SuperBlockMatrix model =
          SuperBlockMatrix::random(format, rows, columns, 5u + static_cast<unsigned>(rows));
      Owned x(DType::kF32, {11, columns}, 3), bias(DType::kF16, {rows});
      fill(x, 9);
      fill(bias, 10);
      std::vector<float> wanted;
      for (std::int64_t m = 0; m < 11; ++m)
        for (std::int64_t n = 0; n < rows; ++n)
          wanted.push_back(model.product(&x.data<float>()[m * (columns + 3)], n) +
                           static_cast<float>(get(bias, {n})));
      on_every_machine([&](Context& ctx, Context&) {
        const Packed packed(ctx, model);
        for (const std::int64_t m : {1, 2, 3, 4, 5, 7, 11}) {
          Owned out(DType::kF32, {m, rows}, 5);
          run(ctx, packed.w, x->rows(0, m), bias, out);
          EXPECT_TRUE(gaps_untouched(out));
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t n = 0; n < rows; ++n)
              expect_bits(out.data<float>()[i * (rows + 5) + n],
                          wanted[static_cast<std::size_t>(i * rows + n)],
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

// The sum in float64 of the file's values and x, against the kernel. Two parts differ from it:
// - x is rounded to e q, with |x - e q| <= e / 2 (and 2^-23 of x from the two divisions);
// - float32: each of the 8 fused steps of S and the 8 or 16 of T rounds once, e Q once, and each of
//   the two steps of acc once. An element has at most 16 + 1 + 2 columns / 256 such roundings of
//   terms whose magnitudes sum to A = sum of |e q| (|d s (u - offset)| + |d_min m|). Blocks of 32
//   have 1 + 2 columns / 32 of them, with 1 for s and m for d_min m.
TEST(SuperBlocks, ProductsAreWithinTheBoundOfTheirArithmetic) {
  constexpr std::int64_t kRows = 64, kColumns = 2048;
  for (const auto& [format, name] : kBlockKinds) {
    SuperBlockMatrix model = SuperBlockMatrix::random(format, kRows, kColumns, 77);
    Owned x(DType::kF32, {1, kColumns});
    fill(x, 21);
    const float* values = x.data<float>();
    const ModelRow row(values, kColumns, 32);
    on_every_machine([&](Context& ctx, Context&) {
      const Packed packed(ctx, model);
      Owned out(DType::kF32, {1, kRows});
      run(ctx, packed.w, x, {}, out);
      for (std::int64_t n = 0; n < kRows; ++n) {
        double exact = 0, of_rows = 0, magnitude = 0;
        for (std::int64_t k = 0; k < kColumns; ++k) {
          const double e = row.scales[static_cast<std::size_t>(k / 32)];
          const double scaled = static_cast<double>(model.d(n, k)) * model.scale(n, k) *
                                model.integer(n, k),
                       lowered = static_cast<double>(model.d_min(n, k)) *
                                 (model.has_minima() ? model.minimum(n, k) : 0),
                       w = scaled - lowered + model.addend(n, k);
          exact += w * values[k];
          of_rows += std::abs(w) * (e / 2 + std::abs(values[k]) * 0x1p-22);
          magnitude += std::abs(e * row.q[static_cast<std::size_t>(k)]) *
                       (std::abs(scaled) + std::abs(lowered) + std::abs(model.addend(n, k)));
        }
        const double roundings = 17 + 2 * kColumns / model.block_columns();
        EXPECT_LE(std::abs(out.data<float>()[n] - exact),
                  of_rows + roundings * 0x1p-24 * 1.01 * magnitude)
            << name << ", column " << n;
      }
    });
  }
}

// Bytes of x at their bounds, the largest weights and scales: integer sums in 16 bits and products
// as float32 are at their bounds, too.
TEST(SuperBlocks, LargestProductsAreExact) {
  constexpr std::int64_t kRows = 20, kColumns = 512, kTokens = 5;
  Owned x(DType::kF32, {kTokens, kColumns});
  for (std::int64_t m = 0; m < kTokens; ++m)
    for (std::int64_t k = 0; k < kColumns; ++k)
      put(x, {m, k}, m == 0 || (m == 1 && k % 2 == 0) || (m > 1 && k / 2 % 2 == 0) ? 3 : -3);
  for (const auto& [format, name] : kBlockKinds)
    for (const std::uint8_t byte : {0xFF, 0x00, 0x80, 0x7F}) {
      SuperBlockMatrix model(format, kRows, kColumns);
      std::fill(model.bytes.begin(), model.bytes.end(), byte);
      for (std::size_t at = 0; at < model.bytes.size();
           at += static_cast<std::size_t>(model.block_bytes()))
        for (const std::size_t half : model.halves()) {
          model.bytes[at + half] = 0;
          model.bytes[at + half + 1] = 0x3C;  // 1
        }
      on_every_machine([&](Context& ctx, Context&) {
        const Packed packed(ctx, model);
        for (const std::int64_t m : {std::int64_t{1}, kTokens}) {
          Owned out(DType::kF32, {m, kRows});
          run(ctx, packed.w, x->rows(0, m), {}, out);
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t n = 0; n < kRows; ++n)
              expect_bits(
                  out.data<float>()[i * kRows + n],
                  model.product(&x.data<float>()[i * kColumns], n),
                  fmt::format("{}, byte {}, {} of {} rows, column {}", name, byte, i, m, n));
        }
      });
    }
}

TEST(SuperBlocks, NotFiniteRowsGiveNaN) {
  for (const auto& [format, name] : kBlockKinds) {
    SuperBlockMatrix model = SuperBlockMatrix::random(format, 16, 256, 3);
    Owned x(DType::kF32, {1, 256});
    fill(x, 4);
    x.data<float>()[200] = INFINITY;
    on_every_machine([&](Context& ctx, Context&) {
      const Packed packed(ctx, model);
      Owned out(DType::kF32, {1, 16});
      run(ctx, packed.w, x, {}, out);
      for (std::int64_t n = 0; n < 16; ++n) EXPECT_TRUE(std::isnan(out.data<float>()[n]));
    });
  }
}

}  // namespace
}  // namespace sluice::ops
