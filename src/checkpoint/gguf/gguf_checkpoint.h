// The weights of a GGUF file, under the names and in the row order of the Hugging Face checkpoint.
//
//   GgufCheckpoint checkpoint("model.gguf");
//   const TensorInfo* info = checkpoint.find("model.layers.0.self_attn.q_proj.weight");
//   checkpoint.load(request, DType::kF32, bytes);   // info->blocks: the tensor is quantised
//
// GGUF has its own names (gguf_architecture.h) and keeps the experts of a layer in one tensor. Some
// architectures have their rows in another order, or values that were changed (gguf_entries.h).
// Here every expert has its own name, and rows and values are those of the Hugging Face checkpoint.
// Quantised tensors widen to float32 exactly (quantized_blocks.h). Any thread may call the const
// functions. Errors: Error{kBadInput} naming the file and the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/gguf/gguf_entries.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/tensors/tensor_info.h"

namespace sluice {

class GgufCheckpoint {
 public:
  // `path` is one file, or the first part of a split file (NAME-00001-of-00003.gguf). The other
  // parts are in the same folder.
  explicit GgufCheckpoint(const std::string& path);

  std::vector<std::string> names() const;               // in the order of the file's list
  const TensorInfo* find(std::string_view name) const;  // null when there is none
  std::uint64_t total_bytes() const;                    // as stored

  // The contracts of WeightSource::load and WeightSource::load_blocks. `ranges` has every axis,
  // resolved.
  void load(const TensorInfo& info, const std::vector<AxisRange>& ranges, DType dtype,
            std::span<std::byte> out) const;
  void load_blocks(const TensorInfo& info, const std::vector<AxisRange>& ranges,
                   std::span<std::byte> out) const;

 private:
  const GgufEntry& entry_of(const TensorInfo& info) const;
  // Calls body(row as stored) for the rows [first, first + count) of the tensor in the models'
  // order. A row is a pointer to entry.tensor->row_bytes() bytes, valid until the next call.
  template <class Body>
  void for_each_row(const GgufEntry& entry, std::int64_t first, std::int64_t count,
                    Body&& body) const;
  void load_latent(const GgufEntry& entry, std::int64_t first, std::int64_t count,
                   AxisRange columns, DType dtype, std::byte* out) const;

  void load_transposed(const GgufEntry& entry, const std::vector<AxisRange>& ranges, DType dtype,
                       std::byte* out) const;
  void load_beside(const GgufEntry& entry, const std::vector<AxisRange>& ranges, DType dtype,
                   std::byte* out) const;

  std::vector<std::unique_ptr<GgufFile>> files_;
  std::vector<GgufEntry> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;  // views of entries_
};

}  // namespace sluice
