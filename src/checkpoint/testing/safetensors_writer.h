// Writes small safetensors files, for tests.
//
//   SafetensorsWriter writer;
//   writer.add("model.norm.weight", "F32", {4}, floats).write_to(folder, "model.safetensors");
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/testing/folder.h"

namespace sluice {

class SafetensorsWriter {
 public:
  // `values`: elements of the type that `dtype` names.
  template <class T>
  SafetensorsWriter& add(std::string_view name, std::string_view dtype,
                         const std::vector<std::int64_t>& shape, const std::vector<T>& values) {
    const std::size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    header_ += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                           header_.empty() ? "" : ",", name, dtype, fmt::join(shape, ","), begin,
                           data_.size());
    return *this;
  }

  std::string bytes() const {
    const std::string header = '{' + header_ + '}';
    const std::uint64_t length = header.size();
    std::string out(8, '\0');
    std::memcpy(out.data(), &length, 8);
    return out + header + data_;
  }
  void write_to(const TestFolder& folder, const std::string& name) const {
    folder.write(name, bytes());
  }

 private:
  std::string header_;
  std::string data_;
};

}  // namespace sluice
