// Numbers of 8 bits with a scale per matrix, row, column group or block; and MXFP4.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "checkpoint/quantized/quant_parts.h"

namespace sluice {
namespace {

// Layout: sign, `exponent_bits`, then the mantissa; subnormal if the exponent is 0. e4m3 has no
// infinity: only the bytes 0x7F and 0xFF are NaN.
template <int kExponentBits>
constexpr float fp8_value(unsigned byte) {
  constexpr int kMantissaBits = 7 - kExponentBits, kBias = (1 << (kExponentBits - 1)) - 1;
  const unsigned exponent = byte >> kMantissaBits & ((1u << kExponentBits) - 1),
                 mantissa = byte & ((1u << kMantissaBits) - 1);
  float value = 0;
  if (kExponentBits == 4 && (byte & 0x7F) == 0x7F) {
    value = std::numeric_limits<float>::quiet_NaN();
  } else if (kExponentBits == 5 && exponent == 31) {
    value = mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                          : std::numeric_limits<float>::infinity();
  } else {
    value = static_cast<float>(mantissa) / static_cast<float>(1 << kMantissaBits) +
            (exponent > 0 ? 1.0f : 0.0f);
    for (int e = exponent > 0 ? static_cast<int>(exponent) : 1; e > kBias; --e) value *= 2.0f;
    for (int e = exponent > 0 ? static_cast<int>(exponent) : 1; e < kBias; ++e) value *= 0.5f;
  }
  return byte & 0x80 ? -value : value;
}

template <int kExponentBits>
constexpr std::array<float, 256> fp8_table() {
  std::array<float, 256> table{};
  for (unsigned i = 0; i < 256; ++i) table[i] = fp8_value<kExponentBits>(i);
  return table;
}
constexpr std::array<float, 256> kE4M3 = fp8_table<4>();
constexpr std::array<float, 256> kE5M2 = fp8_table<5>();

constexpr std::int64_t kMxGroup = 32;

std::int64_t blocks_of(std::int64_t extent, std::int64_t block) {
  return extent / block + (extent % block != 0);
}

}  // namespace

const float* fp8_values(DType dtype) {
  check(dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2, "{} is no 8-bit float",
        dtype_name(dtype));
  return dtype == DType::kF8E4M3 ? kE4M3.data() : kE5M2.data();
}

void bind_scaled(const QuantizationConfig& config, QuantMatrix& matrix) {
  const TensorInfo &values = *matrix.values, &scale = *matrix.scale;
  const bool is_integer = config.format == "int-quantized";
  if (is_integer ? values.dtype != DType::kI8
                 : values.dtype != DType::kF8E4M3 && values.dtype != DType::kF8E5M2)
    reject_part(matrix, values,
                is_integer ? "int8 was expected" : "float8_e4m3 or float8_e5m2 was expected");
  if (!config.number.empty() && (values.dtype == DType::kF8E5M2) != (config.number == "e5m2"))
    reject_part(matrix, values,
                fmt::format("the configuration says {}, by fmt or by its format", config.number));
  if (values.shape.size() != 2 && values.shape.size() != 3)
    reject_part(matrix, values, "a matrix or a stack was expected");
  if (scale.dtype != DType::kF32 && scale.dtype != DType::kBF16 && scale.dtype != DType::kF16 &&
      (scale.dtype != DType::kU8 || is_integer))
    reject_part(matrix, scale, "a scale is float32, bfloat16, float16 or e8m0");
  matrix.info.shape = values.shape;
  matrix.bits = 8;
  matrix.int8_rows = is_integer && config.int8_rows;
  // The last two extents of the scale, after those of a stack; missing ones are 1.
  std::vector<std::int64_t> extents = scale.shape;
  const std::int64_t matrices = matrix.matrices(), rows = matrix.rows(), columns = matrix.columns();
  const bool is_stack = values.shape.size() == 3;
  const bool one_scale = scale.numel() == 1 && !is_stack;
  if (is_stack) {
    if (extents.empty() || extents.front() != matrices)
      reject_part(matrix, scale,
                  fmt::format("the first extent must be that of the stack, {}", matrices));
    extents.erase(extents.begin());
  }
  if (extents.size() > 2)
    reject_part(matrix, scale, "at most a scale for each block of rows and columns was expected");
  extents.resize(2, 1);  // [rows] counts as [rows, 1]
  if (one_scale) extents = {1, 1};
  const std::int64_t block_rows = config.block_rows > 0 ? config.block_rows : 128;
  const std::int64_t block_columns = config.block_columns > 0 ? config.block_columns : 128;
  const bool in_blocks = config.block_rows > 0 && extents[0] == blocks_of(rows, block_rows) &&
                         extents[1] == blocks_of(columns, block_columns);
  if (in_blocks) {
    matrix.block_rows = block_rows;
    matrix.block_columns = block_columns;
  } else if (extents[0] == 1 && extents[1] == 1) {
    matrix.block_rows = std::max<std::int64_t>(1, rows);
    matrix.block_columns = std::max<std::int64_t>(1, columns);
  } else if (extents[0] == rows && extents[1] > 0 && columns % extents[1] == 0) {
    matrix.block_rows = 1;
    matrix.block_columns = std::max<std::int64_t>(1, columns / extents[1]);
  } else {
    reject_part(
        matrix, scale,
        fmt::format("for {} one scale, one a row, one for each group of a row{} was expected",
                    values.describe(),
                    config.block_rows > 0
                        ? fmt::format(", or [{}, {}] for its blocks", blocks_of(rows, block_rows),
                                      blocks_of(columns, block_columns))
                        : ""));
  }
}

void widen_scaled(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                  float* out) {
  const std::int64_t first_row = tile.matrix * matrix.rows() + tile.row;
  const std::vector<std::byte> values =
      PartReader(checkpoint, *matrix.values)
          .bytes(first_row, tile.num_rows, tile.column, tile.num_columns);
  const std::int64_t scale_rows = blocks_of(matrix.rows(), matrix.block_rows);
  const std::int64_t scale_columns = blocks_of(matrix.columns(), matrix.block_columns);
  const std::int64_t first = tile.row / matrix.block_rows,
                     last = (tile.row + tile.num_rows - 1) / matrix.block_rows;
  // The scale in two dimensions, whatever extents of 1 it has in the file.
  TensorInfo scale_info = *matrix.scale;
  scale_info.shape = {matrix.matrices() * scale_rows, scale_columns};
  const std::vector<float> scale =
      PartReader(checkpoint, scale_info)
          .floats(tile.matrix * scale_rows + first, last - first + 1, 0, scale_columns);
  require_scales(matrix, scale);
  const float* table =
      matrix.values->dtype == DType::kI8 ? nullptr : fp8_values(matrix.values->dtype);
  for (std::int64_t r = 0; r < tile.num_rows; ++r) {
    const std::byte* row = values.data() + r * tile.num_columns;
    const float* row_scale =
        scale.data() + ((tile.row + r) / matrix.block_rows - first) * scale_columns;
    for (std::int64_t c = 0; c < tile.num_columns;) {
      const std::int64_t block = (tile.column + c) / matrix.block_columns;
      const std::int64_t end =
          std::min(tile.num_columns, (block + 1) * matrix.block_columns - tile.column);
      const float factor = row_scale[block];
      if (table != nullptr)
        for (; c < end; ++c) out[c] = table[std::to_integer<unsigned>(row[c])] * factor;
      else
        for (; c < end; ++c) out[c] = static_cast<float>(static_cast<std::int8_t>(row[c])) * factor;
    }
    out += tile.num_columns;
  }
}

void codes_of_bytes(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                    QuantCodes& out) {
  const std::int64_t first_row = tile.matrix * matrix.rows() + tile.row;
  const std::vector<std::byte> values =
      PartReader(checkpoint, *matrix.values)
          .bytes(first_row, tile.num_rows, tile.column, tile.num_columns);
  out.codes.resize(values.size());
  const bool is_integer = matrix.values->dtype == DType::kI8;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto code = std::to_integer<std::uint8_t>(values[i]);
    out.codes[i] = is_integer ? code ^ 0x80 : code;
    require(is_integer || (code & 0x7F) != 0x7F,
            "the tensor {} has NaN at element {} of the {} that were read; the checkpoint is "
            "damaged",
            matrix.values->name, i, values.size());
  }
  const std::int64_t scale_rows = blocks_of(matrix.rows(), matrix.block_rows),
                     groups = blocks_of(matrix.columns(), matrix.block_columns);
  // The scale in two dimensions, whatever extents of 1 it has in the file.
  TensorInfo scale_info = *matrix.scale;
  scale_info.shape = {matrix.matrices() * scale_rows, groups};
  const std::int64_t first = tile.row / matrix.block_rows,
                     last = (tile.row + tile.num_rows - 1) / matrix.block_rows;
  const std::vector<float> scale =
      PartReader(checkpoint, scale_info)
          .floats(tile.matrix * scale_rows + first, last - first + 1, 0, groups);
  out.scales.clear();
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t r = 0; r < tile.num_rows; ++r)
      out.scales.push_back(scale[static_cast<std::size_t>(
          ((tile.row + r) / matrix.block_rows - first) * groups + g)]);
  out.zeros.assign(out.scales.size(), 128);
  out.groups.clear();
  for (std::int64_t c = 0; c < tile.num_columns; ++c)
    out.groups.push_back(static_cast<std::int32_t>((tile.column + c) / matrix.block_columns));
}

void bind_mxfp4(const QuantizationConfig&, QuantMatrix& matrix) {
  const TensorInfo &values = *matrix.values, &scale = *matrix.scale;
  const std::vector<std::int64_t>& shape = values.shape;
  if (values.dtype != DType::kU8 || shape.size() < 3 || shape.size() > 4 ||
      shape.back() != kMxGroup / 2)
    reject_part(matrix, values, "uint8 [matrices, rows, groups, 16] was expected");
  const std::int64_t groups = shape[shape.size() - 2];
  if (scale.dtype != DType::kU8 || scale.shape != std::vector(shape.begin(), shape.end() - 1))
    reject_part(
        matrix, scale,
        fmt::format("uint8, and a scale for each group of {}, was expected", values.describe()));
  if (groups > (std::int64_t{1} << 40)) reject_part(matrix, values, "its rows are too long");
  matrix.info.shape.assign(shape.begin(), shape.end() - 2);
  matrix.info.shape.push_back(groups * kMxGroup);
  matrix.block_columns = kMxGroup;
}

namespace {

// The groups of a tile: 16 bytes of codes and a scale each, row by row.
struct MxGroups {
  std::int64_t first = 0, count = 0;  // of a row
  std::string_view name;
  std::vector<std::byte> values, scale;

  MxGroups(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
           std::int64_t first_group, std::int64_t last_group)
      : first(first_group), count(last_group - first_group), name(matrix.info.name) {
    constexpr std::int64_t kBytes = kMxGroup / 2;
    const std::int64_t first_row = tile.matrix * matrix.rows() + tile.row,
                       groups = matrix.columns() / kMxGroup;
    TensorInfo values_info = *matrix.values;  // a row of groups as one row
    values_info.shape = {matrix.matrices() * matrix.rows(), groups * kBytes};
    TensorInfo scale_info = *matrix.scale;
    scale_info.shape = {matrix.matrices() * matrix.rows(), groups};
    if (tile.num_columns > 0)
      values = PartReader(checkpoint, values_info)
                   .bytes(first_row, tile.num_rows, first * kBytes, count * kBytes);
    scale = PartReader(checkpoint, scale_info).bytes(first_row, tile.num_rows, first, count);
  }
  // Of a column within the groups.
  unsigned code(std::int64_t row, std::int64_t column) const {
    const unsigned pair = std::to_integer<unsigned>(
        values[static_cast<std::size_t>((row * count * kMxGroup + column) / 2)]);
    return column % 2 == 0 ? pair & 15 : pair >> 4;
  }
  float scale_at(std::int64_t row, std::int64_t group) const {
    const auto code =
        std::to_integer<unsigned>(scale[static_cast<std::size_t>(row * count + group)]);
    require(code != 0xFF,
            "the matrix {} (MXFP4): a scale of row {} of the {} that were read is NaN; the "
            "checkpoint is damaged",
            name, row, static_cast<std::int64_t>(scale.size()) / count);
    return e8m0_value(code);
  }
};

}  // namespace

void widen_mxfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                 float* out) {
  const MxGroups groups(checkpoint, matrix, tile, tile.column / kMxGroup,
                        (tile.column + tile.num_columns - 1) / kMxGroup + 1);
  for (std::int64_t r = 0; r < tile.num_rows; ++r)
    for (std::int64_t c = 0; c < tile.num_columns; ++c) {
      const std::int64_t at = tile.column + c - groups.first * kMxGroup;
      *out++ = kE2M1[groups.code(r, at)] * groups.scale_at(r, at / kMxGroup);
    }
}

void check_scales_of_mxfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix,
                           const QuantTile& tile) {
  const std::int64_t all = matrix.columns() / kMxGroup;
  const QuantTile rows{tile.matrix, tile.row, tile.num_rows, 0, 0};
  const MxGroups groups(checkpoint, matrix, rows, 0, all);
  const auto nan = std::ranges::find(groups.scale, std::byte{0xFF});
  if (nan == groups.scale.end()) return;
  const std::int64_t at = nan - groups.scale.begin();
  groups.scale_at(at / all, at % all);
}

void codes_of_mxfp4(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                    QuantCodes& out) {
  const std::int64_t all = matrix.columns() / kMxGroup;
  const MxGroups groups(checkpoint, matrix, tile, 0, all);
  out = {};
  for (std::int64_t g = 0; g < all; ++g)
    for (std::int64_t r = 0; r < tile.num_rows; ++r) out.scales.push_back(groups.scale_at(r, g));
  out.zeros.resize(out.scales.size());
  for (std::int64_t r = 0; r < tile.num_rows; ++r)
    for (std::int64_t c = 0; c < tile.num_columns; ++c)
      out.codes.push_back(static_cast<std::uint8_t>(groups.code(r, tile.column + c)));
  for (std::int64_t c = 0; c < tile.num_columns; ++c)
    out.groups.push_back(static_cast<std::int32_t>((tile.column + c) / kMxGroup));
}

}  // namespace sluice
