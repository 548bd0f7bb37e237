// All tensors of a model directory, from safetensors files, or else from PyTorch files, which are
// read as data (pt_file.h).
//
//   Checkpoint checkpoint(directory);
//   const TensorInfo* info = checkpoint.find("model.norm.weight");
//   checkpoint.read(*info, 0, bytes);
//
// A directory has one file or shards, with or without an index; weight_choice.h says which files
// are used. Each name in the index must be in the shard that the index states. Tensors outside the
// index are ignored with one warning. A tensor whose type cannot be read is an error only if it is
// asked for. A shard's name must be a plain file name. Any thread may call
// the const functions. Errors: Error{kBadInput} naming the file or tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "checkpoint/files/safetensors.h"
#include "checkpoint/files/weight_choice.h"
#include "checkpoint/pytorch/pt_file.h"

namespace sluice {

// The load format of directories. kAuto: safetensors, else PyTorch files; otherwise only the named
// format.
enum class LoadFormat { kAuto, kSafetensors, kPt };

class Checkpoint {
 public:
  explicit Checkpoint(const std::string& directory, LoadFormat format = LoadFormat::kAuto);

  std::size_t num_files() const { return files_.size(); }
  std::string_view format() const;         // "safetensors" or "pt"
  std::vector<std::string> names() const;  // file by file, in the order of their bytes
  // Null when there is none. Error{kBadInput}: it has a type that cannot be read.
  const TensorInfo* find(std::string_view name) const;
  std::vector<std::string> unreadable_names() const;  // those that find() refuses
  std::uint64_t total_bytes() const;                  // sum over all tensors

  // Reads PyTorch archives whole and compares their checksums; safetensors files have none.
  void check_storages() const;
  // Reads out.size() bytes that begin `begin` bytes into the tensor.
  void read(const TensorInfo& info, std::uint64_t begin, std::span<std::byte> out) const;
  // The same bytes as read(), mapped; see MappedBytes. Nothing if they cannot be mapped, or if the
  // tensor is a strided one of a PyTorch file.
  std::optional<MappedBytes> map(const TensorInfo& info, std::uint64_t begin,
                                 std::uint64_t bytes) const;

 private:
  using TensorFile = std::variant<SafetensorsFile, PtFile>;
  void open(const std::string& directory, WeightFormat format, const std::string& name,
            std::string_view listed_by);
  void take_listed(const std::string& directory, const SettledWeights& files);
  void take_all();
  static const std::vector<TensorInfo>& tensors_of(const TensorFile& file);

  void set_apart_unreadable();

  std::vector<TensorFile> files_;
  struct Unreadable {
    std::string_view file, dtype;
  };
  std::unordered_map<std::string_view, Unreadable> unreadable_;      // by name; views into files_
  std::unordered_map<std::string_view, const TensorInfo*> by_name_;  // views into files_
};

}  // namespace sluice
