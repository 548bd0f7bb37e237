#include "checkpoint/quantized/quant_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "checkpoint/quantized/quant_parts.h"
#include "checkpoint/tensors/convert.h"

namespace sluice {
namespace {

// A rectangle with rows shorter than this is cheaper to read together with the bytes between its
// rows.
constexpr std::int64_t kReadWholeRowBytes = 2048;

constexpr QuantFormat scaled(std::string_view name, std::string_view method,
                             std::string_view format, std::string_view marker) {
  return {.name = name,
          .method = method,
          .format = format,
          .marker = marker,
          .values = "",
          .result = "",
          .scale = marker,
          .zeros = "",
          .index = "",
          .shape = "",
          .columns_outside = false,
          .bind = bind_scaled,
          .widen = widen_scaled,
          .codes = codes_of_bytes};
}

// compressed-tensors divides by the scale of the scales.
constexpr QuantFormat nvfp4(std::string_view method, std::string_view format,
                            std::string_view marker, std::string_view values,
                            std::string_view global) {
  return {.name = "NVFP4",
          .method = method,
          .format = format,
          .marker = marker,
          .values = values,
          .result = "",
          .scale = "_scale",
          .zeros = "_zero_point",
          .index = "_g_idx",
          .shape = "",
          .global = global,
          .divides_global = method == "compressed-tensors",
          .columns_outside = false,
          .bind = bind_nvfp4,
          .widen = widen_nvfp4,
          .codes = codes_of_nvfp4,
          .check_scales = check_scales_of_nvfp4};
}

constexpr QuantFormat kFormats[] = {
    scaled("fp8", "fp8", "", "_scale_inv"),
    scaled("fp8", "fp8", "", "_scale"),
    scaled("fp8", "fbgemm_fp8", "", "_scale"),
    scaled("fp8", "modelopt", "", "_scale"),
    scaled("fp8", "compressed-tensors", "float-quantized", "_scale"),
    scaled("int8", "compressed-tensors", "int-quantized", "_scale"),
    nvfp4("modelopt", "nvfp4", "_scale", "", "_scale_2"),
    nvfp4("compressed-tensors", "nvfp4-pack-quantized", "_packed", "_packed", "_global_scale"),
    {.name = "packed integers",
     .method = "compressed-tensors",
     .format = "pack-quantized",
     .marker = "_packed",
     .values = "_packed",
     .result = "",
     .scale = "_scale",
     .zeros = "_zero_point",
     .index = "_g_idx",
     .shape = "_shape",
     .columns_outside = false,
     .bind = bind_packed,
     .widen = widen_codes,
     .codes = codes_of_packed},
    {.name = "AWQ",
     .method = "awq",
     .format = "",
     .marker = ".qweight",
     .values = ".qweight",
     .result = ".weight",
     .scale = ".scales",
     .zeros = ".qzeros",
     .index = "",
     .shape = "",
     .columns_outside = true,
     .bind = bind_awq,
     .widen = widen_codes,
     .codes = codes_of_awq},
    {.name = "GPTQ",
     .method = "gptq",
     .format = "",
     .marker = ".qweight",
     .values = ".qweight",
     .result = ".weight",
     .scale = ".scales",
     .zeros = ".qzeros",
     .index = ".g_idx",
     .shape = "",
     .columns_outside = true,
     .bind = bind_gptq,
     .widen = widen_codes,
     .codes = codes_of_gptq},
    // The name stays that of the file. The plain form of these experts, [matrices, columns, rows],
    // has the name without "_blocks".
    {.name = "MXFP4",
     .method = "mxfp4",
     .format = "",
     .marker = "_blocks",
     .values = "_blocks",
     .result = "_blocks",
     .scale = "_scales",
     .zeros = "",
     .index = "",
     .shape = "",
     .columns_outside = false,
     .bind = bind_mxfp4,
     .widen = widen_mxfp4,
     .codes = codes_of_mxfp4,
     .check_scales = check_scales_of_mxfp4},
};

}  // namespace

std::span<const QuantFormat> quant_formats() {
  return kFormats;
}

float e8m0_value(unsigned byte) {
  if (byte == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(byte == 0 ? 0x00400000u : byte << 23);
}

bool QuantMatrix::takes_scale(float scale) const {
  constexpr float kLargestNumber = 448;  // of all formats: e4m3's
  return scale != 0 && (scale > 0 || signed_scales) && std::isfinite(scale * kLargestNumber);
}

void require_scale(const QuantMatrix& matrix, float scale, std::string_view where) {
  if (matrix.takes_scale(scale)) return;
  const bool may_be_autoround = scale < 0 && std::isfinite(scale) && matrix.zeros != nullptr;
  fail(ErrorKind::kBadInput,
       "the matrix {} ({}): {} is {}; a {} was expected, the checkpoint is damaged{}",
       matrix.info.name, matrix.format->name, where, scale,
       std::isfinite(scale) && scale > 0 ? "number whose products float32 holds"
       : matrix.signed_scales            ? "number other than 0"
                                         : "positive number",
       may_be_autoround && !matrix.signed_scales
           ? " (exports of AutoRound, whose configuration has \"provider\": \"auto-round\", may "
             "have negative scales)"
           : "");
}

void require_scales(const QuantMatrix& matrix, std::span<const float> scales) {
  const auto found =
      std::ranges::find_if_not(scales, [&](float scale) { return matrix.takes_scale(scale); });
  if (found != scales.end()) require_scale(matrix, *found, "a scale of " + matrix.scale->name);
}

void reject_part(const QuantMatrix& matrix, const TensorInfo& part, std::string_view wanted) {
  fail(ErrorKind::kBadInput, "the matrix {} ({}): the tensor {} is {}; {}", matrix.info.name,
       matrix.format->name, part.name, part.describe(), wanted);
}

std::vector<std::byte> PartReader::bytes(std::int64_t row, std::int64_t num_rows,
                                         std::int64_t column, std::int64_t num_columns) const {
  const std::int64_t size = dtype_size(part_.dtype);
  const std::int64_t row_bytes = (part_.shape.empty() ? 1 : part_.shape.back()) * size;
  const std::int64_t begin = row * row_bytes + column * size, wanted = num_columns * size;
  std::vector<std::byte> out(static_cast<std::size_t>(num_rows * wanted));
  if (num_rows == 0 || wanted == 0) return out;
  if (wanted == row_bytes) {
    checkpoint_.read(part_, static_cast<std::uint64_t>(begin), out);
  } else if (row_bytes <= kReadWholeRowBytes || row_bytes <= 2 * wanted) {
    std::vector<std::byte> all(static_cast<std::size_t>((num_rows - 1) * row_bytes + wanted));
    checkpoint_.read(part_, static_cast<std::uint64_t>(begin), all);
    for (std::int64_t i = 0; i < num_rows; ++i)
      std::memcpy(out.data() + i * wanted, all.data() + i * row_bytes,
                  static_cast<std::size_t>(wanted));
  } else {
    for (std::int64_t i = 0; i < num_rows; ++i)
      checkpoint_.read(part_, static_cast<std::uint64_t>(begin + i * row_bytes),
                       {out.data() + i * wanted, static_cast<std::size_t>(wanted)});
  }
  return out;
}

std::vector<float> PartReader::floats(std::int64_t row, std::int64_t num_rows, std::int64_t column,
                                      std::int64_t num_columns) const {
  const std::vector<std::byte> stored = bytes(row, num_rows, column, num_columns);
  std::vector<float> out(static_cast<std::size_t>(num_rows * num_columns));
  if (part_.dtype == DType::kU8) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = e8m0_value(std::to_integer<unsigned>(stored[i]));
    return out;
  }
  check(convert_elements(part_.dtype, stored.data(), DType::kF32,
                         reinterpret_cast<std::byte*>(out.data()),
                         static_cast<std::int64_t>(out.size())),
        "{} is {}, which was bound as a scale", part_.name, part_.describe());
  return out;
}

std::vector<std::uint32_t> PartReader::words(std::int64_t row, std::int64_t num_rows,
                                             std::int64_t column, std::int64_t num_columns) const {
  const std::vector<std::byte> stored = bytes(row, num_rows, column, num_columns);
  std::vector<std::uint32_t> out(stored.size() / 4);
  if (!out.empty()) std::memcpy(out.data(), stored.data(), out.size() * 4);
  return out;
}

}  // namespace sluice
