// Integers of a few bits packed into words of 32: compressed-tensors, AWQ and GPTQ.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/quantized/quant_parts.h"

namespace sluice {
namespace {

constexpr int kAwqBits = 4;
// Nibble of an AWQ word that holds column i of eight.
constexpr int kAwqNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

// Transposed matrices are transposed back in squares of so many columns, so that reads and writes
// stay local.
constexpr std::int64_t kTurnColumns = 16;

void require_words(const QuantMatrix& matrix, const TensorInfo& part) {
  if (part.dtype != DType::kI32 || part.shape.size() != 2)
    reject_part(matrix, part, "an int32 matrix was expected");
}

void require_scale(const QuantMatrix& matrix) {
  const DType dtype = matrix.scale->dtype;
  if (matrix.scale->shape.size() != 2 ||
      (dtype != DType::kF16 && dtype != DType::kBF16 && dtype != DType::kF32))
    reject_part(matrix, *matrix.scale, "a matrix of float16, bfloat16 or float32 was expected");
}

void require_shape(const QuantMatrix& matrix, const TensorInfo& part, std::int64_t rows,
                   std::int64_t columns) {
  if (part.shape != std::vector{rows, columns})
    reject_part(matrix, part, fmt::format("[{}, {}] was expected", rows, columns));
}

std::int64_t groups_of(std::int64_t columns, int size) {
  return size < 0 ? 1 : columns / size + (columns % size != 0);
}

// Sets contiguous column groups. Without an index the group size must be unambiguous.
void set_groups(const QuantizationConfig& config, QuantMatrix& matrix, std::int64_t groups) {
  if (groups < 1) reject_part(matrix, *matrix.scale, "there are no groups");
  matrix.signed_scales = config.signed_scales;
  const std::vector<int>& sizes = config.group_sizes;
  if (!sizes.empty() && std::ranges::none_of(sizes, [&](int size) {
        return groups == groups_of(matrix.columns(), size);
      }))
    reject_part(matrix, *matrix.scale,
                fmt::format("it has {} groups, and {} columns are {} of the configuration's "
                            "group_size {}",
                            groups, matrix.columns(), groups_of(matrix.columns(), sizes.front()),
                            sizes.front()));
  if (config.has_order && matrix.index == nullptr)
    reject_part(matrix, *matrix.values,
                "the configuration has an order of columns (desc_act or actorder), and their index "
                "of groups is missing");
  if (matrix.index != nullptr) {
    if (matrix.index->dtype != DType::kI32 || matrix.index->shape != std::vector{matrix.columns()})
      reject_part(matrix, *matrix.index, fmt::format("int32 [{}] was expected", matrix.columns()));
    return;
  }
  if (matrix.columns() % groups != 0)
    reject_part(
        matrix, *matrix.scale,
        fmt::format("{} columns cannot be {} groups of one size", matrix.columns(), groups));
  matrix.block_columns = std::max<std::int64_t>(1, matrix.columns() / groups);
}

// The group of each column of the tile, below `groups`.
std::vector<std::int32_t> column_groups(const Checkpoint& checkpoint, const QuantMatrix& matrix,
                                        const QuantTile& tile, std::int64_t groups) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(tile.num_columns));
  if (matrix.index == nullptr) {
    for (std::int64_t c = 0; c < tile.num_columns; ++c)
      out[static_cast<std::size_t>(c)] =
          static_cast<std::int32_t>((tile.column + c) / matrix.block_columns);
    return out;
  }
  const std::vector<std::uint32_t> stored =
      PartReader(checkpoint, *matrix.index).words(0, 1, tile.column, tile.num_columns);
  for (std::size_t c = 0; c < stored.size(); ++c) {
    if (stored[c] >= groups)
      reject_part(matrix, *matrix.index,
                  fmt::format("column {} is in group {}, and there are {}",
                              tile.column + static_cast<std::int64_t>(c),
                              static_cast<std::int32_t>(stored[c]), groups));
    out[c] = static_cast<std::int32_t>(stored[c]);
  }
  return out;
}

// Transposes codes: `code(c, r)` is the stored number of a column and row of the tile.
template <class Code>
void turn(const QuantTile& tile, const Code& code, std::vector<std::uint8_t>& out) {
  out.resize(static_cast<std::size_t>(tile.num_rows * tile.num_columns));
  for (std::int64_t begin = 0; begin < tile.num_columns; begin += kTurnColumns) {
    const std::int64_t end = std::min(tile.num_columns, begin + kTurnColumns);
    for (std::int64_t r = 0; r < tile.num_rows; ++r)
      for (std::int64_t c = begin; c < end; ++c)
        out[static_cast<std::size_t>(r * tile.num_columns + c)] =
            static_cast<std::uint8_t>(code(c, r));
  }
}

}  // namespace

// values [rows, words], scale [rows, groups], zeros [words of rows, groups].
void bind_packed(const QuantizationConfig& config, QuantMatrix& matrix) {
  require_words(matrix, *matrix.values);
  require_scale(matrix);
  if (matrix.shape == nullptr)
    reject_part(matrix, *matrix.values,
                fmt::format("{}_shape, which says its extents, is missing", matrix.info.name));
  if (matrix.shape->dtype != DType::kI64 && matrix.shape->dtype != DType::kI32)
    reject_part(matrix, *matrix.shape, "integers were expected");
  if (matrix.shape->numel() != 2) reject_part(matrix, *matrix.shape, "two extents were expected");
  matrix.bits = config.bits;
  const std::int64_t rows = matrix.values->shape[0], words = matrix.values->shape[1];
  // The extents are checked against the words when QuantizedCheckpoint has read them.
  const std::int64_t columns = matrix.info.shape[1];
  if (matrix.info.shape[0] != rows || columns < 1 || columns > words * 32 / matrix.bits ||
      words_of(0, columns, matrix.bits).count != words)
    reject_part(matrix, *matrix.values,
                fmt::format("{} says [{}, {}], which takes other words of {} bits each",
                            matrix.shape->name, matrix.info.shape[0], columns, matrix.bits));
  if (matrix.scale->shape[0] != rows)
    reject_part(matrix, *matrix.scale, fmt::format("{} rows were expected", rows));
  set_groups(config, matrix, matrix.scale->shape[1]);
  if (matrix.zeros == nullptr) {
    if (config.has_zeros)
      reject_part(matrix, *matrix.values,
                  "the configuration says symmetric: false, and its zeros are missing");
    return;
  }
  require_words(matrix, *matrix.zeros);
  require_shape(matrix, *matrix.zeros, words_of(0, rows, matrix.bits).count,
                matrix.scale->shape[1]);
  matrix.is_symmetric = config.is_symmetric;
}

void codes_of_packed(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                     QuantCodes& out) {
  const WordRange range = words_of(tile.column, tile.num_columns, matrix.bits);
  const std::vector<std::uint32_t> words =
      PartReader(checkpoint, *matrix.values)
          .words(tile.row, tile.num_rows, range.begin, range.count);
  const std::int64_t groups = matrix.scale->shape[1], skipped = range.begin * 32;
  const std::vector<float> scale =
      PartReader(checkpoint, *matrix.scale).floats(tile.row, tile.num_rows, 0, groups);
  out.groups = column_groups(checkpoint, matrix, tile, groups);
  std::vector<std::uint32_t> zeros;
  WordRange zero_rows;
  if (matrix.zeros != nullptr) {
    zero_rows = words_of(tile.row, tile.num_rows, matrix.bits);
    zeros =
        PartReader(checkpoint, *matrix.zeros).words(zero_rows.begin, zero_rows.count, 0, groups);
  }
  const std::uint32_t mask = (1u << matrix.bits) - 1;
  out.codes.clear();
  out.scales.resize(scale.size());
  out.zeros.assign(scale.size(), static_cast<std::uint8_t>(1u << (matrix.bits - 1)));
  for (std::int64_t r = 0; r < tile.num_rows; ++r) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto to = static_cast<std::size_t>(g * tile.num_rows + r);
      out.scales[to] = scale[static_cast<std::size_t>(r * groups + g)];
      if (matrix.zeros == nullptr) continue;
      // Fields of this column of words, counted from the first word read.
      const std::int64_t at = (tile.row + r) * matrix.bits - zero_rows.begin * 32;
      out.zeros[to] = static_cast<std::uint8_t>(
          zeros[static_cast<std::size_t>((at >> 5) * groups + g)] >> (at & 31) & mask);
      if (matrix.is_symmetric && out.zeros[to] != 1u << (matrix.bits - 1))
        reject_part(matrix, *matrix.zeros,
                    fmt::format("the configuration says symmetric: true, and row {} has the zero "
                                "{} in group {}; {} was expected",
                                tile.row + r, out.zeros[to], g, 1u << (matrix.bits - 1)));
    }
    const std::uint32_t* row = words.data() + r * range.count;
    for (std::int64_t c = 0; c < tile.num_columns; ++c) {
      // bits 4 and 8 never cross a word
      const std::int64_t at = (tile.column + c) * matrix.bits - skipped;
      out.codes.push_back(static_cast<std::uint8_t>(row[at >> 5] >> (at & 31) & mask));
    }
  }
}

// values [columns, rows / 8], zeros [groups, rows / 8], scale [groups, rows].
void bind_awq(const QuantizationConfig& config, QuantMatrix& matrix) {
  require_words(matrix, *matrix.values);
  require_scale(matrix);
  matrix.bits = kAwqBits;
  const std::int64_t columns = matrix.values->shape[0], words = matrix.values->shape[1];
  const std::int64_t groups = matrix.scale->shape[0], rows = matrix.scale->shape[1];
  if (rows % 8 != 0 || rows / 8 != words)
    reject_part(matrix, *matrix.scale,
                fmt::format("{} has words for 8 x {} outputs", matrix.values->describe(), words));
  matrix.info.shape = {rows, columns};
  set_groups(config, matrix, groups);
  if (matrix.zeros == nullptr) reject_part(matrix, *matrix.values, "its zeros are missing");
  require_words(matrix, *matrix.zeros);
  require_shape(matrix, *matrix.zeros, groups, words);
}

void codes_of_awq(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                  QuantCodes& out) {
  const std::int64_t first = tile.row / 8, count = (tile.row + tile.num_rows + 7) / 8 - first;
  const std::int64_t groups = matrix.scale->shape[0], skipped = tile.row - first * 8;
  const auto nibble = [&](const std::vector<std::uint32_t>& words, std::int64_t line,
                          std::int64_t r) {
    const std::int64_t at = r + skipped;
    return words[static_cast<std::size_t>(line * count + at / 8)] >>
               (kAwqBits * kAwqNibble[at % 8]) &
           15;
  };
  out.scales = PartReader(checkpoint, *matrix.scale).floats(0, groups, tile.row, tile.num_rows);
  out.groups = column_groups(checkpoint, matrix, tile, groups);
  const std::vector<std::uint32_t> zeros =
      PartReader(checkpoint, *matrix.zeros).words(0, groups, first, count);
  out.zeros.clear();
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t r = 0; r < tile.num_rows; ++r)
      out.zeros.push_back(static_cast<std::uint8_t>(nibble(zeros, g, r)));
  const std::vector<std::uint32_t> words =
      PartReader(checkpoint, *matrix.values).words(tile.column, tile.num_columns, first, count);
  turn(tile, [&](std::int64_t c, std::int64_t r) { return nibble(words, c, r); }, out.codes);
}

// values [words of columns, rows], zeros [groups, words of rows], scale [groups, rows], index
// [columns].
void bind_gptq(const QuantizationConfig& config, QuantMatrix& matrix) {
  require_words(matrix, *matrix.values);
  require_scale(matrix);
  if (matrix.zeros == nullptr) reject_part(matrix, *matrix.values, "its zeros are missing");
  require_words(matrix, *matrix.zeros);
  const std::int64_t groups = matrix.scale->shape[0], rows = matrix.scale->shape[1];
  const std::int64_t words = matrix.values->shape[0];
  if (rows < 1 || matrix.values->shape[1] != rows)
    reject_part(matrix, *matrix.values,
                fmt::format("{} outputs were expected, as {} has", rows, matrix.scale->name));
  // The width of a value follows from the words that the zeros take. Few rows take as many with
  // several widths.
  for (const int bits : {2, 3, 4, 8})
    if ((rows % 32 == 0 ? matrix.zeros->shape[1] == rows / 32 * bits
                        : matrix.zeros->shape[1] == words_of(0, rows, bits).count) &&
        (matrix.bits == 0 || matrix.bits != config.bits))
      matrix.bits = bits;
  if (matrix.bits == 0)
    reject_part(matrix, *matrix.zeros,
                fmt::format("zeros of {} outputs with 2, 3, 4 or 8 bits were expected", rows));
  if (!config.varies && config.bits != 0 && config.bits != matrix.bits)
    reject_part(matrix, *matrix.zeros,
                fmt::format("{} outputs have zeros of {} bits, and the configuration says {}", rows,
                            matrix.bits, config.bits));
  require_shape(matrix, *matrix.zeros, groups, matrix.zeros->shape[1]);
  if (words > (std::int64_t{1} << 40) || words * 32 % matrix.bits != 0)
    reject_part(matrix, *matrix.values,
                fmt::format("its words do not hold whole values of {} bits", matrix.bits));
  matrix.info.shape = {rows, words * 32 / matrix.bits};
  matrix.zero_plus_one = config.zero_plus_one;
  set_groups(config, matrix, groups);
}

void codes_of_gptq(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                   QuantCodes& out) {
  const int bits = matrix.bits;
  const std::uint32_t mask = (1u << bits) - 1;
  const std::int64_t groups = matrix.scale->shape[0], zero_words = matrix.zeros->shape[1];
  out.scales = PartReader(checkpoint, *matrix.scale).floats(0, groups, tile.row, tile.num_rows);
  out.groups = column_groups(checkpoint, matrix, tile, groups);
  const std::vector<std::uint32_t> zeros =
      PartReader(checkpoint, *matrix.zeros).words(0, groups, 0, zero_words);
  out.zeros.clear();
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t r = 0; r < tile.num_rows; ++r) {
      const std::uint32_t stored = bit_field(zeros.data() + g * zero_words, 1, tile.row + r, bits);
      out.zeros.push_back(
          static_cast<std::uint8_t>(matrix.zero_plus_one ? (stored + 1) & mask : stored));
    }
  const WordRange range = words_of(tile.column, tile.num_columns, bits);
  const std::vector<std::uint32_t> words =
      PartReader(checkpoint, *matrix.values)
          .words(range.begin, range.count, tile.row, tile.num_rows);
  turn(
      tile,
      [&](std::int64_t c, std::int64_t r) {
        // The first word read may hold values before the tile: 3-bit values begin at any bit of a
        // word.
        const std::int64_t at = (tile.column + c) * bits - range.begin * 32;
        const std::uint32_t* word = words.data() + (at >> 5) * tile.num_rows + r;
        std::uint32_t value = *word >> (at & 31);
        if ((at & 31) + bits > 32) value |= word[tile.num_rows] << (32 - (at & 31));
        return value & mask;
      },
      out.codes);
}

// Writes (q - z) x scale.
void widen_codes(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                 float* out) {
  QuantCodes stored;
  matrix.format->codes(checkpoint, matrix, tile, stored);
  require_scales(matrix, stored.scales);
  for (std::int64_t r = 0; r < tile.num_rows; ++r)
    for (std::int64_t c = 0; c < tile.num_columns; ++c) {
      const auto at =
          static_cast<std::size_t>(stored.groups[static_cast<std::size_t>(c)] * tile.num_rows + r);
      const int q = stored.codes[static_cast<std::size_t>(r * tile.num_columns + c)];
      *out++ = static_cast<float>(q - stored.zeros[at]) * stored.scales[at];
    }
}

}  // namespace sluice
