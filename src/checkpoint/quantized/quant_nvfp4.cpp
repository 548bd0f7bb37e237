// NVFP4: e2m1 in pairs, low nibble first, and an e4m3 scale for each 16 columns of a row. One
// float32 is the scale of these scales.
#include <algorithm>

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
  matrix.bits = 4;
  matrix.block_columns = kNvGroup;
}

// A scale of zero stands for a group whose numbers were too small.
void widen_nvfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                 float* out) {
  const std::int64_t first_pair = tile.column / 2,
                     pairs = (tile.column + tile.num_columns + 1) / 2 - first_pair,
                     first_group = tile.column / kNvGroup,
                     groups = (tile.column + tile.num_columns - 1) / kNvGroup + 1 - first_group;
  const std::vector<std::byte>
      values =
          PartReader(checkpoint, *matrix.values).bytes(tile.row, tile.num_rows, first_pair, pairs),
      scales =
          PartReader(checkpoint, *matrix.scale).bytes(tile.row, tile.num_rows, first_group, groups);
  for (std::int64_t r = 0; r < tile.num_rows; ++r)
    for (std::int64_t c = 0; c < tile.num_columns;) {
      const std::int64_t group = (tile.column + c) / kNvGroup,
                         end = std::min(tile.num_columns, (group + 1) * kNvGroup - tile.column);
      const float scale = fp8_values(DType::kF8E4M3)[std::to_integer<unsigned>(
          scales[static_cast<std::size_t>(r * groups + group - first_group)])];
      require(scale >= 0,
              "the matrix {} ({}): {} has the scale {} in row {}; a number that is not negative "
              "was expected, the checkpoint is damaged",
              matrix.info.name, matrix.format->name, matrix.scale->name, scale, tile.row + r);
      const float factor =
          matrix.format->divides_global ? scale / matrix.global_scale : scale * matrix.global_scale;
      for (; c < end; ++c) {
        const std::int64_t column = tile.column + c;
        const auto pair = std::to_integer<unsigned>(
            values[static_cast<std::size_t>(r * pairs + column / 2 - first_pair)]);
        *out++ = kE2M1[column % 2 == 0 ? pair & 15 : pair >> 4] * factor;
      }
    }
}

}  // namespace sluice
