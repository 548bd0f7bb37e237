// Integer weights of 4 or 8 bits in the order of MMA fragments (Layout::kFragments), and their
// arithmetic. A weight is (q - z) scale, with a scale and a zero point for each group of columns of
// a row. A product of two rows is
//
//   sum over groups g of  scale[g] (sum over k in g of x[k] (q[k] - z[g]))
//
// x is bfloat16, or float16 of which each row is multiplied by a power of two. Both types hold the
// differences. The sums are float32.
//
//   kFp8        experts alone: e4m3 instead of q - z, which bfloat16 holds too; groups of 128
//   kInt8       q - z in [-128, 127]; a byte holds q = difference + 128
//   kInt4       z = 8
//   kInt4Zero   z in [0, 15], of each group
//   kMxFp4      e2m1 instead of q - z (kernels/types/fp4.h); groups of 32
//   kNvFp4      e2m1 instead of q - z; groups of 16. The scale of a row's group is e4m3 times a
//               factor. e2m1 times e4m3 has six significant bits, so bfloat16 and float16 hold it.
//
// The matrix is cut into units of 16 rows by 128 columns, those of a tile of rows one after the
// other. A unit is one run of bytes:
//
//   codes    of each lane of a warp its fragments of m16n8k16, 16 bytes of all lanes together
//   scales   float16 or bfloat16 (Weight::scale; on a CPU float32, too), kFp8: float32, kMxFp4:
//            ue8m0; [groups of the unit][16 rows]. kNvFp4: e4m3; [2][16 rows][4 groups]
//   zeros    a byte each, [groups of the unit][16 rows]; kInt4Zero only
//   factors  float32, one for each kFactorRows rows; kNvFp4 only
//
// w13 of experts has eight gate rows, then the eight up rows of the same columns, in each tile: so
// one lane has both of a column. Rows g and g + 8 are neighbours among the scales and zeros, as a
// lane needs both. Groups of integers have 32, 64 or 128 columns; the scale of a larger group is
// repeated. Rows and columns past the end are zeros with scale 0 (kMxFp4: 2^-127).
#pragma once

#include <cstdint>

#include "kernels/types/block_units.h"
#include "kernels/types/weight.h"

namespace sluice::ops {

inline constexpr int kFactorRows = 4;

struct FragmentUnit {
  int bits = 4;
  bool has_zeros = false;
  int groups = 1;  // of a unit
  int scale_bytes = 2;
  bool has_factors = false;
  std::int64_t block_bytes = 0;  // of kernels/types/block_units.h; the rest is theirs

  constexpr std::int64_t code_bytes() const { return kFragmentRows * kFragmentColumns * bits / 8; }
  constexpr std::int64_t zeros_at() const {
    return code_bytes() + groups * kFragmentRows * scale_bytes;
  }
  constexpr std::int64_t factors_at() const {
    return zeros_at() + (has_zeros ? groups * kFragmentRows : 0);
  }
  constexpr std::int64_t bytes() const {
    if (block_bytes > 0) return block_bytes;
    return factors_at() + (has_factors ? kFragmentRows / kFactorRows * 4 : 0);
  }
  // What is subtracted where no zero point is stored.
  constexpr int middle() const { return 1 << (bits - 1); }

  // Place of a row of the unit among 16.
  static constexpr int place(int row) { return row % 8 * 2 + row / 8; }
  constexpr std::int64_t scale_at(int group, int row) const {
    if (has_factors) return code_bytes() + (group / 4 * kFragmentRows + place(row)) * 4 + group % 4;
    return code_bytes() + (group * kFragmentRows + place(row)) * scale_bytes;
  }
  constexpr std::int64_t zero_at(int group, int row) const {
    return zeros_at() + group * kFragmentRows + place(row);
  }
  // Those of rows g and g + 8 are neighbours, too.
  constexpr std::int64_t factor_at(int row) const {
    return factors_at() + (row % 8 / kFactorRows * 2 + row / 8) * 4;
  }

  // Where the code of a row and column is: its byte, and for 4 bits the shift inside.
  struct Code {
    std::int64_t byte;
    int shift;
  };
  constexpr Code code_at(int row, int column) const {
    // Registers of the lane: row, row + 8, then the same 8 columns later; each holds two columns.
    const int step = column / 16, lane = row % 8 * 4 + column % 8 / 2,
              reg = row / 8 + column % 16 / 8 * 2, odd = column % 2;
    const std::int64_t piece = (step / (16 / bits) * std::int64_t{32} + lane) * 16;
    if (bits == 8) return {piece + step % 2 * 8 + reg * 2 + odd, 0};
    const int nibble = reg + odd * 4;
    return {piece + step % 4 * 4 + nibble / 2, nibble % 2 * 4};
  }
};

// Writes the codes of a unit. codes: 16 rows of 128 codes, `stride` apart.
inline void put_fragment_codes(const FragmentUnit& form, const std::uint8_t* codes,
                               std::int64_t stride, std::uint8_t* unit) {
  for (int step = 0; step < kFragmentColumns / 16; ++step)
    for (int lane = 0; lane < 32; ++lane) {
      // The first of two neighbours of each register.
      const std::uint8_t* of[4];
      for (int reg = 0; reg < 4; ++reg)
        of[reg] =
            codes + (lane / 4 + reg % 2 * 8) * stride + step * 16 + lane % 4 * 2 + reg / 2 * 8;
      const FragmentUnit::Code first = form.code_at(lane / 4, step * 16 + lane % 4 * 2);
      std::uint8_t* to = unit + first.byte;
      if (form.bits == 8) {
        for (int reg = 0; reg < 4; ++reg) to[reg * 2] = of[reg][0], to[reg * 2 + 1] = of[reg][1];
        continue;
      }
      for (int half = 0; half < 2; ++half) {  // even columns, odd columns
        to[half * 2] = static_cast<std::uint8_t>(of[0][half] | of[1][half] << 4);
        to[half * 2 + 1] = static_cast<std::uint8_t>(of[2][half] | of[3][half] << 4);
      }
    }
}

constexpr FragmentUnit fragment_unit(Format format, std::int64_t group) {
  if (const BlockUnit blocks = block_unit(format); blocks.exists())
    return {.bits = blocks.bits(), .block_bytes = blocks.bytes()};
  return {.bits = format == Format::kInt8 || format == Format::kFp8 ? 8 : 4,
          .has_zeros = format == Format::kInt4Zero,
          .groups = group >= kFragmentColumns ? 1 : static_cast<int>(kFragmentColumns / group),
          .scale_bytes = format == Format::kFp8                                 ? 4
                         : format == Format::kMxFp4 || format == Format::kNvFp4 ? 1
                                                                                : 2,
          .has_factors = format == Format::kNvFp4};
}
constexpr FragmentUnit fragment_unit(const Weight& w) {
  FragmentUnit unit = fragment_unit(w.format, w.group);
  if (unit.scale_bytes == 2 && w.scale == DType::kF32) unit.scale_bytes = 4;
  return unit;
}
constexpr std::int64_t fragment_tiles(std::int64_t rows) {
  return (rows + kFragmentRows - 1) / kFragmentRows;
}
constexpr std::int64_t fragment_units(std::int64_t columns) {  // of a tile
  return (columns + kFragmentColumns - 1) / kFragmentColumns;
}
// Rows of w13 of experts that are gate and up of column n.
constexpr std::int64_t gate_row_of_fragments(std::int64_t n) {
  return n / 8 * kFragmentRows + n % 8;
}
constexpr std::int64_t up_row_of_fragments(std::int64_t n) {
  return gate_row_of_fragments(n) + 8;
}
inline std::int64_t fragment_bytes(const Weight& w) {
  return fragment_tiles(w.rows) * fragment_units(w.columns) * fragment_unit(w).bytes();
}

}  // namespace sluice::ops
