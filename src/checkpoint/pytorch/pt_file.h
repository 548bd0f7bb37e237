// One PyTorch file of tensors: what torch.save(state_dict) writes, as a zip archive (since
// torch 1.6) or in the older form of pickles with the elements behind them.
//
//   PtFile file(open_beneath(directory, "pytorch_model.bin").value(), "pytorch_model.bin");
//   for (const TensorInfo& info : file.tensors()) ...
//
// The file is read as data and nothing in it runs (R4): see zip_file.h and pickle.h. The pickle
// must be a dict of names and tensors; values that are no tensors are left out. Every tensor lies
// within its storage, and every storage within the file; a tensor that repeats elements (a stride
// of 0) is refused where it has more than its storage. Storages may be shared, and tensors may be
// strided: read() gives them dense and row-major. Error{kBadInput} names the file and the tensor.
// Source: torch `serialization.py` (_save, _load, _legacy_load).
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

  // Reads every storage of an archive and compares it with its CRC-32; the older form has none.
  // Error{kBadInput} names the file and the storage.
  void check_storages() const;

  // Reads out.size() bytes that begin `begin` bytes into the tensor as if it were dense. Any thread
  // may call this. A strided tensor takes 4 MiB of memory.
  void read(const TensorInfo& info, std::uint64_t begin, std::span<std::byte> out) const;
  // The same bytes where they lie, or nothing, see MappedBytes; never those of a strided tensor.
  std::optional<MappedBytes> map(const TensorInfo& info, std::uint64_t begin,
                                 std::uint64_t bytes) const;

 private:
  // Where the elements of a storage lie.
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
  // of tensors that are not dense, by name
  std::map<std::string, std::vector<std::int64_t>, std::less<>> strides_;
};

}  // namespace sluice
