#include "layers/weights/block_fragments.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "checkpoint/tensors/quantized_blocks.h"
#include "kernels/cpu/gemm/super_blocks.h"
#include "kernels/types/block_fragments.h"
#include "kernels/types/fp4.h"
#include "layers/weights/block_formats.h"
#include "layers/weights/fragments.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

using ops::Format;

constexpr std::int64_t kRows = ops::kFragmentRows, kColumns = ops::kFragmentColumns;

// Reads the rows of a tile from blocks of a file, unit by unit.
class TileReader {
 public:
  TileReader(const ops::Weight& w, std::int64_t skipped_columns)
      : format_(w.format),
        form_(ops::block_unit(w.format)),
        columns_(w.columns),
        skipped_(skipped_columns / kColumns) {}

  // A unit of `from`, which is row `at` of the tile. Units of a row are read in order.
  void read(const std::uint8_t* from, std::int64_t at, std::int64_t unit, ops::BlockRow& out) {
    if (form_.num_d() > 1) return read_blocks(from, unit, out);
    cpu::BlockNumbers& block = blocks_[static_cast<std::size_t>(at)];
    const std::int64_t of_row = skipped_ + unit;
    const int half = static_cast<int>(of_row % 2);
    if (half == 0 || unit == 0)
      cpu::read_block(cpu::super_kind_of(format_), from + of_row / 2 * bytes_of_block(), block);
    out.d[0].bits = block.d, out.d_min[0].bits = block.d_min;
    std::memcpy(out.codes, block.u + half * kColumns, kColumns);
    for (int g = 0; g < form_.groups; ++g) {
      out.scales[g] = static_cast<std::int8_t>(block.scale[half * form_.groups + g]);
      out.minima[g] = static_cast<std::int8_t>(block.minimum[half * form_.groups + g]);
    }
  }

 private:
  std::int64_t bytes_of_block() const { return block_bytes(*blocks_of_format(format_)); }

  // Blocks of 32 columns; those past the last one are zeros.
  void read_blocks(const std::uint8_t* from, std::int64_t unit, ops::BlockRow& out) const {
    out = {};
    for (int g = 0; g < form_.groups; ++g) {
      const std::int64_t column = unit * kColumns + g * kBlockValues;
      if (column >= columns_) return;
      const std::uint8_t* const at = from + column / kBlockValues * bytes_of_block();
      std::uint8_t* const codes = out.codes + g * kBlockValues;
      if (format_ == Format::kInt4Min) {
        BlockQ4_1 block;
        std::memcpy(&block, at, sizeof block);
        out.d[g] = block.d, out.d_min[g] = block.m;
        for (int i = 0; i < 16; ++i) codes[i] = block.q[i] & 15, codes[i + 16] = block.q[i] >> 4;
        continue;
      }
      cpu::BlockNumbers block;
      cpu::read_block(cpu::super_kind_of(format_), at, block);
      out.d[g].bits = block.d, out.d_min[g].bits = block.d_min;
      std::memcpy(codes, block.u, kBlockValues);
    }
  }

  Format format_;
  ops::BlockUnit form_;
  std::int64_t columns_, skipped_;               // units of the first block that are not read
  std::array<cpu::BlockNumbers, kRows> blocks_;  // of the tile's rows
};

// The 32 codes of a block of integers or of e2m1, and its scale.
float read_codes(Format format, const std::uint8_t* block, std::uint8_t* codes) {
  const auto put_nibbles = [&](const std::uint8_t* q) {
    for (int i = 0; i < 16; ++i) codes[i] = q[i] & 15, codes[i + 16] = q[i] >> 4;
  };
  if (format == Format::kMxFp4) {
    put_nibbles(block + 1);
    return ops::mx_scale(block[0]);
  }
  F16 scale;
  std::memcpy(&scale, block, sizeof scale);
  if (format == Format::kInt4)
    put_nibbles(block + 2);
  else
    for (int i = 0; i < 32; ++i) codes[i] = static_cast<std::uint8_t>(block[2 + i] + 128);
  return static_cast<float>(scale);
}

// Of integers and e2m1.
void put_code_rows(const ops::Weight& w, std::int64_t index, std::int64_t first, std::int64_t rows,
                   const BlockRowOf& row_of) {
  const std::int64_t blocks = w.columns / kBlockValues,
                     bytes = block_bytes(*blocks_of_format(w.format));
  QuantCodes codes = empty_codes(w, rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::uint8_t* const from = row_of(r);
    for (std::int64_t g = 0; g < blocks; ++g)
      codes.scales[static_cast<std::size_t>(g * rows + r)] = read_codes(
          w.format, from + g * bytes, codes.codes.data() + r * w.columns + g * kBlockValues);
  }
  put_fragment_rows(w, index, first, rows, [&](std::int64_t r) { return CodeRow{&codes, r, rows}; },
                    {});
}

}  // namespace

std::optional<BlockColumns> block_columns(BlockType blocks, AxisRange columns) {
  const std::int64_t values = block_values(blocks), cut = std::min(values, kColumns),
                     end = columns.begin + columns.count;
  if (columns.begin % cut != 0 || columns.count % cut != 0) return {};
  const std::int64_t first = columns.begin / values * values,
                     last = (end + values - 1) / values * values;
  return BlockColumns{{first, last - first}, columns.begin - first};
}

void put_block_rows(const ops::Weight& w, std::int64_t index, std::int64_t first, std::int64_t rows,
                    std::int64_t skipped_columns, const BlockRowOf& row_of) {
  const ops::BlockUnit form = ops::block_unit(w.format);
  if (!form.exists()) return put_code_rows(w, index, first, rows, row_of);
  const std::int64_t units = ops::fragment_units(w.columns), tile_bytes = units * form.bytes();
  HostImage image(w.data.at(index).slice(0, first / kRows * tile_bytes,
                                         ops::fragment_tiles(rows) * tile_bytes));
  auto* to = static_cast<std::uint8_t*>(image.tensor().data);
  TileReader reader(w, skipped_columns);
  for (std::int64_t row = 0; row < rows; row += kRows) {
    std::array<ops::BlockRow, kRows> tile{};  // rows past the last one are zeros
    for (std::int64_t unit = 0; unit < units; ++unit, to += form.bytes()) {
      for (std::int64_t r = 0; r < std::min(kRows, rows - row); ++r)
        reader.read(row_of(row + r), r, unit, tile[static_cast<std::size_t>(r)]);
      ops::put_block_unit(w.format, tile.data(), to);
    }
  }
  image.put();
}

void put_block_rows(const ops::Weight& w, std::int64_t index, std::int64_t first,
                    std::int64_t skipped_columns, const Tensor& blocks) {
  const auto* const from = static_cast<const std::uint8_t*>(blocks.data);
  put_block_rows(w, index, first, blocks.dim(0), skipped_columns,
                 [&](std::int64_t r) { return from + r * blocks.dim(1); });
}

}  // namespace sluice
