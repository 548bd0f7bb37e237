// One safetensors file: an 8-byte little-endian header length, a JSON header, then the tensors'
// bytes.
//
//   SafetensorsFile file(open_beneath(directory, "model.safetensors").value(),
//   "model.safetensors"); for (const TensorInfo& info : file.tensors()) ...
//
// The header is not trusted: its length, depth and number of entries are bounded, and sizes are
// computed with overflow checks. Each tensor's span must equal shape x dtype where the dtype is
// known, and the spans must cover the data without gap, overlap or rest, as the format demands.
// Bytes are read with pread and exact length, so a file that shrinks is an error and not a fault
// (R6). Every error is Error{kBadInput} and names the file and, if possible, the tensor. Source:
// the format description of the safetensors project (github.com/huggingface/safetensors, "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "checkpoint/tensors/tensor_info.h"

namespace sluice {

// A tensor whose type this program cannot compute with. It stops nothing unless it is asked for.
struct UnreadableTensor {
  std::string name;
  std::string dtype;  // as the file spells it, shortened
};

struct SafetensorsLimits {
  std::uint64_t max_header_bytes = 100'000'000;
  std::size_t max_tensors = 1'000'000;
  int max_rank = 8;
};

class SafetensorsFile {
 public:
  // Reads and checks the header. `name` is used in messages; `index` becomes TensorInfo::file.
  SafetensorsFile(File file, std::string name, int index = 0, const SafetensorsLimits& limits = {});

  const std::string& name() const { return name_; }
  const std::vector<TensorInfo>& tensors() const {
    return tensors_;
  }  // in the order of their bytes
  // In the order of the header; not among tensors().
  const std::vector<UnreadableTensor>& unreadable() const { return unreadable_; }
  std::uint64_t data_bytes() const { return data_bytes_; }

  // Reads out.size() bytes that begin `begin` bytes into the tensor. Any thread may call this.
  void read(const TensorInfo& info, std::uint64_t begin, std::span<std::byte> out) const;
  // The same bytes as read(), mapped; nothing if they cannot be mapped. See MappedBytes.
  std::optional<MappedBytes> map(const TensorInfo& info, std::uint64_t begin,
                                 std::uint64_t bytes) const;

 private:
  File file_;
  std::string name_;
  std::vector<TensorInfo> tensors_;
  std::vector<UnreadableTensor> unreadable_;
  std::uint64_t data_bytes_ = 0;
};

}  // namespace sluice
