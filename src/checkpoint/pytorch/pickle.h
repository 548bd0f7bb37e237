// Reads a pickle that holds tensors, as data: nothing in it is ever run (R4).
//
//   Pickle pickle(bytes, "pytorch_model.bin");
//   for (const auto& [key, value] : pickle.dict(pickle.root()))
//     if (pickle.kind(value) == PickleKind::kTensor) ...
//
// Known opcodes of protocols 2 to 5 are those that build plain values. Known names are those of a
// table: OrderedDict, torch's functions that describe tensors, and its types of storages and
// elements. A name is a row with a meaning; there is no path from a name to code. Every other name
// and opcode is an error that names it.
//
// Lengths are checked against the remaining bytes before anything is stored. Strings are views of
// `bytes`. The numbers of values, containers and tensors and the nesting depth are bounded, and
// nothing recurses. So a pickle takes at most some 60 MiB whatever it contains. Sources: CPython
// `Lib/pickletools.py`; torch `_utils.py` (_rebuild_tensor_v2) and `serialization.py`
// (persistent_load).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/dtype.h"

namespace sluice {

enum class PickleKind : std::uint8_t {
  kNone,
  kBool,
  kInteger,
  kLong,
  kFloat,
  kText,
  kBytes,
  kTuple,
  kList,
  kDict,
  kName,
  kStorage,
  kTensor
};

// Elements to which several tensors may refer.
struct PickledStorage {
  DType dtype{};
  bool is_untyped = false;  // the storage counts bytes
  std::string_view key;
  std::int64_t num_elements = 0;
};

struct PickledTensor {
  static constexpr int kMaxRank = 8;
  std::uint32_t storage = 0;  // index among storages()
  DType dtype{};
  std::int64_t offset = 0;  // elements from the start of the storage
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};  // in elements
};

class Pickle {
 public:
  using Value = std::uint32_t;

  // Reads one pickle from the beginning of `bytes`, which must outlive the object; more data may
  // follow. Messages begin with `what`.
  Pickle(std::string_view bytes, std::string what);

  Value root() const { return root_; }
  std::size_t end() const { return at_; }  // offset of the end of the pickle
  PickleKind kind(Value value) const { return nodes_[value].kind; }
  std::int64_t integer(Value value) const;                       // kInteger
  std::string_view text(Value value) const;                      // kText, kBytes, kLong: the bytes
  std::span<const Value> items(Value value) const;               // kTuple, kList
  std::vector<std::pair<Value, Value>> dict(Value value) const;  // kDict, in the order of the file
  const PickledTensor& tensor(Value value) const;                // kTensor
  const std::vector<PickledStorage>& storages() const { return storages_; }

 private:
  struct Node {
    PickleKind kind;
    std::uint8_t depth;
    std::uint32_t a;
    std::uint64_t b;
  };

  template <class T>
  T take();
  std::string_view take_bytes(std::uint64_t count);
  std::string_view take_line();
  Value add(PickleKind kind, std::uint32_t a = 0, std::uint64_t b = 0, std::uint8_t depth = 0);
  Value add_container(PickleKind kind);
  Value add_tuple(std::size_t count);
  void push(Value value);
  Value pop();
  std::size_t pop_mark();
  void put_into(PickleKind wanted, std::size_t first);
  void remember(std::uint64_t index);
  void recall(std::uint64_t index);
  void push_name(std::string_view module, std::string_view name);
  void call();
  void build();
  void load_storage();
  void rebuild_tensor(std::span<const Value> arguments, bool has_dtype);
  bool step();
  std::span<const Value> tuple_of(Value value, const char* wanted) const;
  std::int64_t integer_of(Value value, const char* wanted) const;
  [[noreturn]] void reject(const std::string& problem) const;

  std::string_view bytes_;
  std::string what_;
  std::size_t at_ = 0;
  std::size_t op_at_ = 0;
  std::vector<Node> nodes_;
  std::vector<Value> pool_;                     // items of all tuples
  std::vector<std::vector<Value>> containers_;  // lists, and dicts with alternating keys and values
  std::vector<PickledStorage> storages_;
  std::vector<PickledTensor> tensors_;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;
  std::vector<Value> memo_;
  std::size_t num_items_ = 0;  // items in containers_
  Value root_ = 0;
};

}  // namespace sluice
