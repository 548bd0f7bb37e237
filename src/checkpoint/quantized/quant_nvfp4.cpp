// NVFP4: e2m1 in pairs, low nibble first, and an e4m3 scale for each 16 columns of a row. One
// float32 is the scale of these scales.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "checkpoint/quantized/quant_parts.h"

namespace sluice {
namespace {

constexpr std::int64_t kNvGroup = 16;

}  // namespace

void bind_nvfp4(const QuantizationConfig&, QuantMatrix& matrix) {
  const TensorInfo &values = *matrix.values, &scale = *matrix.scale;
  if (values.dtype != DType::kU8 || values.shape.size() != 2 ||
      values.shape[1] % (kNvGroup / 2) != 0)
    reject_part(matrix, values, "uint8 [rows, columns / 2] in groups of 16 columns was expected");
  const std::int64_t rows = values.shape[0], groups = values.shape[1] / (kNvGroup / 2);
  if (scale.dtype != DType::kF8E4M3 || scale.shape != std::vector{rows, groups})
    reject_part(matrix, scale, fmt::format("float8_e4m3 [{}, {}] was expected", rows, groups));
  for (const TensorInfo* part : {matrix.zeros, matrix.index})
    if (part != nullptr)
      reject_part(matrix, *part, "NVFP4 has no zero points, and its columns are in order");
  matrix.info.shape = {rows, groups * kNvGroup};
  matrix.block_columns = kNvGroup;
}

namespace {

// The codes of a tile, and the scales of groups [first_group, first_group + num_groups).
class NvGroups {
 public:
  NvGroups(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
           std::int64_t first_group, std::int64_t num_groups)
      : matrix_(matrix),
        tile_(tile),
        first_group_(first_group),
        num_groups_(num_groups),
        first_pair_(tile.column / 2),
        num_pairs_((tile.column + tile.num_columns + 1) / 2 - first_pair_),
        scales_(PartReader(checkpoint, *matrix.scale)
                    .bytes(tile.row, tile.num_rows, first_group, num_groups)) {
    if (tile.num_columns > 0)
      values_ = PartReader(checkpoint, *matrix.values)
                    .bytes(tile.row, tile.num_rows, first_pair_, num_pairs_);
  }
  // Of a row of the tile and a column of the matrix.
  unsigned code(std::int64_t row, std::int64_t column) const {
    const auto pair = std::to_integer<unsigned>(
        values_[static_cast<std::size_t>(row * num_pairs_ + column / 2 - first_pair_)]);
    return column % 2 == 0 ? pair & 15 : pair >> 4;
  }
  // A scale of zero, of either sign, stands for a group whose numbers were too small.
  float scale(std::int64_t row, std::int64_t group) const {
    const float scale = fp8_values(DType::kF8E4M3)[std::to_integer<unsigned>(
        scales_[static_cast<std::size_t>(row * num_groups_ + group - first_group_)])];
    require(scale >= 0,
            "the matrix {} ({}): {} has the scale {} in row {}; a number that is not negative "
            "was expected, the checkpoint is damaged",
            matrix_.info.name, matrix_.format->name, matrix_.scale->name, scale, tile_.row + row);
    return std::abs(scale);
  }
  void check_scales() const {
    // 0x7F is NaN, and above 0x80, which is -0, all are negative or NaN.
    bool is_damaged = false;
    for (const std::byte byte : scales_)
      is_damaged |= byte == std::byte{0x7F} || byte > std::byte{0x80};
    for (std::int64_t row = 0; is_damaged && row < tile_.num_rows; ++row)
      for (std::int64_t group = 0; group < num_groups_; ++group) scale(row, group);
  }

 private:
  const QuantMatrix& matrix_;
  const QuantTile& tile_;
  std::int64_t first_group_, num_groups_, first_pair_, num_pairs_;
  std::vector<std::byte> scales_, values_;
};

}  // namespace

void widen_nvfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                 float* out) {
  const std::int64_t first_group = tile.column / kNvGroup,
                     end_group = (tile.column + tile.num_columns - 1) / kNvGroup + 1;
  const NvGroups groups(checkpoint, matrix, tile, first_group, end_group - first_group);
  for (std::int64_t r = 0; r < tile.num_rows; ++r)
    for (std::int64_t c = 0; c < tile.num_columns;) {
      const std::int64_t group = (tile.column + c) / kNvGroup,
                         end = std::min(tile.num_columns, (group + 1) * kNvGroup - tile.column);
      const float scale = groups.scale(r, group), factor = matrix.format->divides_global
                                                               ? scale / matrix.global_scale
                                                               : scale * matrix.global_scale;
      for (; c < end; ++c) *out++ = kE2M1[groups.code(r, tile.column + c)] * factor;
    }
}

void check_scales_of_nvfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix,
                           const QuantTile& tile) {
  const std::int64_t all = matrix.columns() / kNvGroup;
  const QuantTile rows{tile.matrix, tile.row, tile.num_rows, 0, 0};
  NvGroups(checkpoint, matrix, rows, 0, all).check_scales();
}

void codes_of_nvfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                    QuantCodes& out) {
  const std::int64_t all = matrix.columns() / kNvGroup;
  const NvGroups groups(checkpoint, matrix, tile, 0, all);
  out = {};
  out.factor = matrix.format->divides_global ? 1 / matrix.global_scale : matrix.global_scale;
  out.scales.reserve(static_cast<std::size_t>(all * tile.num_rows));
  for (std::int64_t g = 0; g < all; ++g)
    for (std::int64_t r = 0; r < tile.num_rows; ++r) out.scales.push_back(groups.scale(r, g));
  out.zeros.resize(out.scales.size());
  out.codes.reserve(static_cast<std::size_t>(tile.num_rows * tile.num_columns));
  for (std::int64_t r = 0; r < tile.num_rows; ++r)
    for (std::int64_t c = 0; c < tile.num_columns; ++c)
      out.codes.push_back(static_cast<std::uint8_t>(groups.code(r, tile.column + c)));
  for (std::int64_t c = 0; c < tile.num_columns; ++c)
    out.groups.push_back(static_cast<std::int32_t>((tile.column + c) / kNvGroup));
}

}  // namespace sluice
