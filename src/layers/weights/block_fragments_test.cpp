#include "layers/weights/block_fragments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "checkpoint/tensors/quantized_blocks.h"
#include "kernels/types/block_fragments.h"
#include "kernels/types/super_block_model.h"
#include "layers/weights/block_formats.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "tensor/buffer.h"

namespace sluice {
namespace {

using ops::testing::SuperBlockMatrix;

constexpr std::int64_t kRows = 40;  // two and a half tiles

// Places of the float16 numbers of a block.
struct Type {
  BlockType type;
  std::vector<std::size_t> halves;
};
const Type kTypes[] = {{BlockType::kQ4_1, {0, 2}}, {BlockType::kQ5_0, {0}},
                       {BlockType::kQ5_1, {0, 2}}, {BlockType::kQ2K, {80, 82}},
                       {BlockType::kQ3K, {108}},   {BlockType::kQ4K, {0, 2}},
                       {BlockType::kQ5K, {0, 2}},  {BlockType::kQ6K, {208}},
                       {BlockType::kIQ4XS, {0}},   {BlockType::kIQ4NL, {0}}};

// Random blocks of a file, their values, and a weight that was filled with them in two pieces.
struct Filled {
  std::int64_t columns, row_bytes;
  std::vector<std::byte> bytes;
  std::vector<float> values;
  ops::Weight w;
  Buffer memory;

  Filled(const Type& type, std::int64_t num_columns)
      : columns(num_columns),
        row_bytes(num_columns / block_values(type.type) * block_bytes(type.type)),
        bytes(static_cast<std::size_t>(kRows * row_bytes)),
        values(static_cast<std::size_t>(kRows * columns)) {
    std::mt19937 random(3);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const auto block = static_cast<std::size_t>(block_bytes(type.type));
    for (std::size_t at = 0; at < bytes.size(); at += block)
      for (const std::size_t half : type.halves) {
        const F16 number(static_cast<float>(static_cast<int>(random() % 2001) - 1000) * 0x1p-16f);
        std::memcpy(bytes.data() + at + half, &number.bits, 2);
      }
    dequantize_blocks(type.type, bytes.data(), kRows * columns / block_values(type.type),
                      values.data());
    w.format = format_of_blocks(type.type), w.layout = ops::Layout::kFragments, w.group = 32;
    w.input = DType::kBF16, w.rows = kRows, w.columns = columns;
    memory = Buffer(fragment_bytes(w));
    std::memset(memory.data(), 0xFF, static_cast<std::size_t>(fragment_bytes(w)));
    w.data = memory.tensor(DType::kU8, {1, fragment_bytes(w)});
    for (const std::int64_t first : {16, 0})
      put_block_rows(w, 0, first, 0,
                     Tensor::dense(bytes.data() + first * row_bytes, DType::kU8,
                                   {first == 0 ? 16 : kRows - first, row_bytes}));
  }
  ops::BlockRow row(std::int64_t n, std::int64_t k) const {
    const std::int64_t unit = n / 16 * ops::fragment_units(columns) + k / 128;
    return ops::block_row_of(
        w.format, static_cast<int>(n % 16),
        static_cast<const std::uint8_t*>(w.data.data) + unit * ops::block_unit(w.format).bytes());
  }
};

// A weight is the file's number, rounded to bfloat16, but for 2^-16 of its scale.
TEST(BlockFragments, ValuesAreTheFilesRoundedOnce) {
  for (const Type& type : kTypes) {
    const Filled filled(type, 512);
    const ops::BlockUnit form = ops::block_unit(filled.w.format);
    ASSERT_TRUE(form.exists()) << block_type_name(type.type);
    EXPECT_EQ(form.bytes() % 16, 0);
    EXPECT_LT(form.bytes() / 2048.0, 1.05 * static_cast<double>(block_bytes(type.type)) /
                                         static_cast<double>(block_values(type.type)));
    for (std::int64_t n = 0; n < kRows; ++n)
      for (std::int64_t k = 0; k < filled.columns; ++k) {
        const ops::BlockRow row = filled.row(n, k);
        const auto column = static_cast<int>(k % 128);
        const auto group = static_cast<std::size_t>(column / (128 / form.groups));
        const float value = static_cast<float>(ops::block_value(form, row, column)),
                    wanted = filled.values[static_cast<std::size_t>(n * filled.columns + k)],
                    scale = static_cast<float>(row.d[form.num_d() == 1 ? 0 : group]) *
                            row.scales[group];
        ASSERT_NEAR(value, wanted, 0x1.01p-8f * std::abs(wanted) + 0x1p-16f * std::abs(scale))
            << block_type_name(type.type) << " " << n << ", " << k;
      }
  }
}

// A rank's columns may begin or end with half a super-block.
TEST(BlockFragments, RanksMayShareASuperBlock) {
  for (const Type& type : kTypes) {
    const std::int64_t values = block_values(type.type);
    const Filled whole(type, 768);
    for (const AxisRange share : {AxisRange{0, 384}, AxisRange{384, 384}, AxisRange{128, 128}}) {
      const BlockColumns columns = block_columns(type.type, share).value();
      EXPECT_EQ(columns.read.begin % values + columns.read.count % values, 0);
      EXPECT_EQ(columns.read.begin + columns.skipped, share.begin);
      ops::Weight w = whole.w;
      w.columns = share.count;
      Buffer memory(fragment_bytes(w));
      w.data = memory.tensor(DType::kU8, {1, fragment_bytes(w)});
      put_block_rows(w, 0, 0, kRows, columns.skipped, [&](std::int64_t r) {
        return reinterpret_cast<const std::uint8_t*>(whole.bytes.data()) + r * whole.row_bytes +
               columns.read.begin / values * block_bytes(type.type);
      });
      const ops::BlockUnit form = ops::block_unit(w.format);
      for (std::int64_t n = 0; n < kRows; ++n)
        for (std::int64_t k = 0; k < share.count; ++k) {
          const auto* unit = static_cast<const std::uint8_t*>(w.data.data) +
                             (n / 16 * ops::fragment_units(w.columns) + k / 128) * form.bytes();
          const ops::BlockRow row = ops::block_row_of(w.format, static_cast<int>(n % 16), unit),
                              wanted = whole.row(n, share.begin + k);
          ASSERT_EQ(static_cast<float>(ops::block_value(form, row, static_cast<int>(k % 128))),
                    static_cast<float>(
                        ops::block_value(form, wanted, static_cast<int>((share.begin + k) % 128))))
              << block_type_name(type.type) << " " << n << ", " << k;
        }
    }
    EXPECT_EQ(block_columns(type.type, {0, 64}).has_value(), values == 32);
    EXPECT_FALSE(block_columns(type.type, {16, 128}));
  }
}

// Super-blocks keep every integer.
TEST(BlockFragments, CodesAndScalesAreThoseOfTheFile) {
  for (const ops::testing::BlockKind& kind : ops::testing::kBlockKinds) {
    const ops::BlockUnit form = ops::block_unit(kind.format);
    if (!form.exists() || form.num_d() > 1) continue;
    for (const Type& type : kTypes) {
      if (format_of_blocks(type.type) != kind.format) continue;
      const Filled filled(type, 256);
      SuperBlockMatrix model(kind.format, kRows, 256);
      std::memcpy(model.bytes.data(), filled.bytes.data(), filled.bytes.size());
      for (std::int64_t n = 0; n < kRows; ++n)
        for (std::int64_t k = 0; k < 256; ++k) {
          const ops::BlockRow row = filled.row(n, k);
          const std::int64_t group = k % 128 / (128 / form.groups);
          ASSERT_EQ(row.codes[k % 128], model.level(n, k)) << kind.name << n << ", " << k;
          ASSERT_EQ(row.scales[group], model.scale(n, k)) << kind.name << n << ", " << k;
          if (!form.has_minima) continue;
          ASSERT_EQ(row.minima[group], model.minimum(n, k)) << kind.name << n << ", " << k;
        }
    }
  }
}

// The first and the last row, and one twice.
TEST(BlockFragments, EmbeddingsAreRowsOfTheTable) {
  Context ctx;
  for (const Type& type : kTypes) {
    const std::int64_t columns = block_values(type.type) == 32 ? 352 : 512;
    const Filled filled(type, columns);
    std::vector<std::int32_t> ids{17, 0, kRows - 1, 17, 8, 31};
    const auto count = static_cast<std::int64_t>(ids.size());
    std::vector<float> rows(ids.size() * static_cast<std::size_t>(columns), NAN);
    const Tensor places = Tensor::dense(ids.data(), DType::kI32, {count}),
                 out = Tensor::dense(rows.data(), DType::kF32, {count, columns});
    ops::embedding(ctx, places, filled.w, out);
    const ops::BlockUnit form = ops::block_unit(filled.w.format);
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t k = 0; k < columns; ++k) {
        const std::int64_t n = ids[static_cast<std::size_t>(t)];
        ASSERT_EQ(
            rows[static_cast<std::size_t>(t * columns + k)],
            static_cast<float>(ops::block_value(form, filled.row(n, k), static_cast<int>(k % 128))))
            << block_type_name(type.type) << " " << n << ", " << k;
      }
    ids[4] = kRows;
    EXPECT_THROW(ops::embedding(ctx, places, filled.w, out), Error);
  }
}

// Sums in float32 of weights that are off by 2^-8. Blocks of 32 need no whole units.
TEST(BlockFragments, LinearLayersAreSumsOfTheFilesNumbers) {
  Context ctx;
  for (const Type& type : kTypes) {
    const std::int64_t columns = block_values(type.type) == 32 ? 352 : 512;
    const Filled filled(type, columns);
    Buffer memory(2 * 5 * columns);
    const Tensor x = memory.tensor(DType::kBF16, {5, columns});
    std::vector<float> sums(5 * kRows);
    const Tensor out = Tensor::dense(sums.data(), DType::kF32, {5, kRows});
    std::mt19937 random(8);
    for (std::int64_t i = 0; i < x.numel(); ++i)
      x.ptr<BF16>()[i] = BF16(static_cast<float>(random() % 2001) / 1000 - 1);
    ops::linear(ctx, x, filled.w, {}, out);
    for (std::int64_t m = 0; m < 5; ++m)
      for (std::int64_t n = 0; n < kRows; ++n) {
        double sum = 0, size = 0;
        for (std::int64_t k = 0; k < columns; ++k) {
          const double term =
              static_cast<double>(static_cast<float>(x.ptr<BF16>()[m * columns + k])) *
              filled.values[static_cast<std::size_t>(n * columns + k)];
          sum += term;
          size += std::abs(term);
        }
        EXPECT_NEAR(sums[static_cast<std::size_t>(m * kRows + n)], sum, size * 0x1.1p-8)
            << block_type_name(type.type) << " " << m << ", " << n;
      }
  }
}

}  // namespace
}  // namespace sluice
