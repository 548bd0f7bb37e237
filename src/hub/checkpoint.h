// All tensors of a model directory: model.safetensors, or the shards that model.safetensors.index.json lists.
//
//   Checkpoint checkpoint(directory);
//   const TensorInfo* info = checkpoint.find("model.norm.weight");
//   checkpoint.read(*info, 0, bytes);
//
// Each name that the index lists must be in the shard it says; what a shard holds beyond the index is ignored
// with one warning. A shard's name must be a plain file name. Any thread may call the const functions.
// Errors: Error{kBadInput} naming the file or tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hub/safetensors.h"

namespace sluice {

class Checkpoint {
 public:
  explicit Checkpoint(const std::string& directory);

  const std::vector<SafetensorsFile>& files() const { return files_; }
  std::vector<std::string> names() const;               // file by file, in the order of their bytes
  const TensorInfo* find(std::string_view name) const;  // null when there is none
  std::uint64_t total_bytes() const;                    // of all tensors

  // Reads out.size() bytes that begin `begin` bytes into the tensor.
  void read(const TensorInfo& info, std::uint64_t begin, std::span<std::byte> out) const;

 private:
  void open_shards(const std::string& directory, std::string_view index);

  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string_view, const TensorInfo*> by_name_;  // views into files_
};

}  // namespace sluice
