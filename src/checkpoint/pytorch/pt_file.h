// One PyTorch file of tensors: the output of torch.save(state_dict), as a zip archive (since torch
// 1.6) or in the older form of pickles followed by the elements.
//
//   PtFile file(open_beneath(directory, "pytorch_model.bin").value(), "pytorch_model.bin");
//   for (const TensorInfo& info : file.tensors()) ...
//
// The file is read as data and nothing in it runs (R4): see zip_file.h and pickle.h. The pickle
// must be a dict of names and tensors; other values are ignored. Every tensor is within its
// storage, and every storage within the file. A tensor that repeats elements (a stride of 0) is
// refused if it is larger than its storage. Tensors may refer to one storage and may be strided:
// read() yields dense, row-major elements. Error{kBadInput} names the file and the tensor. Source:
// torch `serialization.py` (_save, _load, _legacy_load).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/mapped_bytes.h"
#include "checkpoint/tensors/tensor_info.h"

namespace sluice {

class Pickle;
struct PickledStorage;
struct PickledTensor;

class PtFile {
 public:
  // Reads and checks everything but the elements. `name` is used in messages; `index` becomes
  // TensorInfo::file.
  PtFile(File file, std::string name, int index = 0);

  const std::string& name() const { return name_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order of the dict

  // Reads every storage of an archive and compares its CRC-32; the older form has no checksums.
  // Error{kBadInput} names the file and the storage.
  void check_storages() const;

  // Reads out.size() bytes that begin `begin` bytes into the tensor, as if it were dense. Any
  // thread may call this. A strided tensor takes 4 MiB of memory.
  void read(const TensorInfo& info, std::uint64_t begin, std::span<std::byte> out) const;
  // The same bytes as read(), mapped. Nothing if they cannot be mapped, or if the tensor is
  // strided. See MappedBytes.
  std::optional<MappedBytes> map(const TensorInfo& info, std::uint64_t begin,
                                 std::uint64_t bytes) const;

 private:
  // The bytes of a storage in the file.
  struct Place {
    std::uint64_t offset = 0, bytes = 0;
  };
  void read_archive();
  void read_legacy(std::uint64_t size);
  void add_tensors(const Pickle& pickle, const std::unordered_map<std::string, Place>& places);
  void add_tensor(std::string_view key, const PickledTensor& tensor, const PickledStorage& storage,
                  const Place& place);
  void read_strided(const TensorInfo& info, const std::vector<std::int64_t>& strides,
                    std::uint64_t begin, std::span<std::byte> out) const;

  File file_;
  std::string name_;
  int index_ = 0;
  std::vector<TensorInfo> tensors_;
  // strides of tensors that are not dense, by name
  std::map<std::string, std::vector<std::int64_t>, std::less<>> strides_;
};

}  // namespace sluice
