#include "layers/weights/block_fragments.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "checkpoint/tensors/quantized_blocks.h"
#include "kernels/cpu/gemm/super_blocks.h"
#include "kernels/types/block_fragments.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

constexpr std::int64_t kRows = ops::kFragmentRows, kColumns = ops::kFragmentColumns;

// Reads rows of units from blocks of a file, a tile at a time.
class TileReader {
 public:
  TileReader(const ops::Weight& w, const Tensor& blocks)
      : format_(w.format),
        form_(ops::block_unit(w.format)),
        columns_(w.columns),
        from_(static_cast<const std::uint8_t*>(blocks.data)),
        row_bytes_(blocks.dim(1)) {}

  // Row `row` of the blocks, which is row `at` of the tile. Units of a row are read in order.
  void read(std::int64_t row, std::int64_t at, std::int64_t unit, ops::BlockRow& out) {
    const std::uint8_t* from = from_ + row * row_bytes_;
    if (form_.num_d() > 1) return read_blocks(from, unit, out);
    cpu::BlockNumbers& block = blocks_[static_cast<std::size_t>(at)];
    const int half = static_cast<int>(unit % 2);
    if (half == 0)
      cpu::read_block(cpu::super_kind_of(format_), from + unit / 2 * bytes_of(256), block);
    out.d[0].bits = block.d, out.d_min[0].bits = block.d_min;
    std::memcpy(out.codes, block.u + half * kColumns, kColumns);
    for (int g = 0; g < form_.groups; ++g) {
      out.scales[g] = static_cast<std::int8_t>(block.scale[half * form_.groups + g]);
      out.minima[g] = static_cast<std::int8_t>(block.minimum[half * form_.groups + g]);
    }
  }

 private:
  std::int64_t bytes_of(std::int64_t columns) const { return row_bytes_ * columns / columns_; }

  // Blocks of 32 columns; those past the last one are zeros.
  void read_blocks(const std::uint8_t* from, std::int64_t unit, ops::BlockRow& out) const {
    out = {};
    for (int g = 0; g < form_.groups; ++g) {
      const std::int64_t column = unit * kColumns + g * kBlockValues;
      if (column >= columns_) return;
      const std::uint8_t* const at = from + bytes_of(column);
      std::uint8_t* const codes = out.codes + g * kBlockValues;
      if (format_ == ops::Format::kInt4Min) {
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

  ops::Format format_;
  ops::BlockUnit form_;
  std::int64_t columns_;
  const std::uint8_t* from_;
  std::int64_t row_bytes_;
  std::array<cpu::BlockNumbers, kRows> blocks_;  // of the tile's rows
};

}  // namespace

void put_block_rows(const ops::Weight& w, std::int64_t first, const Tensor& blocks) {
  const ops::BlockUnit form = ops::block_unit(w.format);
  const std::int64_t rows = blocks.dim(0), units = ops::fragment_units(w.columns),
                     tile_bytes = units * form.bytes();
  HostImage image(
      w.data.at(0).slice(0, first / kRows * tile_bytes, ops::fragment_tiles(rows) * tile_bytes));
  auto* to = static_cast<std::uint8_t*>(image.tensor().data);
  TileReader reader(w, blocks);
  for (std::int64_t row = 0; row < rows; row += kRows) {
    std::array<ops::BlockRow, kRows> tile{};  // rows past the last one are zeros
    for (std::int64_t unit = 0; unit < units; ++unit, to += form.bytes()) {
      for (std::int64_t r = 0; r < std::min(kRows, rows - row); ++r)
        reader.read(row + r, r, unit, tile[static_cast<std::size_t>(r)]);
      ops::put_block_unit(w.format, tile.data(), to);
    }
  }
  image.put();
}

}  // namespace sluice
