// A quantised checkpoint seen as plain matrices.
//
//   QuantizedCheckpoint quantized(checkpoint, *config.quantization);
//   const QuantMatrix* matrix = quantized.find("model.layers.0.mlp.down_proj.weight");
//   quantized.load(*matrix, ranges, DType::kBF16, bytes);
//
// A matrix is a tensor with a scale, or with the packed words of its format. It has the name and
// shape of a plain checkpoint, in float32; its component tensors are removed from the list. Tensors
// without a scale are unchanged. Scales of activations and of an 8-bit KV cache are ignored:
// activations get scales of their own, and the cache has its own type. Any thread may call the
// const functions. Errors: Error{kBadInput} naming matrix and tensor.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "checkpoint/quantized/quant_formats.h"

namespace sluice {

class QuantizedCheckpoint {
 public:
  // `checkpoint` must outlive the object.
  QuantizedCheckpoint(const Checkpoint& checkpoint, const QuantizationConfig& config);

  std::vector<std::string> names()
      const;  // names of matrices and of all other tensors, in the order of the files
  const QuantMatrix* find(std::string_view name) const;  // null: not quantised
  bool consumed(std::string_view name) const {
    return consumed_.contains(name);
  }  // component of a matrix, or ignored
  std::size_t num_matrices() const { return matrices_.size(); }

  // Scales of the matrix, or stack: [matrices, blocks of rows, blocks of columns] (block_rows,
  // block_columns). Error{kBadInput} naming a scale that is not a positive number.
  std::vector<float> scales(const QuantMatrix& matrix) const;

  // The contract of WeightSource::load; `ranges` has every axis, resolved. Takes at most 16 MiB of
  // memory besides `out`.
  void load(const QuantMatrix& matrix, const std::vector<AxisRange>& ranges, DType dtype,
            std::span<std::byte> out) const;

 private:
  // Numbers of 8 bits that are no matrix: their scale is missing.
  void require_scales(const QuantizationConfig& config) const;
  void add(std::string_view name, const QuantFormat& format, const QuantizationConfig& config);
  void load_rows(const QuantMatrix& matrix, QuantTile box, DType dtype, std::byte* out) const;

  const Checkpoint& checkpoint_;
  std::vector<std::string> file_names_;
  std::unordered_map<std::string, QuantMatrix> matrices_;  // by the name of the plain matrix
  std::unordered_map<std::string_view, std::string_view>
      made_of_;                                    // name of the values -> name of the matrix
  std::unordered_set<std::string_view> consumed_;  // views of file_names_
};

}  // namespace sluice
