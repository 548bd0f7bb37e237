#include "checkpoint/quantized/quantized_checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/quantized/quant_parts.h"
#include "checkpoint/tensors/convert.h"

namespace sluice {
namespace {

// A tile in float32 takes at most 2 MiB, unless 64 columns of kMaxTileRows rows take more.
constexpr std::int64_t kTileElements = 512 << 10;
constexpr std::int64_t kMaxTileRows = 2048;
constexpr std::int64_t kMinTileColumns = 64;

// Name endings of static scales of activations, which no product reads: see docs/models.md.
constexpr std::string_view kOfActivations[] = {
    ".input_scale",      "_input_scale",      ".input_scale_ub",      ".input_global_scale",
    ".activation_scale", "_activation_scale", ".activation_scale_inv"};
// Of tensors that a KV cache reads, or only engines with further quantised values.
constexpr std::string_view kLeftOut[] = {".k_scale",      ".v_scale", ".kv_scale",
                                         ".output_scale", ".q_scale", ".prob_output_scale"};

// Tensors that prove a format without a row in the table, or another one than the configuration
// says.
struct Unread {
  std::string_view ending;
  std::string_view form;
};
constexpr Unread kUnread[] = {{".weight_global_scale", "NVFP4 weights"},
                              {".weight_scale_2", "NVFP4 weights"},
                              {".weight.absmax", "weights of bitsandbytes"},
                              {".SCB", "weights of bitsandbytes"},
                              {".pre_quant_scale", "weights whose inputs are scaled first"},
                              {".weight_bitmask", "sparse weights"}};

template <class Table>
bool ends_with_any(std::string_view name, const Table& endings) {
  return std::ranges::any_of(endings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

// Whether checkpoints of this configuration have matrices of the format.
bool is_of(const QuantFormat& format, const QuantizationConfig& config) {
  return format.method == config.method && format.format == config.format;
}

// The format in which a tensor is a scale of scales by its name; null: none.
const QuantFormat* global_format(const QuantizationConfig& config, std::string_view name) {
  for (const QuantFormat& format : quant_formats())
    if (is_of(format, config) && !format.global.empty() && name.ends_with(format.global))
      return &format;
  return nullptr;
}

// The scale of the scales of a matrix. Error{kBadInput}: it is missing, is no positive number, or
// makes numbers that float32 does not hold.
float read_global(const Checkpoint& checkpoint, const QuantMatrix& matrix, std::string_view name) {
  require(matrix.global != nullptr, "the matrix {} ({}) has {} but no {}", matrix.info.name,
          matrix.format->name, matrix.scale->name, name);
  const TensorInfo& global = *matrix.global;
  if (global.dtype != DType::kF32 || global.numel() != 1)
    reject_part(matrix, global, "one float32 was expected");
  float value = 0;
  checkpoint.read(global, 0, std::as_writable_bytes(std::span(&value, 1)));
  constexpr float kLargest = 448.0f * 0x1p14f;  // of e4m3 times what kernels multiply sums with
  const float largest = matrix.format->divides_global ? kLargest / value : kLargest * value;
  require(std::isfinite(value) && value > 0 && std::isfinite(largest) && largest > 0,
          "the matrix {} ({}): {} is {}; a positive number whose products float32 holds was "
          "expected, the checkpoint is damaged",
          matrix.info.name, matrix.format->name, global.name, value);
  return value;
}

}  // namespace

QuantizedCheckpoint::QuantizedCheckpoint(const Checkpoint& checkpoint,
                                         const QuantizationConfig& config)
    : checkpoint_(checkpoint), file_names_(checkpoint.names()) {
  int num_of_activations = 0;
  for (const std::string& name : file_names_) {
    for (const Unread& row : kUnread)
      require(!name.ends_with(row.ending) || global_format(config, name) != nullptr,
              "the tensor {} belongs to {}, which cannot be read; take an unquantised checkpoint",
              name, row.form);
    const bool of_activations = ends_with_any(name, kOfActivations);
    if (of_activations || ends_with_any(name, kLeftOut)) {
      num_of_activations += of_activations;
      consumed_.insert(name);
      continue;
    }
    for (const QuantFormat& format : quant_formats())
      if (is_of(format, config) && name.ends_with(format.marker) &&
          checkpoint_.find(name.substr(0, name.size() - format.marker.size()) +
                           std::string(format.values)) != nullptr) {
        add(name, format, config);
        break;
      }
  }
  // Without its scale a matrix would be read as it is, which is wrong.
  for (const std::string& name : checkpoint_.unreadable_names())
    for (const QuantFormat& format : quant_formats())
      if (format.method == config.method &&
          (name.ends_with(format.marker) || name.ends_with(format.scale)))
        checkpoint_.find(name);  // refuses it by name
  require_scales(config);
  if (num_of_activations > 0)
    log_info("{} static scales of activations are not used: {}", num_of_activations,
             config.is_fp8()    ? "a GPU rounds each row with a scale of its own, a CPU does not "
                                  "round rows"
             : config.int8_rows ? "each row is rounded with a scale of its own"
                                : "rows are not rounded");
  if (matrices_.empty())
    log_warning(
        "the configuration says that weights are quantised ({}), but no tensor has a scale: all "
        "are read as they are",
        config.describe());
}

void QuantizedCheckpoint::require_scales(const QuantizationConfig& config) const {
  for (const std::string& name : file_names_) {
    if (consumed(name) || made_of_.contains(name)) continue;
    if (const QuantFormat* format = global_format(config, name))
      fail(ErrorKind::kBadInput,
           "the tensor {} is there, but no {}{} beside it; the checkpoint is damaged", name,
           name.substr(0, name.size() - format->global.size()), format->marker);
    const TensorInfo* info = checkpoint_.find(name);
    const bool is_float = info->dtype == DType::kF8E4M3 || info->dtype == DType::kF8E5M2,
               is_integer = info->dtype == DType::kI8;
    const bool is_scaled =
        (config.is_fp8() && is_float) || (config.format == "int-quantized" && is_integer);
    if (!is_scaled || info->shape.size() < 2) continue;
    std::vector<std::string> wanted;
    for (const QuantFormat& format : quant_formats())
      if (is_of(format, config)) wanted.push_back(name + std::string(format.scale));
    fail(
        ErrorKind::kBadInput,
        "the tensor {} is {}, and its scale is missing: {} was expected; the checkpoint is damaged",
        name, info->describe(), fmt::join(wanted, " or "));
  }
}

void QuantizedCheckpoint::add(std::string_view name, const QuantFormat& format,
                              const QuantizationConfig& config) {
  const std::string stem(name.substr(0, name.size() - format.marker.size()));
  const auto part = [&](std::string_view ending) -> const TensorInfo* {
    const TensorInfo* info =
        ending.empty() ? nullptr : checkpoint_.find(stem + std::string(ending));
    if (info != nullptr) consumed_.insert(info->name);
    return info;
  };
  QuantMatrix matrix;
  matrix.format = &format;
  matrix.info.name = stem + std::string(format.result);
  matrix.info.dtype = DType::kF32;
  matrix.info.stored_as = format.name;
  matrix.values = checkpoint_.find(stem + std::string(format.values));
  matrix.scale = part(format.scale);
  require(matrix.scale != nullptr, "the matrix {} ({}) has {} but no {}{}", matrix.info.name,
          format.name, matrix.values->name, stem, format.scale);
  matrix.zeros = part(format.zeros);
  matrix.index = part(format.index);
  matrix.shape = part(format.shape);
  matrix.global = part(format.global);
  if (matrix.shape != nullptr && matrix.shape->numel() == 2) {
    std::int64_t extents[2] = {};
    std::array<std::byte, 16> stored{};
    checkpoint_.read(*matrix.shape, 0, std::span(stored).first(matrix.shape->bytes));
    if (matrix.shape->dtype == DType::kI64) {
      std::memcpy(extents, stored.data(), sizeof(extents));
    } else {
      std::int32_t small[2];
      std::memcpy(small, stored.data(), sizeof(small));
      extents[0] = small[0];
      extents[1] = small[1];
    }
    matrix.info.shape = {extents[0], extents[1]};
  }
  format.bind(config, matrix);
  if (!format.global.empty())
    matrix.global_scale = read_global(checkpoint_, matrix, stem + std::string(format.global));
  matrix.info.bytes = 4;  // less than sixteen times the file's size
  for (const std::int64_t extent : matrix.info.shape)
    matrix.info.bytes *= static_cast<std::uint64_t>(extent);
  const TensorInfo* plain = checkpoint_.find(matrix.info.name);
  require(plain == nullptr || plain == matrix.values, "the tensor {} is there plain and as {}",
          matrix.info.name, format.name);
  consumed_.insert(matrix.values->name);
  const auto [it, is_new] = matrices_.emplace(matrix.info.name, matrix);
  require(is_new, "two sets of tensors make up the matrix {}", it->first);
  made_of_.emplace(matrix.values->name, it->first);
}

std::vector<std::string> QuantizedCheckpoint::names() const {
  std::vector<std::string> names;
  for (const std::string& name : file_names_) {
    if (const auto it = made_of_.find(name); it != made_of_.end())
      names.emplace_back(it->second);
    else if (!consumed(name))
      names.push_back(name);
  }
  return names;
}

const QuantMatrix* QuantizedCheckpoint::find(std::string_view name) const {
  const auto it = matrices_.find(std::string(name));
  return it == matrices_.end() ? nullptr : &it->second;
}

void QuantizedCheckpoint::load_rows(const QuantMatrix& matrix, QuantTile box, DType dtype,
                                    std::byte* out) const {
  const std::int64_t size = dtype_size(dtype);
  // If the file stores the rows of a column contiguously, a tile has many rows; else it has whole
  // rows if they fit.
  const std::int64_t tile_rows =
      matrix.format->columns_outside
          ? std::min(box.num_rows, kMaxTileRows)
          : std::min(box.num_rows,
                     std::max<std::int64_t>(
                         1, kTileElements / std::max(box.num_columns, kMinTileColumns)));
  const std::int64_t tile_columns =
      std::min(box.num_columns,
               std::max(kMinTileColumns, kTileElements / std::max<std::int64_t>(1, tile_rows)));
  std::vector<float> values(static_cast<std::size_t>(tile_rows * tile_columns));
  for (std::int64_t row = 0; row < box.num_rows; row += tile_rows)
    for (std::int64_t column = 0; column < box.num_columns; column += tile_columns) {
      const QuantTile tile{box.matrix, box.row + row, std::min(tile_rows, box.num_rows - row),
                           box.column + column, std::min(tile_columns, box.num_columns - column)};
      matrix.format->widen(checkpoint_, matrix, tile, values.data());
      for (std::int64_t r = 0; r < tile.num_rows; ++r)
        convert_elements(
            DType::kF32, reinterpret_cast<const std::byte*>(values.data() + r * tile.num_columns),
            dtype, out + ((row + r) * box.num_columns + column) * size, tile.num_columns);
    }
}

std::vector<float> QuantizedCheckpoint::scales(const QuantMatrix& matrix) const {
  TensorInfo info = *matrix.scale;
  info.shape = {1, info.numel()};
  const std::vector<float> all = PartReader(checkpoint_, info).floats(0, 1, 0, info.shape.back());
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!matrix.takes_scale(all[i]))
      require_scale(matrix, all[i], fmt::format("entry {} of its scale {}", i, info.name));
  return all;
}

void QuantizedCheckpoint::load(const QuantMatrix& matrix, const std::vector<AxisRange>& ranges,
                               DType dtype, std::span<std::byte> out) const {
  const AxisRange stack = ranges.size() == 3 ? ranges[0] : AxisRange{0, 1};
  const AxisRange &rows = ranges[ranges.size() - 2], &columns = ranges.back();
  const std::int64_t bytes = rows.count * columns.count * dtype_size(dtype);
  if (bytes == 0) return;
  for (std::int64_t i = 0; i < stack.count; ++i)
    load_rows(matrix, {stack.begin + i, rows.begin, rows.count, columns.begin, columns.count},
              dtype, out.data() + i * bytes);
}

}  // namespace sluice
