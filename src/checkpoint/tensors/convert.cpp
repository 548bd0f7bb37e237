#include "checkpoint/tensors/convert.h"

#include <cstring>

namespace sluice {
namespace {

template <class From, class To>
void convert_all(const std::byte* in, std::byte* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, in + i * sizeof(From), sizeof(From));
    const To to = static_cast<To>(static_cast<float>(from));
    std::memcpy(out + i * sizeof(To), &to, sizeof(To));
  }
}

using Converter = void (*)(const std::byte*, std::byte*, std::int64_t);
struct Conversion {
  DType from;
  DType to;
  Converter convert;
};
constexpr Conversion kConversions[] = {
    {DType::kBF16, DType::kF32, convert_all<BF16, float>},
    {DType::kF16, DType::kF32, convert_all<F16, float>},
    {DType::kF64, DType::kF32, convert_all<double, float>},
    {DType::kF32, DType::kBF16, convert_all<float, BF16>},
    {DType::kF32, DType::kF16, convert_all<float, F16>},
    {DType::kF16, DType::kBF16, convert_all<F16, BF16>},
    {DType::kBF16, DType::kF16, convert_all<BF16, F16>},
};

const Conversion* find_conversion(DType from, DType to) {
  for (const Conversion& row : kConversions)
    if (row.from == from && row.to == to) return &row;
  return nullptr;
}

}  // namespace

bool convert_elements(DType from, const std::byte* in, DType to, std::byte* out,
                      std::int64_t count) {
  if (from == to) {
    std::memcpy(out, in, static_cast<std::size_t>(count * dtype_size(from)));
    return true;
  }
  const Conversion* row = find_conversion(from, to);
  if (row != nullptr) row->convert(in, out, count);
  return row != nullptr;
}

bool has_conversion(DType from, DType to) {
  return find_conversion(from, to) != nullptr;
}

}  // namespace sluice
