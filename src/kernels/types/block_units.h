// Blocks of GGUF files in the order of MMA fragments: Layout::kFragments of these formats. A unit
// has 16 rows of 128 columns, which are half a super-block, or four blocks of 32 columns. A weight
// is
//
//   bfloat16(fma(128 + u, s, c)),  s = d scale,  c = fma(-(128 + offset), s, -(d_min minimum))
//
// in float32, for the code u of a column, and scale and minimum of its group. Without minima the
// second product is 0. That is the number of the file, rounded once but for a last bit of c: codes
// as numbers 128 + u cost two instructions a pair on a GPU. Where a table has the number of a code,
// that takes the place of 128 + u, and c is 0.
//
//   form             code            groups of  scale, minimum           offset
//   kQ2K             2 bits          16         4 bits each              0
//   kQ3K             2 + 1 bits      16         6 bits, less 32; none    4
//   kQ4K             4 bits          32         6 bits each              0
//   kQ5K             4 + 1 bits      32         6 bits each              0
//   kQ6K             4 + 2 bits      16         8 bits with a sign; none 32
//   kInt4Min (Q4_1)  4 bits          32         1 and -1: d, and m for d_min, of each group
//   kQ50             4 + 1 bits      32         1; none: d of each group 16
//   kQ51             4 + 1 bits      32         as kInt4Min              0
//   kIQ4XS           4 bits          32         8 bits with a sign; none table
//   kIQ4NL           4 bits          32         1; none: d of each group table
//
// A unit is one run of bytes, without gaps:
//
//   low     lowest 4 or 2 bits of codes. 4: as kernels/types/int_fragments.h has them. 2: 16 bytes
//           of each lane
//   high    upper bits: 16 bytes (2 bits) or 8 (1 bit) of each lane
//   scales  [16 rows], of each 8 bytes (kQ6K, kQ2K: scale | minimum << 4), or 4: kQ3K the low
//           nibbles of its scales; kQ4K and kQ5K bytes, scale | (minimum & 3) << 6; kIQ4XS bytes
//   more    [16 rows] 16 bits: kQ3K pairs of upper bits; kQ4K, kQ5K nibbles minimum >> 2; else none
//   d       [16 rows], of each, or of each of its groups, float16, with d_min where there are
//   minima
//
// Rows have the places of FragmentUnit: rows g and g + 8 are neighbours.
#pragma once

#include <cstdint>

#include "kernels/types/super_formats.h"

namespace sluice::ops {

struct BlockUnit {
  int low_bits = 0, high_bits = 0;      // of a code
  int groups = 0;                       // of a unit; 0: no such format
  int offset = 0;                       // of codes
  int scale_bytes = 0, more_bytes = 0;  // of a row
  bool has_minima = false;
  bool has_table = false;  // kIq4Numbers

  constexpr bool exists() const { return groups > 0; }
  // Of a code as plans count them (kernels/cuda/gemm/int_plan.h): 4 or 8.
  constexpr int bits() const { return low_bits + high_bits <= 4 ? 4 : 8; }
  constexpr int num_d() const { return scale_bytes > 0 ? 1 : groups; }  // of a row
  constexpr int each_d_bytes() const { return has_minima ? 4 : 2; }
  constexpr int d_bytes() const { return num_d() * each_d_bytes(); }
  constexpr int low_bytes() const { return 256 * low_bits; }
  constexpr int scales_at() const { return 256 * (low_bits + high_bits); }
  constexpr int more_at() const { return scales_at() + 16 * scale_bytes; }
  constexpr int d_at() const { return more_at() + 16 * more_bytes; }
  constexpr int bytes() const { return d_at() + 16 * d_bytes(); }
};

constexpr BlockUnit block_unit(Format format) {
  if (format == kQ2K) return {2, 0, 8, 0, 8, 0, true};
  if (format == kQ3K) return {2, 1, 8, 4, 4, 2, false};
  if (format == kQ4K) return {4, 0, 4, 0, 4, 2, true};
  if (format == kQ5K) return {4, 1, 4, 0, 4, 2, true};
  if (format == kQ6K) return {4, 2, 8, 32, 8, 0, false};
  if (format == Format::kInt4Min) return {4, 0, 4, 0, 0, 0, true};
  if (format == kQ50) return {4, 1, 4, 16, 0, 0, false};
  if (format == kQ51) return {4, 1, 4, 0, 0, 0, true};
  if (format == kIQ4XS) return {4, 0, 4, 0, 4, 0, false, true};
  if (format == kIQ4NL) return {4, 0, 4, 0, 0, 0, false, true};
  return {};
}

// What a code has above its value as a number: 128 is the least power of two whose bfloat16 has a
// bit for each bit of a code.
inline constexpr float kCodeBase = 128;

// Numbers of the codes of IQ4_NL and IQ4_XS. Source: ggml, `kvalues_iq4nl`.
inline constexpr std::int8_t kIq4Numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace sluice::ops
