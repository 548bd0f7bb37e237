// Integer weights in fragments on a CPU against their definition: kernels/types/int_fragments.h.
#include "kernels/types/int_fragments.h"

#include <bit>
#include <cmath>
#include <set>

#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/gemm.h"
#include "ops/packing.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

constexpr Format kFormats[] = {Format::kInt4, Format::kInt4Zero, Format::kInt8};

TEST(IntFragments, PlacesOfAUnitAreDistinctAndFillIt) {
  for (const Format format :
       {Format::kInt4, Format::kInt4Zero, Format::kInt8, Format::kMxFp4, Format::kNvFp4})
    for (const std::int64_t group : {16, 32, 64, 128}) {
      if ((format == Format::kMxFp4 && group != 32) || (format == Format::kNvFp4) != (group == 16))
        continue;
      const FragmentUnit form = fragment_unit(format, group);
      std::set<std::int64_t> places;  // in nibbles
      for (int r = 0; r < kFragmentRows; ++r) {
        for (int c = 0; c < kFragmentColumns; ++c) {
          const auto [byte, shift] = form.code_at(r, c);
          EXPECT_LT(byte, form.code_bytes());
          for (int nibble = 0; nibble < form.bits / 4; ++nibble)
            EXPECT_TRUE(places.insert(byte * 2 + shift / 4 + nibble).second);
        }
        for (int g = 0; g < form.groups; ++g) {
          for (int half_byte = 0; half_byte < 2 * form.scale_bytes; ++half_byte)
            EXPECT_TRUE(places.insert(form.scale_at(g, r) * 2 + half_byte).second);
          for (int half_byte = 0; form.has_zeros && half_byte < 2; ++half_byte)
            EXPECT_TRUE(places.insert(form.zero_at(g, r) * 2 + half_byte).second);
        }
        for (int half_byte = 0; form.has_factors && half_byte < 8; ++half_byte)
          EXPECT_EQ(places.insert(form.factor_at(r) * 2 + half_byte).second, r % kFactorRows == 0);
      }
      EXPECT_EQ(static_cast<std::int64_t>(places.size()), form.bytes() * 2);
      EXPECT_EQ(*places.rbegin(), form.bytes() * 2 - 1);
      EXPECT_EQ(form.bytes() % 16, 0);
    }
}

// The fragments of m16n8k16 as the PTX manual lists them: registers of a lane hold the rows g and
// g + 8 of the columns 2 t and 2 t + 8, each with its neighbour.
TEST(IntFragments, ALanesBytesAreItsFragments) {
  for (const Format format : kFormats) {
    const FragmentUnit form = fragment_unit(format, 128);
    for (int lane = 0; lane < 32; ++lane)
      for (int step = 0; step < 8; ++step)
        for (int reg = 0; reg < 4; ++reg)
          for (int odd = 0; odd < 2; ++odd) {
            const int row = lane / 4 + reg % 2 * 8,
                      column = step * 16 + lane % 4 * 2 + reg / 2 * 8 + odd;
            const auto [byte, shift] = form.code_at(row, column);
            EXPECT_EQ(byte / 16 % 32, lane);
            const std::int64_t within = byte / 16 / 32 * 16 + byte % 16;  // of the lane's bytes
            if (form.bits == 8) {
              EXPECT_EQ(within, step * 8 + reg * 2 + odd);
            } else {
              EXPECT_EQ(within * 2 + shift / 4, step * 8 + reg + 4 * odd);
            }
          }
  }
}

// A random weight, and its values.
struct IntMatrix {
  Owned data;
  Weight w;
  std::vector<int> codes, zeros;    // [rows, columns], [rows, groups]
  std::vector<std::int32_t> order;  // of columns

  IntMatrix(const Weight& form, std::int64_t rows, std::int64_t columns, bool reordered)
      : data(DType::kU8, {1, bytes_of(form, rows, columns)}), w(form) {
    w.rows = rows, w.columns = columns, w.data = data.view;
    const FragmentUnit unit = fragment_unit(w);
    std::mt19937 random(5);
    const std::int64_t units = fragment_units(columns), groups = units * unit.groups;
    std::fill(data.bytes.begin(), data.bytes.end(), std::byte{});
    codes.resize(static_cast<std::size_t>(rows * columns));
    zeros.resize(static_cast<std::size_t>(rows * groups), unit.middle());
    for (std::int64_t tile = 0; tile < fragment_tiles(rows); ++tile)
      for (std::int64_t u = 0; u < units; ++u) {
        auto* to =
            reinterpret_cast<std::uint8_t*>(data.bytes.data()) + (tile * units + u) * unit.bytes();
        std::uint8_t square[kFragmentRows * kFragmentColumns];
        for (std::uint8_t& code : square)
          code = static_cast<std::uint8_t>(random() % (1u << unit.bits));
        put_fragment_codes(unit, square, kFragmentColumns, to);
        for (int r = 0; r < kFragmentRows; ++r) {
          const std::int64_t n = tile * kFragmentRows + r;
          for (int g = 0; g < unit.groups; ++g) {
            put_scale(to + unit.scale_at(g, r), n, u * unit.groups + g);
            if (!unit.has_zeros) continue;
            const auto zero = static_cast<std::uint8_t>(random() % 16);
            to[unit.zero_at(g, r)] = zero;
            if (n < rows) zeros[static_cast<std::size_t>(n * groups + u * unit.groups + g)] = zero;
          }
          for (int c = 0; c < kFragmentColumns; ++c)
            if (n < rows && u * kFragmentColumns + c < columns)
              codes[static_cast<std::size_t>(n * columns + u * kFragmentColumns + c)] =
                  square[r * kFragmentColumns + c];
        }
      }
    for (std::int32_t c = 0; c < columns; ++c) order.push_back(c);
    if (!reordered) return;
    std::shuffle(order.begin(), order.end(), random);
    w.order = Tensor::dense(order.data(), DType::kI32, {columns});
  }
  static std::int64_t bytes_of(Weight form, std::int64_t rows, std::int64_t columns) {
    form.rows = rows, form.columns = columns;
    return fragment_bytes(form);
  }
  static double scale(std::int64_t n, std::int64_t g) {
    return std::ldexp(static_cast<double>(64 + (n * 7 + g * 13) % 64), -12);
  }
  void put_scale(std::uint8_t* to, std::int64_t n, std::int64_t g) const {
    const auto value = static_cast<float>(scale(n, g));  // exact in all types
    if (w.scale == DType::kF32) {
      std::memcpy(to, &value, 4);
      return;
    }
    const auto bits = w.scale == DType::kBF16 ? std::bit_cast<std::uint16_t>(BF16(value))
                                              : std::bit_cast<std::uint16_t>(F16(value));
    std::memcpy(to, &bits, 2);
  }
  // The magnitude of q plus z, times the scale.
  double reach(std::int64_t n, std::int64_t k) const {
    const std::int64_t g = k / w.group, groups = static_cast<std::int64_t>(zeros.size()) / w.rows;
    return (codes[static_cast<std::size_t>(n * w.columns + k)] +
            zeros[static_cast<std::size_t>(n * groups + g)]) *
           scale(n, g);
  }
  double value(std::int64_t n, std::int64_t k) const {
    const std::int64_t g = k / w.group, groups = static_cast<std::int64_t>(zeros.size()) / w.rows;
    return (codes[static_cast<std::size_t>(n * w.columns + k)] -
            zeros[static_cast<std::size_t>(n * groups + g)]) *
           scale(n, g);
  }
};

Weight fragments_of(Format format, std::int64_t group, DType scale) {
  Weight w;
  w.format = format, w.layout = Layout::kFragments, w.group = group, w.input = DType::kBF16;
  w.scale = scale;
  return w;
}

TEST(IntFragments, LinearIsTheDefinition) {
  constexpr std::int64_t kRows = 7;  // blocks of 4, 2 and 1
  for (const CpuIsa isa : kCpuIsas) {
    if (isa > detect_cpu_isa()) continue;
    Machine machine(isa);
    for (const Format format : kFormats)
      for (const std::int64_t group : {32, 64, 128})
        for (const DType scale : {DType::kF16, DType::kBF16, DType::kF32})
          for (const auto& [out_rows, columns] :
               {std::pair<std::int64_t, std::int64_t>{37, 200}, {16, 128}, {48, 1032}}) {
            const bool reordered = scale == DType::kBF16;
            const IntMatrix matrix(fragments_of(format, group, scale), out_rows, columns,
                                   reordered);
            Owned x(DType::kBF16, {kRows, columns}, 8), bias(DType::kF32, {out_rows}),
                out(DType::kF32, {kRows, out_rows}, 8);
            fill(x, 1);
            fill(bias, 2);
            linear(machine.ctx, x, matrix.w, bias, out);
            EXPECT_TRUE(gaps_untouched(out));
            for (std::int64_t m = 0; m < kRows; ++m)
              for (std::int64_t n = 0; n < out_rows; ++n) {
                double sum = get(bias, {n}), magnitude = std::abs(sum);
                for (std::int64_t k = 0; k < columns; ++k) {
                  const double term =
                      get(x, {m, matrix.order[static_cast<std::size_t>(k)]}) * matrix.value(n, k);
                  sum += term;
                  magnitude += std::abs(get(x, {m, matrix.order[static_cast<std::size_t>(k)]}) *
                                        matrix.reach(n, k));
                }
                // q x and z x are summed apart. A lane of a group has at most 17 terms, and is
                // added to those of at most 35 groups before; then come up to 16 lanes.
                EXPECT_NEAR(get(out, {m, n}), sum, 60 * kEps * magnitude) << m << ", " << n;
              }
          }
  }
}

// Products of codes and scales have up to 15 bits, which are rounded once.
TEST(IntFragments, EmbeddingsAreTheDefinitionRoundedOnce) {
  Machine machine(CpuIsa::kAvx2);
  for (const Format format : kFormats)
    for (const std::int64_t group : {32, 64, 128})
      for (const DType scale : {DType::kF16, DType::kBF16, DType::kF32}) {
        const IntMatrix matrix(fragments_of(format, group, scale), 37, 200, scale == DType::kBF16);
        Owned ids(DType::kI32, {6}), out(DType::kF32, {6, 200}, 8);
        assign<std::int32_t>(ids, {36, 0, 15, 16, 9, 36});
        embedding(machine.ctx, ids, matrix.w, out);
        EXPECT_TRUE(gaps_untouched(out));
        for (std::int64_t t = 0; t < 6; ++t)
          for (std::int64_t k = 0; k < 200; ++k) {
            const auto value = static_cast<float>(matrix.value(ids.data<std::int32_t>()[t], k));
            ASSERT_EQ(get(out, {t, matrix.order[static_cast<std::size_t>(k)]}),
                      static_cast<float>(BF16(value)));
          }
      }
}

TEST(IntFragments, BitsDoNotDependOnOtherRows) {
  constexpr std::int64_t kRows = 70;  // more than are laid out at once
  for (const CpuIsa isa : kCpuIsas) {
    if (isa > detect_cpu_isa()) continue;
    Machine machine(isa);
    for (const Format format : kFormats) {
      const IntMatrix matrix(fragments_of(format, 64, DType::kF16), 40, 200, true);
      Owned x(DType::kBF16, {kRows, 200}), whole(DType::kF32, {kRows, 40}),
          one(DType::kF32, {1, 40});
      fill(x, 6);
      linear(machine.ctx, x, matrix.w, {}, whole);
      for (const std::int64_t m : {0, 3, 5, 63, 66, 69}) {
        linear(machine.ctx, x.view.rows(m, 1), matrix.w, {}, one);
        for (std::int64_t n = 0; n < 40; ++n) EXPECT_EQ(get(one, {0, n}), get(whole, {m, n}));
      }
    }
  }
}

TEST(IntFragments, SlicesAreRowsOfTheWhole) {
  Machine machine(CpuIsa::kAvx2);
  const IntMatrix matrix(fragments_of(Format::kInt4Zero, 64, DType::kF16), 70, 264, true);
  Owned x(DType::kBF16, {2, 264}), whole(DType::kF32, {2, 70}), part(DType::kF32, {2, 38});
  fill(x, 3);
  linear(machine.ctx, x, matrix.w, {}, whole);
  EXPECT_FALSE(matrix.w.begins_at(24));
  ASSERT_TRUE(matrix.w.begins_at(32));
  linear(machine.ctx, x, matrix.w.slice(32, 38), {}, part);
  for (std::int64_t m = 0; m < 2; ++m)
    for (std::int64_t n = 0; n < 38; ++n) EXPECT_EQ(get(part, {m, n}), get(whole, {m, 32 + n}));
}

}  // namespace
}  // namespace sluice::ops
