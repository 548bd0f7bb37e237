// Quantised weights and the quantised rows of x for their GEMM: the values, the arithmetic and the
// bytes.
//
// A row of w is cut into groups of w.group columns (32 or 128). The last group is padded with
// columns that meet zeros of x. A group has a float16 scale d and, per column, an unsigned byte or
// nibble u:
//
//   kInt8Tiles      (u - 128) * d       0 <= u < 256
//   kInt4Tiles      (u - 8) * d         0 <= u < 16
//   kInt4MinTiles   u * d + m           0 <= u < 16, m float16
//
// With groups of 32 these are the values of GGUF's Q8_0, Q4_0 and Q4_1, bit for bit. A row of x is
// quantised to signed bytes q in [-127, 127] with one float32 scale e per group (quant_rows.h).
// Then
//
//   out[m, n] = sum over groups, ascending:  acc = fma(float(I), d * e, acc)
//               and for kInt4MinTiles then   acc = fma(m, e * float(Q), acc)
//
// in float32. I = sum of (u - offset) * q and Q = sum of q over the group, both exact in 32 bits.
// So an element has the same bits for any other rows of x, any number of threads and every
// instruction set.
//
// Memory of w: panels of 4 tiles of 16 rows; the last panel has only the tiles that are left. A
// panel stores its groups one after the other. A group stores
// - the scales, 16 float16 per tile, padded to a multiple of 64 bytes,
// - kInt4MinTiles: the minima in the same way,
// - lines of 64 bytes, line l of all tiles side by side.
//
// In a byte layout, line l holds columns [4 l, 4 l + 4) of 16 rows. In a nibble layout it holds
// those in its low nibbles and columns [group / 2 + 4 l, group / 2 + 4 l + 4) in its high nibbles.
// So a GEMV reads a panel as one stream.
//
// Memory of a row of x: the bytes q of all groups, then an XGroup per group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa/tiles.h"

namespace sluice::cpu {

enum class QuantKind : std::uint8_t { kInt8, kInt4, kInt4Min };

// Properties that follow from the kind alone.
struct QuantTraits {
  int offset;  // subtracted from u before scaling
  bool nibbles;
  bool minima;
  std::int64_t block_bytes;  // bytes of 32 columns in a GGUF file
};

constexpr QuantTraits quant_traits(QuantKind kind) {
  switch (kind) {
    case QuantKind::kInt8:
      return {128, false, false, 34};
    case QuantKind::kInt4:
      return {8, true, false, 18};
    case QuantKind::kInt4Min:
      return {0, true, true, 20};
  }
  return {};
}

// Data of one group of a row of x, beside its bytes.
struct XGroup {
  float scale = 0;  // e
  // -offset * Q, the start value for the sum of u * q. kInt4Min: the bits of float32 e * float(Q).
  std::int32_t start = 0;
};

struct QuantLayout {
  static constexpr std::int64_t kTileRows = kTileWeightRows;
  static constexpr std::int64_t kLineBytes = 64;
  static constexpr std::int64_t kPanelTiles = 4;

  QuantTraits traits;
  std::int64_t group = 0;
  std::int64_t groups = 0;  // groups of a row
  std::int64_t tiles = 0;

  QuantLayout(QuantKind kind, std::int64_t rows, std::int64_t columns,
              std::int64_t columns_of_group)
      : traits(quant_traits(kind)),
        group(columns_of_group),
        groups((columns + columns_of_group - 1) / columns_of_group),
        tiles((rows + kTileRows - 1) / kTileRows) {}

  std::int64_t lines() const {
    return traits.nibbles ? group / 8 : group / 4;
  }  // lines of one tile and group
  std::int64_t panel_width(std::int64_t panel) const {
    return std::min(kPanelTiles, tiles - panel * kPanelTiles);
  }
  // Bytes of the scales (or of the minima) of one group of a panel `width` tiles wide.
  static std::int64_t scale_bytes(std::int64_t width) { return (width * 32 + 63) / 64 * 64; }
  std::int64_t lines_at(std::int64_t width) const {
    return scale_bytes(width) * (traits.minima ? 2 : 1);
  }
  std::int64_t group_bytes(std::int64_t width) const {
    return lines_at(width) + width * lines() * kLineBytes;
  }
  std::int64_t panel_at(std::int64_t panel) const {
    return panel * groups * group_bytes(kPanelTiles);
  }
  std::int64_t matrix_bytes() const {
    const std::int64_t whole = tiles / kPanelTiles, rest = tiles % kPanelTiles;
    return panel_at(whole) + (rest > 0 ? groups * group_bytes(rest) : 0);
  }
  std::int64_t x_group_at() const { return groups * group; }
  std::int64_t x_bytes() const {
    return groups * (group + static_cast<std::int64_t>(sizeof(XGroup)));
  }
};

}  // namespace sluice::cpu
