// The formats of quantised matrices, one row each: the tensors of a checkpoint that make up a
// matrix, and its values.
//
//   row                 tensors beside the values                   value (row r, column c)
//   fp8, modelopt, ...  X_scale_inv or X_scale                      e4m3, e5m2 or int8
//                                                                   x scale[block of (r, c)]
//   packed (ct)         X.weight_scale, weight_shape                (q - z) x scale[r][group of c]
//                       [, zero_point, g_idx]
//   awq                 X.qzeros, X.scales                          (q - z) x scale[group of c][r]
//   gptq                X.qzeros, X.scales, X.g_idx                 (q - z) x scale[group of c][r]
//   mxfp4               X_scales                                    e2m1 x 2^(scale - 127)
//   nvfp4 (modelopt)    X_scale, X_scale_2                          e2m1 x (scale[r][group of c]
//                                                                   x scale_2)
//   nvfp4 (ct)          X.weight_scale, X.weight_global_scale       e2m1 x (scale[r][group of c]
//                                                                   / global_scale)
//
// All arithmetic is float32. q - z is exact, and so is (q - z) times a float16 or bfloat16 scale;
// every other multiplication rounds once. A matrix is [rows, columns] as in a linear layer, outputs
// by inputs, or a stack [matrices, rows, columns], whatever the order in the file. Sources:
// transformers `integrations/finegrained_fp8.py` and `integrations/mxfp4.py`; ModelOpt
// `NVFP4QTensor`; AutoAWQ `WQLinear_GEMM`; AutoGPTQ `QuantLinear.pack`; compressed-tensors
// `compressors/quantized_compressors`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/files/checkpoint.h"
#include "config/quant_config.h"

namespace sluice {

struct QuantFormat;

// One matrix, or stack, made of several tensors.
struct QuantMatrix {
  // the plain form: name, float32, [rows, columns] or [matrices, rows, columns]
  TensorInfo info;
  const QuantFormat* format = nullptr;
  const TensorInfo* values = nullptr;
  const TensorInfo* scale = nullptr;
  const TensorInfo* zeros = nullptr;  // null: zero is the middle of the range
  const TensorInfo* index = nullptr;  // group of each column; null: groups are contiguous
  const TensorInfo* shape = nullptr;
  const TensorInfo* global = nullptr;  // a scale of the scales
  float global_scale = 1;              // its value
  int bits = 0;                        // bits of a packed value
  std::int64_t block_rows = 1;         // rows and columns per scale
  std::int64_t block_columns = 1;
  bool zero_plus_one = false;
  bool int8_rows = false;                            // QuantizationConfig::int8_rows
  bool is_symmetric = false, signed_scales = false;  // of QuantizationConfig

  std::int64_t matrices() const { return info.shape.size() == 3 ? info.shape[0] : 1; }
  std::int64_t rows() const { return info.shape[info.shape.size() - 2]; }
  std::int64_t columns() const { return info.shape.back(); }
  // Whether it is a scale: not 0, negative only where the format has such, and small enough for the
  // products with its numbers.
  bool takes_scale(float scale) const;
};

// A rectangle of one matrix of the stack.
struct QuantTile {
  std::int64_t matrix = 0;
  std::int64_t row = 0, num_rows = 0;
  std::int64_t column = 0, num_columns = 0;
};

// A tile of integers as the file stores it: the value at (r, c) is (codes[r, c] - zeros[g, r]) x
// scales[g, r] x factor, where g is groups[c]. Of e4m3 and e2m1 the zeros mean nothing, and codes
// are numbers.
struct QuantCodes {
  std::vector<std::uint8_t> codes;   // [rows, columns]
  std::vector<std::uint8_t> zeros;   // [groups, rows]
  std::vector<float> scales;         // [groups, rows]
  std::vector<std::int32_t> groups;  // [columns], counted over the whole matrix
  float factor = 1;                  // of all scales; NVFP4 alone has another one than 1
};

struct QuantFormat {
  std::string_view name;    // for messages
  std::string_view method;  // quant_method of the configuration, and its format
  std::string_view format;
  // a tensor with this ending belongs to a matrix of this format: X + marker
  std::string_view marker;
  std::string_view values;                      // X + values: the tensor of the numbers
  std::string_view result;                      // X + result: the name of the plain matrix
  std::string_view scale, zeros, index, shape;  // X + these; empty: the format has none
  std::string_view global = {};                 // the same
  bool divides_global = false;                  // scales are divided by it
  bool columns_outside;                         // the file stores a column's rows contiguously
  // Checks types and shapes and sets info.shape, bits and blocks. `values` and `scale` exist.
  void (*bind)(const QuantizationConfig& config, QuantMatrix& matrix);
  // Writes the tile, dense. Error{kBadInput}: an index of groups is out of range, or the file
  // became shorter.
  void (*widen)(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                float* out);
  // Reads the tile of a matrix of integers, e2m1 or e4m3, of which none may be NaN; errors as of
  // `widen`. A scale that is no number is NaN.
  void (*codes)(const Checkpoint& checkpoint, const QuantMatrix& matrix, const QuantTile& tile,
                QuantCodes& out);
  // Error{kBadInput}: a scale of the tile's rows is no scale; without memory for each. Null:
  // codes() of no columns tells.
  void (*check_scales)(const Checkpoint& checkpoint, const QuantMatrix& matrix,
                       const QuantTile& tile) = nullptr;
};

std::span<const QuantFormat> quant_formats();

// Error{kBadInput} that names the matrix and what its scale is, unless it takes it. `where`: "entry
// 3 of a.weight_scale".
void require_scale(const QuantMatrix& matrix, float scale, std::string_view where);

// The value of each byte as an 8-bit float, e4m3 (no infinity, two NaN) and e5m2.
const float* fp8_values(DType dtype);

}  // namespace sluice
