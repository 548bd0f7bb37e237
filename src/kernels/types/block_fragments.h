// Writing and reading units of kernels/types/block_units.h, in plain loops.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/types/block_units.h"
#include "kernels/types/int_fragments.h"

namespace sluice::ops {

// A row of a unit.
struct BlockRow {
  F16 d[4], d_min[4];  // BlockUnit::num_d() of them
  std::uint8_t codes[kFragmentColumns] = {};
  std::int8_t scales[8] = {}, minima[8] = {};  // of groups
};

// The value of a column.
inline BF16 block_value(const BlockUnit& form, const BlockRow& row, int column) {
  const int group = column / (static_cast<int>(kFragmentColumns) / form.groups),
            at = form.num_d() == 1 ? 0 : group, scale = row.scales[group],
            minimum = row.minima[group], code = row.codes[column];
  const auto d = static_cast<float>(row.d[at]), d_min = static_cast<float>(row.d_min[at]);
  const float s = d * static_cast<float>(scale),
              c = form.has_table ? 0
                                 : std::fma(-(kCodeBase + static_cast<float>(form.offset)), s,
                                            -(d_min * static_cast<float>(minimum))),
              number = static_cast<float>(form.has_table ? kIq4Numbers[code] : kCodeBase + code);
  return BF16(std::fma(number, s, c));
}

namespace block_fragments {

// Where a code's bits of a plane of 1 or 2 bits are.
constexpr FragmentUnit::Code plane_at(int bits, int row, int column) {
  const int step = column / 16, lane = row % 8 * 4 + column % 8 / 2,
            reg = row / 8 + column % 16 / 8 * 2, steps = 4 / bits;  // of a word
  const int shift = (step % steps * 4 + reg) * bits + column % 2 * 16;
  return {std::int64_t{lane} * 8 * bits + step / steps * 4 + shift / 8, shift % 8};
}
constexpr FragmentUnit::Code low_at(const BlockUnit& form, int row, int column) {
  if (form.low_bits == 4) return FragmentUnit{.bits = 4}.code_at(row, column);
  return plane_at(form.low_bits, row, column);
}

// Writes bits [from, from + kBits) of the codes of a unit into a plane of 1 or 2 bits, word by
// word.
template <int kBits>
void put_plane(const std::uint8_t* codes, int from, std::uint8_t* plane) {
  constexpr int kSteps = 4 / kBits;  // of a word
  for (int lane = 0; lane < 32; ++lane)
    for (int first = 0; first < 8; first += kSteps, plane += 4) {
      std::uint32_t word = 0;
      for (int step = 0; step < kSteps; ++step)
        for (int reg = 0; reg < 4; ++reg) {
          const std::uint8_t* two = codes + (lane / 4 + reg % 2 * 8) * kFragmentColumns +
                                    (first + step) * 16 + lane % 4 * 2 + reg / 2 * 8;
          const auto bits = [&](std::uint8_t code) {
            return static_cast<std::uint32_t>(code >> from & ((1 << kBits) - 1));
          };
          word |= (bits(two[0]) | bits(two[1]) << 16) << (step * 4 + reg) * kBits;
        }
      std::memcpy(plane, &word, sizeof word);
    }
}

// Of a row, behind the codes.
inline void put_scales(Format format, int row, const BlockRow& from, std::uint8_t* unit) {
  const BlockUnit form = block_unit(format);
  const int place = FragmentUnit::place(row);
  std::uint64_t scales = 0;
  std::uint32_t more = 0;
  for (int g = 0; g < form.groups; ++g) {
    const auto scale = static_cast<std::uint8_t>(from.scales[g]);
    const auto minimum = static_cast<unsigned>(from.minima[g]);
    if (format == kQ3K) {
      const auto raised = static_cast<unsigned>(from.scales[g] + 32);
      scales |= std::uint64_t{raised & 15} << 4 * g;
      more |= (raised >> 4) << 2 * g;
    } else if (form.more_bytes > 0) {
      scales |= std::uint64_t{scale | (minimum & 3) << 6} << 8 * g;
      more |= (minimum >> 2) << 4 * g;
    } else {
      scales |= std::uint64_t{static_cast<std::uint8_t>(scale | minimum << 4)} << 8 * g;
    }
  }
  std::memcpy(unit + form.scales_at() + place * form.scale_bytes, &scales,
              static_cast<std::size_t>(form.scale_bytes));
  std::memcpy(unit + form.more_at() + place * form.more_bytes, &more,
              static_cast<std::size_t>(form.more_bytes));
  std::uint8_t* d = unit + form.d_at() + place * form.d_bytes();
  for (int i = 0; i < form.num_d(); ++i, d += form.each_d_bytes()) {
    std::memcpy(d, &from.d[i].bits, 2);
    if (form.has_minima) std::memcpy(d + 2, &from.d_min[i].bits, 2);
  }
}

}  // namespace block_fragments

// Writes a unit of 16 rows.
inline void put_block_unit(Format format, const BlockRow* rows, std::uint8_t* unit) {
  const BlockUnit form = block_unit(format);
  std::uint8_t codes[kFragmentRows * kFragmentColumns];
  for (int r = 0; r < kFragmentRows; ++r) {
    std::memcpy(codes + r * kFragmentColumns, rows[r].codes, kFragmentColumns);
    block_fragments::put_scales(format, r, rows[r], unit);
  }
  if (form.high_bits == 2) block_fragments::put_plane<2>(codes, 4, unit + form.low_bytes());
  if (form.high_bits == 1)
    block_fragments::put_plane<1>(codes, form.low_bits, unit + form.low_bytes());
  if (form.low_bits == 2) return block_fragments::put_plane<2>(codes, 0, unit);
  for (std::uint8_t& code : codes) code &= 15;
  put_fragment_codes(FragmentUnit{.bits = 4}, codes, kFragmentColumns, unit);
}

// Reads a row of a unit.
inline BlockRow block_row_of(Format format, int row, const std::uint8_t* unit) {
  const BlockUnit form = block_unit(format);
  BlockRow out;
  for (int k = 0; k < kFragmentColumns; ++k) {
    const FragmentUnit::Code low = block_fragments::low_at(form, row, k);
    int code = unit[low.byte] >> low.shift & ((1 << form.low_bits) - 1);
    if (form.high_bits > 0) {
      const FragmentUnit::Code high = block_fragments::plane_at(form.high_bits, row, k);
      code |= (unit[form.low_bytes() + high.byte] >> high.shift & ((1 << form.high_bits) - 1))
              << form.low_bits;
    }
    out.codes[k] = static_cast<std::uint8_t>(code);
  }
  const int place = FragmentUnit::place(row);
  std::uint64_t scales = 0;
  std::uint32_t more = 0;
  std::memcpy(&scales, unit + form.scales_at() + place * form.scale_bytes,
              static_cast<std::size_t>(form.scale_bytes));
  std::memcpy(&more, unit + form.more_at() + place * form.more_bytes,
              static_cast<std::size_t>(form.more_bytes));
  for (int g = 0; g < form.groups; ++g) {
    const auto byte = static_cast<unsigned>(scales >> 8 * g & 255);
    if (form.scale_bytes == 0) {
      out.scales[g] = 1, out.minima[g] = -1;
    } else if (format == kQ3K) {
      out.scales[g] = static_cast<std::int8_t>(
          static_cast<int>((scales >> 4 * g & 15) | (more >> 2 * g & 3) << 4) - 32);
    } else if (form.more_bytes > 0) {
      out.scales[g] = static_cast<std::int8_t>(byte & 63);
      out.minima[g] = static_cast<std::int8_t>(byte >> 6 | (more >> 4 * g & 15) << 2);
    } else if (form.has_minima) {
      out.scales[g] = static_cast<std::int8_t>(byte & 15);
      out.minima[g] = static_cast<std::int8_t>(byte >> 4);
    } else {
      out.scales[g] = static_cast<std::int8_t>(byte);
    }
  }
  const std::uint8_t* d = unit + form.d_at() + place * form.d_bytes();
  for (int i = 0; i < form.num_d(); ++i, d += form.each_d_bytes()) {
    std::memcpy(&out.d[i].bits, d, 2);
    if (form.has_minima) std::memcpy(&out.d_min[i].bits, d + 2, 2);
  }
  return out;
}

}  // namespace sluice::ops
