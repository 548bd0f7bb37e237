#include "kernels/cpu/gemm/quant_tiles.h"

#include <array>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/gemm/quant_rows.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kBlockColumns = 32;  // columns of a GGUF block

QuantKind kind_of(Format format) {
  switch (format) {
    case Format::kInt8:
      return QuantKind::kInt8;
    case Format::kInt4:
      return QuantKind::kInt4;
    case Format::kInt4Min:
      return QuantKind::kInt4Min;
    default:
      fail(ErrorKind::kBug, "format {} has no tiles", static_cast<int>(format));
  }
}

QuantLayout layout_of(const Weight& w) {
  check(w.group == 32 || w.group == 128,
        "quantised weights have groups of 32 or 128 columns, not {}", w.group);
  return QuantLayout(kind_of(w.format), w.rows, w.columns, w.group);
}

std::int64_t input_bytes(const Weight& w) {
  return layout_of(w).x_bytes();
}

void prepare(const Weight& w, const float* x, std::int64_t first, std::int64_t last,
             std::byte* out) {
  quantize_columns(kind_of(w.format), layout_of(w), x, first, last, out);
}

std::int64_t matrix_bytes(const Weight& w) {
  return layout_of(w).matrix_bytes();
}

// Addresses of the bytes of one row and group.
struct GroupPlace {
  std::byte* scale;
  std::byte* minimum;
  std::byte* line;  // line 0
  std::int64_t line_step;
};

GroupPlace place_of(const Weight& w, const QuantLayout& layout, std::int64_t index,
                    std::int64_t row, std::int64_t group) {
  const std::int64_t tile = row / QuantLayout::kTileRows, panel = tile / QuantLayout::kPanelTiles;
  // Within a panel: groups, then scales, minima and lines; see quant_layout.h.
  const std::int64_t lane = row % QuantLayout::kTileRows, beside = tile % QuantLayout::kPanelTiles;
  const std::int64_t width = layout.panel_width(panel);
  std::byte* at = static_cast<std::byte*>(w.data.data) + index * w.data.stride[0] +
                  layout.panel_at(panel) + group * layout.group_bytes(width);
  std::byte* scale = at + beside * 32 + lane * 2;
  return {scale, scale + QuantLayout::scale_bytes(width),
          at + layout.lines_at(width) + beside * QuantLayout::kLineBytes + lane * 4,
          width * QuantLayout::kLineBytes};
}

// Line l holds four columns of a row in each of its 32-bit lanes; nibble layouts pair columns of
// both halves of the group.
void put_values(const QuantLayout& layout, const GroupPlace& place, const std::uint8_t* u) {
  if (!layout.traits.nibbles) {
    for (std::int64_t l = 0; l < layout.lines(); ++l)
      std::memcpy(place.line + l * place.line_step, u + 4 * l, 4);
    return;
  }
  for (std::int64_t l = 0; l < layout.lines(); ++l) {
    std::uint32_t low, high;
    std::memcpy(&low, u + 4 * l, 4);
    std::memcpy(&high, u + layout.group / 2 + 4 * l, 4);
    low |= high << 4;
    std::memcpy(place.line + l * place.line_step, &low, 4);
  }
}

// The inverse of put_values().
void get_values(const QuantLayout& layout, const GroupPlace& place, std::uint8_t* u) {
  for (std::int64_t l = 0; l < layout.lines(); ++l) {
    std::uint32_t line;
    std::memcpy(&line, place.line + l * place.line_step, 4);
    const std::uint32_t low = layout.traits.nibbles ? line & 0x0F0F0F0Fu : line,
                        high = line >> 4 & 0x0F0F0F0Fu;
    std::memcpy(u + 4 * l, &low, 4);
    if (layout.traits.nibbles) std::memcpy(u + layout.group / 2 + 4 * l, &high, 4);
  }
}

template <class T>
void pack_floats(const T* row, const Weight& w, const QuantLayout& layout, std::int64_t group,
                 const GroupPlace& place) {
  float values[128];
  std::uint8_t u[128];
  const std::int64_t first = group * layout.group,
                     count = std::min(layout.group, w.columns - first);
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(row[first + i]);
  const QuantKind kind = kind_of(w.format);
  const F16 scale = quantize_group(kind, values, count, u);
  // Columns after the row's end get the offset, which stands for the value zero.
  std::memset(u + count, layout.traits.offset, static_cast<std::size_t>(layout.group - count));
  std::memcpy(place.scale, &scale, sizeof scale);
  put_values(layout, place, u);
}

// Packs a GGUF block: float16 scale, float16 minimum if the kind has one, then signed bytes, or
// nibbles whose low halves are columns 0 to 15.
void pack_block(const std::byte* block, const QuantLayout& layout, const GroupPlace& place) {
  std::memcpy(place.scale, block, 2);
  block += 2;
  if (layout.traits.minima) {
    std::memcpy(place.minimum, block, 2);
    block += 2;
  }
  std::uint8_t u[kBlockColumns];
  for (std::int64_t i = 0; i < kBlockColumns; ++i) {
    if (!layout.traits.nibbles)
      // Signed to unsigned: flipping the top bit adds 128.
      u[i] = static_cast<std::uint8_t>(static_cast<std::uint8_t>(block[i]) ^ 0x80u);
    else
      u[i] = static_cast<std::uint8_t>(i < 16 ? static_cast<std::uint8_t>(block[i]) & 15
                                              : static_cast<std::uint8_t>(block[i - 16]) >> 4);
  }
  put_values(layout, place, u);
}

void pack(const Tensor& from, const Weight& w, std::int64_t index, std::int64_t first) {
  const QuantLayout layout = layout_of(w);
  const std::int64_t n = from.dim(0);
  // Group by group over the rows of one tile: the lines of a group are written while they are in
  // the cache.
  for (std::int64_t begin = 0; begin < n;) {
    const std::int64_t end = std::min(
        n, ((first + begin) / QuantLayout::kTileRows + 1) * QuantLayout::kTileRows - first);
    for (std::int64_t g = 0; g < layout.groups; ++g)
      for (std::int64_t r = begin; r < end; ++r) {
        const GroupPlace place = place_of(w, layout, index, first + r, g);
        if (from.dtype == DType::kU8)
          pack_block(static_cast<const std::byte*>(from.data) +
                         (r * layout.groups + g) * layout.traits.block_bytes,
                     layout, place);
        else if (from.dtype == DType::kBF16)
          pack_floats(from.ptr<BF16>() + r * w.columns, w, layout, g, place);
        else
          pack_floats(from.ptr<float>() + r * w.columns, w, layout, g, place);
      }
    begin = end;
  }
}

std::int64_t block_row_bytes(const Weight& w) {
  return w.group == kBlockColumns && w.columns % kBlockColumns == 0
             ? w.columns / kBlockColumns * layout_of(w).traits.block_bytes
             : 0;
}

void read_row(const Weight& w, std::int64_t row, float* out) {
  const QuantLayout layout = layout_of(w);
  std::uint8_t u[128];
  for (std::int64_t g = 0; g < layout.groups; ++g) {
    const GroupPlace place = place_of(w, layout, 0, row, g);
    get_values(layout, place, u);
    F16 scale, minimum;
    std::memcpy(&scale, place.scale, sizeof scale);
    if (layout.traits.minima) std::memcpy(&minimum, place.minimum, sizeof minimum);
    const auto d = static_cast<float>(scale), m = static_cast<float>(minimum);
    const std::int64_t count = std::min(layout.group, w.columns - g * layout.group);
    // The same operations as in the definition, so embedding rows have its bits.
    for (std::int64_t i = 0; i < count; ++i) {
      const float product = static_cast<float>(u[i] - layout.traits.offset) * d;
      out[g * layout.group + i] = layout.traits.minima ? product + m : product;
    }
  }
}

TileKernels row(QuantTileProduct product, std::int64_t panels_at_once,
                decltype(TileKernels::paired_row) paired_row) {
  return {.input = DType::kU8,
          .tiles_at_once = panels_at_once * QuantLayout::kPanelTiles,
          // With AMX the LM head is 4 % faster panel by panel. Elsewhere that makes int8 2 to 4 %
          // slower.
          .pieces = paired_row == nullptr ? 4 : 0,
          .input_bytes = input_bytes,
          .prepare = prepare,
          .matrix_bytes = matrix_bytes,
          .block_row_bytes = block_row_bytes,
          .pack = pack,
          .read_row = read_row,
          .product = product,
          .paired_row = paired_row};
}

std::array<TileKernels, 3> rows(const QuantProducts& products, std::int64_t panels_at_once = 1,
                                const QuantPairedRows& paired = {}) {
  return {row(products.int8, panels_at_once, paired.int8),
          row(products.int4, panels_at_once, paired.int4),
          row(products.int4_min, panels_at_once, paired.int4_min)};
}

}  // namespace

const TileKernels& quant_tile_kernels(CpuIsa isa, Format format) {
  static const std::array kRows = {rows(avx2_quant_products()), rows(avx512_quant_products()),
                                   rows(vnni_quant_products()), rows(vnni_quant_products()),
                                   rows(amx_quant_products(), 2, amx_quant_paired_rows())};
  return kRows[static_cast<std::size_t>(isa)][static_cast<std::size_t>(kind_of(format))];
}

}  // namespace sluice::cpu
