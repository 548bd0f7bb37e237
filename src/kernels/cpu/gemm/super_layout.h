// Weights in GGUF's blocks and the rows of x for their GEMM: the values, the arithmetic and the
// bytes.
//
// A row of w is cut into super-blocks of 256 columns, and these into 8 groups of 32. A super-block
// has a float16 d, a group one scale s, or one for each half of 16 columns:
//
//   kQ2K    d s u - d_min m    u of 2 bits, s and m of 4, by half
//   kQ3K    d s (u - 4)        u of 3 bits, s of 6 with a sign, by half
//   kQ4K    d s u - d_min m    u of 4 bits, s and m of 6
//   kQ5K    d s u - d_min m    u of 5 bits, s and m of 6
//   kQ6K    d s (u - 32)       u of 6 bits, s of 8 with a sign, by half
//   kIQ4XS  d s iq4[u]         u of 4 bits, s of 6 with a sign
//
// Other types have blocks of 32 columns: one group, which has no scale beside d:
//
//   kQ50    d (u - 16)         u of 5 bits
//   kQ51    d u + m            u of 5 bits, m float16
//   kIQ4NL  d iq4[u]           u of 4 bits
//   kMxFp4  d e2m1[u]          u of 4 bits, d = 2^(byte - 128), e2m1 in halves: 0, 1, 2, 3, 4 ...
//
// These are the values of the types of these names, bit for bit. A row of x is quantised to signed
// bytes q with one float32 scale e for 32 columns, as for other integers (quant_rows.h). Then
//
//   super-blocks, ascending:  groups, ascending:  S = fma(float(sum over halves of s I), e, S)
//                                                 T = fma(float(m), e * float(Q), T), by half
//                             acc = fma(S, d, acc), then acc = fma(-T, d_min, acc)
//   blocks of 32, ascending:  acc = fma(float(I) * e, d, acc), then acc = fma(e * float(Q), m, acc)
//
// in float32, with S = T = 0 at first. I = sum of (u - offset) q or table[u] q, and Q = sum of q,
// of a half or of a group. Products s I are below 2^24, so they are exact as float32. So an element
// has the same bits for any other rows of x, any number of threads and every instruction set.
//
// Memory of w: panels of 4 tiles of 16 rows, as quant_layout.h has them. A panel stores its
// blocks one after the other, and of each
// - d, 16 float16 per tile, padded to a multiple of 64 bytes, then d_min or m likewise; kMxFp4: d
//   as 16 bytes per tile, padded likewise,
// - for each group: scales where it has some, a byte a row, padded likewise, of each half; then
//   minima (kQ2K: in the high nibbles of the scales); then lines of 64 bytes, line l of all tiles
//   side by side: first those with high bits of u, then those with low ones.
//
// Byte j of a row's four bytes of a line holds, of the columns c of the group with c % 4 = j,
// - lines of nibbles, l = 0 to 3: column 4 l + j, and above it column 16 + 4 l + j;
// - lines of pairs of bits, l = 0 and 1: columns 16 l + 4 f + j at bits 2 f;
// - a line of single high bits: column 4 f + j at bit f, for f = 0 to 7;
// - two lines of pairs of high bits, as those of pairs of bits.
// This takes 4 bytes more for 256 weights than a file where scales have 6 bits, else as many.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa/tiles.h"
#include "kernels/types/block_units.h"

namespace sluice::cpu {

enum class SuperKind : std::uint8_t {
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIQ4XS,
  kQ50,
  kQ51,
  kIQ4NL,
  kMxFp4,
};
inline constexpr std::size_t kNumSuperKinds = 10;

// Source: ggml, `kvalues_mxfp4` of ggml-common.h.
inline constexpr std::int8_t kHalvesOfE2m1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                  0, -1, -2, -3, -4, -6, -8, -12};

// Which values a kind has. Names, since addresses are no constants under UBSan.
enum class SuperValues : std::uint8_t { kNone, kIQ4, kHalvesOfE2m1 };

struct SuperTraits {
  int offset;  // subtracted from u, or from the bytes that a product makes of a table's values
  int low_lines, high_lines;
  int halves;  // scales of a group; 0: it has none
  bool minima;
  bool packed_minima;                       // in the bytes of the scales
  std::int64_t file_bytes;                  // of a block
  int groups = 8;                           // of a block
  SuperValues values = SuperValues::kNone;  // of u
  bool power_of_two = false;                // d is 2^(byte - 128)

  constexpr std::int64_t columns() const { return groups * 32; }
  // The integer of a weight.
  constexpr int value(int u) const {
    if (values == SuperValues::kNone) return u - offset;
    return values == SuperValues::kIQ4 ? ops::kIq4Numbers[u] : kHalvesOfE2m1[u];
  }
};

constexpr SuperTraits super_traits(SuperKind kind) {
  switch (kind) {
    case SuperKind::kQ2K:
      return {0, 2, 0, 2, true, true, 84};
    case SuperKind::kQ3K:
      return {4, 2, 1, 2, false, false, 110};
    case SuperKind::kQ4K:
      return {0, 4, 0, 1, true, false, 144};
    case SuperKind::kQ5K:
      return {0, 4, 1, 1, true, false, 176};
    case SuperKind::kQ6K:
      return {32, 4, 2, 2, false, false, 210};
    case SuperKind::kIQ4XS:
      return {128, 4, 0, 1, false, false, 136, 8, SuperValues::kIQ4};
    case SuperKind::kQ50:
      return {16, 4, 1, 0, false, false, 22, 1};
    case SuperKind::kQ51:
      return {0, 4, 1, 0, true, false, 24, 1};
    case SuperKind::kIQ4NL:
      return {128, 4, 0, 0, false, false, 18, 1, SuperValues::kIQ4};
    case SuperKind::kMxFp4:
      return {12, 4, 0, 0, false, false, 17, 1, SuperValues::kHalvesOfE2m1, true};
  }
  return {};
}

// Of 32 columns of a row of x, beside their bytes. One form for all kinds, so that the parts of a
// fused matrix read the same rows.
struct SuperGroup {
  float scale = 0;     // e
  float whole = 0;     // e * float(Q)
  float half[2] = {};  // the same of the halves
  std::int32_t sum[2] = {};
};

struct SuperLayout {
  static constexpr std::int64_t kGroup = 32;
  static constexpr std::int64_t kTileRows = kTileWeightRows, kPanelTiles = 4, kLineBytes = 64;

  SuperTraits traits;
  std::int64_t blocks = 0;  // of a row
  std::int64_t tiles = 0;

  SuperLayout(SuperKind kind, std::int64_t rows, std::int64_t columns)
      : traits(super_traits(kind)), blocks(columns / traits.columns()), tiles(num_tiles(rows)) {}

  std::int64_t panel_width(std::int64_t panel) const {
    return std::min(kPanelTiles, tiles - panel * kPanelTiles);
  }
  static constexpr std::int64_t padded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }
  // Bytes of d of a block, if it is float16; of one byte a row.
  static constexpr std::int64_t half_bytes(std::int64_t width) { return padded(width * 32); }
  static constexpr std::int64_t scale_bytes(std::int64_t width) { return padded(width * 16); }
  std::int64_t head_bytes(std::int64_t width) const {
    if (traits.power_of_two) return scale_bytes(width);
    return half_bytes(width) * (traits.minima ? 2 : 1);
  }
  // Of a group: where its minima and its lines begin.
  std::int64_t minima_at(std::int64_t width) const { return traits.halves * scale_bytes(width); }
  std::int64_t lines_at(std::int64_t width) const {
    const bool has_minima = traits.halves > 0 && traits.minima && !traits.packed_minima;
    return minima_at(width) + (has_minima ? scale_bytes(width) : 0);
  }
  std::int64_t group_bytes(std::int64_t width) const {
    return lines_at(width) + width * (traits.low_lines + traits.high_lines) * kLineBytes;
  }
  std::int64_t block_bytes(std::int64_t width) const {
    return head_bytes(width) + traits.groups * group_bytes(width);
  }
  std::int64_t panel_at(std::int64_t panel) const {
    return panel * blocks * block_bytes(kPanelTiles);
  }
  std::int64_t matrix_bytes() const {
    const std::int64_t whole = tiles / kPanelTiles, rest = tiles % kPanelTiles;
    return panel_at(whole) + (rest > 0 ? blocks * block_bytes(rest) : 0);
  }
  std::int64_t x_group_at() const { return blocks * traits.columns(); }
  std::int64_t x_bytes() const {
    return blocks *
           (traits.columns() + traits.groups * static_cast<std::int64_t>(sizeof(SuperGroup)));
  }
};

}  // namespace sluice::cpu
