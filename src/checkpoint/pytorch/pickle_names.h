// The names that a pickle of tensors may use, and their meanings for a reader of data. Private to
// checkpoint/pytorch/.
#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>

#include "checkpoint/pytorch/pickle.h"
#include "tensor/dtype.h"

namespace sluice {

enum class PickleMeaning {
  kDict,
  kSize,
  kParameter,
  kTensor,
  kTypedTensor,
  kStorageType,
  kElementType
};

struct PickleName {
  std::string_view module;
  std::string_view name;
  PickleMeaning meaning;
  DType dtype = DType::kF32;  // type of the elements
  bool is_untyped = false;    // a storage of bytes
};

inline constexpr PickleName kPickleNames[] = {
    {"collections", "OrderedDict", PickleMeaning::kDict},
    {"torch", "Size", PickleMeaning::kSize},
    {"torch._utils", "_rebuild_parameter", PickleMeaning::kParameter},
    {"torch._utils", "_rebuild_tensor", PickleMeaning::kTensor},
    {"torch._utils", "_rebuild_tensor_v2", PickleMeaning::kTensor},
    {"torch._utils", "_rebuild_tensor_v3", PickleMeaning::kTypedTensor},
    {"torch", "FloatStorage", PickleMeaning::kStorageType, DType::kF32},
    {"torch", "DoubleStorage", PickleMeaning::kStorageType, DType::kF64},
    {"torch", "HalfStorage", PickleMeaning::kStorageType, DType::kF16},
    {"torch", "BFloat16Storage", PickleMeaning::kStorageType, DType::kBF16},
    {"torch", "LongStorage", PickleMeaning::kStorageType, DType::kI64},
    {"torch", "IntStorage", PickleMeaning::kStorageType, DType::kI32},
    {"torch", "ShortStorage", PickleMeaning::kStorageType, DType::kI16},
    {"torch", "CharStorage", PickleMeaning::kStorageType, DType::kI8},
    {"torch", "ByteStorage", PickleMeaning::kStorageType, DType::kU8},
    {"torch", "BoolStorage", PickleMeaning::kStorageType, DType::kBool},
    {"torch.storage", "UntypedStorage", PickleMeaning::kStorageType, DType::kU8, true},
    {"torch", "UntypedStorage", PickleMeaning::kStorageType, DType::kU8, true},
    {"torch", "float8_e4m3fn", PickleMeaning::kElementType, DType::kF8E4M3},
    {"torch", "float8_e5m2", PickleMeaning::kElementType, DType::kF8E5M2},
};

inline constexpr std::size_t kNoPickleName = std::size(kPickleNames);

constexpr std::size_t find_pickle_name(std::string_view module, std::string_view name) {
  std::size_t row = 0;
  while (row < kNoPickleName &&
         (kPickleNames[row].module != module || kPickleNames[row].name != name))
    ++row;
  return row;
}

constexpr const PickleName& pickle_name(std::size_t row) {
  return kPickleNames[row];
}

// The words of messages for each PickleKind.
inline constexpr std::string_view kKindNames[] = {
    "None",    "a bool", "an integer", "a long integer", "a float",   "a text",  "bytes",
    "a tuple", "a list", "a dict",     "a name",         "a storage", "a tensor"};

inline std::string_view kind_name(PickleKind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

}  // namespace sluice
