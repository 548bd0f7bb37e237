// A quantised checkpoint seen as plain matrices.
//
//   QuantizedCheckpoint quantized(checkpoint, *config.quantization);
//   const QuantMatrix* matrix = quantized.find("model.layers.0.mlp.down_proj.weight");
//   quantized.load(*matrix, ranges, DType::kBF16, bytes);
//
// Every matrix that has a scale beside it, or the packed words of its format, answers to the name
// under which a plain checkpoint has it, as float32 of the same shape; the tensors that it is made
// of disappear from the list. Tensors without a scale are what they are. Scales of activations and
// of a KV cache in 8 bits are left out: activations are not quantised here, and the cache has a
// type of its own. Any thread may call the const functions. Errors: Error{kBadInput} naming matrix
// and tensor.
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
      const;  // of matrices and of all other tensors, in the order of the files
  const QuantMatrix* find(std::string_view name) const;  // null: not quantised
  bool consumed(std::string_view name) const {
    return consumed_.contains(name);
  }  // part of a matrix, or left out
  std::size_t num_matrices() const { return matrices_.size(); }

  // The contract of WeightSource::load; `ranges` has every axis, resolved. At most 16 MiB of memory
  // besides `out`.
  void load(const QuantMatrix& matrix, const std::vector<AxisRange>& ranges, DType dtype,
            std::span<std::byte> out) const;

 private:
  void add(std::string_view name, const QuantFormat& format, const QuantizationConfig& config);
  void load_rows(const QuantMatrix& matrix, QuantTile box, DType dtype, std::byte* out) const;

  const Checkpoint& checkpoint_;
  std::vector<std::string> file_names_;
  std::unordered_map<std::string, QuantMatrix> matrices_;  // by the name that models ask for
  std::unordered_map<std::string_view, std::string_view>
      made_of_;                                    // name of the values -> name of the matrix
  std::unordered_set<std::string_view> consumed_;  // views of file_names_
};

}  // namespace sluice
