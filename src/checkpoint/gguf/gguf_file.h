// One GGUF file (version 3): a header of named values, a list of tensors, then the tensors' bytes.
//
//   GgufFile file(open_regular_file(path), path);
//   std::string_view arch = file.required_string("general.architecture");
//   for (const GgufTensor& tensor : file.tensors()) ...
//
// Nothing in the file is trusted (R6): every count and length is checked against the bytes that are
// left before memory is taken for it, products are checked, arrays nest to a bounded depth without
// recursion, names and keys are unique, a tensor's bytes lie inside the file, aligned, and overlap
// no other's. Bytes are read with pread and exact length, so a file that shrinks is an error and no
// fault. Every error is Error{kBadInput} and names the file and the key or tensor. Source: ggml's
// description of the format (gguf.md) and the types of ggml.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "checkpoint/tensors/quantized_blocks.h"
#include "tensor/dtype.h"

namespace sluice {

// How a tensor is stored: elements of `dtype`, or blocks that widen to it.
struct GgufTensor {
  std::string name;
  DType dtype = DType::kF32;        // kF32, kF16 or kBF16; kF32 for blocks
  std::optional<BlockType> blocks;  // empty: plain elements
  // row-major, the last extent is contiguous; 1 to 4 extents
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
  // The file's name of a type that cannot be read; then `dtype` means nothing and `bytes` is 0.
  std::string unreadable = {};

  std::int64_t columns() const { return shape.back(); }
  std::int64_t rows() const;  // all extents but the last, multiplied
  std::uint64_t row_bytes() const { return bytes / static_cast<std::uint64_t>(rows()); }
  std::string_view type_name() const;  // "Q8_0", "float32"
};

struct GgufLimits {
  std::uint64_t max_header_bytes = std::uint64_t{1} << 30;  // values and tensor list together
  std::uint64_t max_values = 65536;
  std::uint64_t max_tensors = 1'000'000;
  std::uint64_t max_name_bytes = 1024;  // length of a key or of a tensor's name
  int max_array_depth = 8;
};

class GgufFile {
 public:
  // Reads and checks the header. `name` is used in messages.
  GgufFile(File file, std::string name, const GgufLimits& limits = {});

  const std::string& name() const { return name_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in the order of the list
  const GgufTensor* find_tensor(std::string_view name) const;          // null when there is none

  // Values by key; nothing if the key is missing. Error{kBadInput}: the value has another type or
  // range.
  bool has(std::string_view key) const { return values_.contains(key); }
  std::optional<std::int64_t> find_integer(std::string_view key) const;  // any integer type
  std::optional<double> find_number(std::string_view key) const;  // any integer or float type
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;
  // Arrays: the views live as long as the file object.
  std::optional<std::vector<std::string_view>> find_strings(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> find_integers(std::string_view key) const;
  // The same of bools, which count as 0 and 1.
  std::optional<std::vector<std::int64_t>> find_flags(std::string_view key) const;
  bool is_array(std::string_view key) const;  // false where the key is missing
  std::optional<std::vector<double>> find_numbers(
      std::string_view key) const;  // any integer or float type

  // As the find functions. Error{kBadInput}, naming the key, if it is missing.
  std::int64_t required_integer(std::string_view key) const;
  std::string_view required_string(std::string_view key) const;

  // The value of a key as a text, for messages; empty if the key is missing.
  std::string shown(std::string_view key) const;
  // The keys that no find function has looked up yet, ascending. For one thread, like the find
  // functions.
  std::vector<std::string> unread_keys() const;

  // Reads out.size() bytes that begin `begin` bytes into the tensor. Any thread.
  void read(const GgufTensor& tensor, std::uint64_t begin, std::span<std::byte> out) const;

 private:
  friend class GgufParser;
  struct Value {
    std::uint32_t type = 0;  // type of the value, or of an array's elements
    bool is_array = false;
    // offset in header_: of the scalar, of the string's length, or of the array's first element
    std::uint64_t at = 0;
    std::uint64_t count = 1;  // elements of an array
    mutable bool is_read = false;
  };
  const Value* find(std::string_view key) const;
  const Value* find_scalar(std::string_view key, std::string_view wanted) const;
  const Value* find_array(std::string_view key, std::string_view wanted) const;
  [[noreturn]] void reject(std::string_view key, const Value& value, std::string_view wanted) const;
  std::string_view string_at(std::uint64_t at) const;
  double number_at(std::string_view key, const Value& value, std::uint64_t at) const;

  File file_;
  std::string name_;
  // from the start of the file to the end of the tensor list; keys point into it
  std::string header_;
  std::unordered_map<std::string_view, Value> values_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> tensor_index_;
};

// Whether `path` names a GGUF file by its ending.
bool is_gguf_path(std::string_view path);

}  // namespace sluice
