#include "kernels/cpu/gemm/super_tiles.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/gemm/quant_rows.h"
#include "kernels/cpu/gemm/super_blocks.h"

namespace sluice::cpu {
namespace {

SuperLayout layout_of(const Weight& w) {
  const SuperKind kind = super_kind_of(w.format);
  const std::int64_t columns = super_traits(kind).columns();
  check(w.group == SuperLayout::kGroup && w.columns % columns == 0,
        "blocks have groups of 32 columns and {} columns, not {} and {}", columns, w.group,
        w.columns);
  return SuperLayout(kind, w.rows, w.columns);
}

// The place of one row and super-block.
struct Place {
  std::byte* block;
  std::int64_t width, beside, lane;
};

Place place_of(const Weight& w, const SuperLayout& layout, std::int64_t index, std::int64_t row,
               std::int64_t block) {
  const std::int64_t tile = row / SuperLayout::kTileRows, panel = tile / SuperLayout::kPanelTiles;
  const std::int64_t width = layout.panel_width(panel);
  return {static_cast<std::byte*>(w.data.data) + index * w.data.stride[0] + layout.panel_at(panel) +
              block * layout.block_bytes(width),
          width, tile % SuperLayout::kPanelTiles, row % SuperLayout::kTileRows};
}

// Calls field(byte of the line's four, shift, column of the group, shift of u, mask) for all bits
// of line `line` of a group; see super_layout.h.
template <class Field>
void for_each_field(const SuperTraits& traits, int line, const Field& field) {
  const bool is_high = line < traits.high_lines;
  const int low_bits = traits.low_lines == 4 ? 4 : 2;
  for (int j = 0; j < 4; ++j) {
    if (is_high && traits.high_lines == 1)
      for (int f = 0; f < 8; ++f) field(j, f, 4 * f + j, low_bits, 1);
    else if (is_high || low_bits == 2)
      for (int f = 0; f < 4; ++f)
        field(j, 2 * f, 16 * (is_high ? line : line - traits.high_lines) + 4 * f + j,
              is_high ? low_bits : 0, 3);
    else
      for (int f = 0; f < 2; ++f)
        field(j, 4 * f, 16 * f + 4 * (line - traits.high_lines) + j, 0, 15);
  }
}

void put(const SuperLayout& layout, const Place& place, const BlockNumbers& values) {
  const SuperTraits& traits = layout.traits;
  const std::int64_t halves = SuperLayout::half_bytes(place.width),
                     scales = SuperLayout::scale_bytes(place.width);
  if (traits.power_of_two)
    place.block[place.beside * 16 + place.lane] = static_cast<std::byte>(values.d);
  else
    std::memcpy(place.block + place.beside * 32 + place.lane * 2, &values.d, 2);
  if (traits.minima)
    std::memcpy(place.block + halves + place.beside * 32 + place.lane * 2, &values.d_min, 2);
  for (int g = 0; g < traits.groups; ++g) {
    std::byte* group =
        place.block + layout.head_bytes(place.width) + g * layout.group_bytes(place.width);
    std::byte* own = group + place.beside * 16 + place.lane;
    for (int h = 0; h < traits.halves; ++h) {
      const int at = g * traits.halves + h;
      own[h * scales] = static_cast<std::byte>(
          traits.packed_minima ? values.scale[at] | values.minimum[at] << 4 : values.scale[at]);
    }
    if (traits.halves > 0 && traits.minima && !traits.packed_minima)
      own[layout.minima_at(place.width)] = static_cast<std::byte>(values.minimum[g]);
    std::byte* lines = group + layout.lines_at(place.width) +
                       place.beside * SuperLayout::kLineBytes + place.lane * 4;
    for (int l = 0; l < traits.high_lines + traits.low_lines; ++l) {
      std::uint8_t four[4] = {};
      for_each_field(traits, l, [&](int j, int shift, int column, int from, int mask) {
        four[j] |= static_cast<std::uint8_t>((values.u[g * 32 + column] >> from & mask) << shift);
      });
      std::memcpy(lines + l * place.width * SuperLayout::kLineBytes, four, 4);
    }
  }
}

void get(const SuperLayout& layout, const Place& place, BlockNumbers& values) {
  const SuperTraits& traits = layout.traits;
  const std::int64_t halves = SuperLayout::half_bytes(place.width),
                     scales = SuperLayout::scale_bytes(place.width);
  if (traits.power_of_two)
    values.d = static_cast<std::uint8_t>(place.block[place.beside * 16 + place.lane]);
  else
    std::memcpy(&values.d, place.block + place.beside * 32 + place.lane * 2, 2);
  if (traits.minima)
    std::memcpy(&values.d_min, place.block + halves + place.beside * 32 + place.lane * 2, 2);
  std::memset(values.u, 0, sizeof values.u);
  for (int g = 0; g < traits.groups; ++g) {
    const std::byte* group =
        place.block + layout.head_bytes(place.width) + g * layout.group_bytes(place.width);
    const std::byte* own = group + place.beside * 16 + place.lane;
    for (int h = 0; h < traits.halves; ++h) {
      const auto byte = static_cast<std::uint8_t>(own[h * scales]);
      const int at = g * traits.halves + h;
      values.scale[at] = traits.packed_minima ? byte & 15 : byte;
      values.minimum[at] = byte >> 4;
    }
    if (traits.halves > 0 && traits.minima && !traits.packed_minima)
      values.minimum[g] = static_cast<std::uint8_t>(own[layout.minima_at(place.width)]);
    const std::byte* lines = group + layout.lines_at(place.width) +
                             place.beside * SuperLayout::kLineBytes + place.lane * 4;
    for (int l = 0; l < traits.high_lines + traits.low_lines; ++l) {
      std::uint8_t four[4];
      std::memcpy(four, lines + l * place.width * SuperLayout::kLineBytes, 4);
      for_each_field(traits, l, [&](int j, int shift, int column, int from, int mask) {
        values.u[g * 32 + column] |= static_cast<std::uint8_t>((four[j] >> shift & mask) << from);
      });
    }
  }
}

std::int64_t input_bytes(const Weight& w) {
  return layout_of(w).x_bytes();
}

void prepare(const Weight& w, const float* x, std::int64_t first, std::int64_t last,
             std::byte* out) {
  const SuperLayout layout = layout_of(w);
  auto* q = reinterpret_cast<std::int8_t*>(out);
  for (std::int64_t column = first; column < last; column += SuperLayout::kGroup) {
    std::int8_t* to = q + column;
    const Bytes bytes = quantize_bytes(x + column - first, SuperLayout::kGroup, to);
    SuperGroup info{.scale = bytes.scale};
    for (int i = 0; i < 32; ++i) info.sum[i / 16] += to[i];
    info.whole = bytes.scale * static_cast<float>(bytes.sum);
    for (int h = 0; h < 2; ++h) info.half[h] = bytes.scale * static_cast<float>(info.sum[h]);
    std::memcpy(out + layout.x_group_at() +
                    column / SuperLayout::kGroup * static_cast<std::int64_t>(sizeof info),
                &info, sizeof info);
  }
}

std::int64_t matrix_bytes(const Weight& w) {
  return layout_of(w).matrix_bytes();
}

std::int64_t block_row_bytes(const Weight& w) {
  const SuperTraits traits = super_traits(super_kind_of(w.format));
  return w.columns / traits.columns() * traits.file_bytes;
}

void pack(const Tensor& from, const Weight& w, std::int64_t index, std::int64_t first) {
  check(from.dtype == DType::kU8, "blocks are packed from a file's, not from {}", from.describe());
  const SuperLayout layout = layout_of(w);
  const SuperKind kind = super_kind_of(w.format);
  const std::int64_t n = from.dim(0), bytes = layout.traits.file_bytes;
  // Block by block over the rows of one tile: the lines are written while they are in the cache.
  for (std::int64_t begin = 0; begin < n;) {
    const std::int64_t end = std::min(
        n, ((first + begin) / SuperLayout::kTileRows + 1) * SuperLayout::kTileRows - first);
    for (std::int64_t b = 0; b < layout.blocks; ++b)
      for (std::int64_t r = begin; r < end; ++r) {
        BlockNumbers values;
        read_block(kind,
                   static_cast<const std::uint8_t*>(from.data) + (r * layout.blocks + b) * bytes,
                   values);
        put(layout, place_of(w, layout, index, first + r, b), values);
      }
    begin = end;
  }
}

float widened(std::uint16_t bits) {
  F16 half;
  half.bits = bits;
  return static_cast<float>(half);
}

// In the operations of the definition, so embedding rows have the values of the file.
void read_row(const Weight& w, std::int64_t row, float* out) {
  const SuperLayout layout = layout_of(w);
  const SuperTraits& traits = layout.traits;
  for (std::int64_t b = 0; b < layout.blocks; ++b) {
    BlockNumbers values;
    get(layout, place_of(w, layout, 0, row, b), values);
    const float d = traits.power_of_two ? std::ldexp(1.0f, values.d - 128) : widened(values.d),
                d_min = widened(values.d_min);
    for (int i = 0; i < traits.columns(); ++i) {
      const auto level = static_cast<float>(traits.value(values.u[i]));
      if (traits.halves == 0) {
        *out++ = traits.minima ? d * level + d_min : d * level;
        continue;
      }
      const int at = i / (32 / traits.halves);
      const int scale =
          traits.minima ? values.scale[at] : static_cast<std::int8_t>(values.scale[at]);
      const float product = d * static_cast<float>(scale) * level;
      *out++ = traits.minima ? product - d_min * static_cast<float>(values.minimum[at]) : product;
    }
  }
}

using Rows = std::array<TileKernels, kNumSuperKinds>;

Rows rows(const SuperProducts& products) {
  Rows out;
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = {.input = DType::kU8,
              .tiles_at_once = SuperLayout::kPanelTiles,
              .pieces = 4,
              .input_bytes = input_bytes,
              .prepare = prepare,
              .matrix_bytes = matrix_bytes,
              .block_row_bytes = block_row_bytes,
              .pack = pack,
              .read_row = read_row,
              .product = products.kinds[i],
              .paired_row = nullptr};
  return out;
}

}  // namespace

const TileKernels& super_tile_kernels(CpuIsa isa, Format format) {
  static const std::array kRows = {rows(avx2_super_products()), rows(avx512_super_products()),
                                   rows(vnni_super_products()), rows(vnni_super_products()),
                                   rows(vnni_super_products())};
  return kRows[static_cast<std::size_t>(isa)][static_cast<std::size_t>(super_kind_of(format))];
}

}  // namespace sluice::cpu
