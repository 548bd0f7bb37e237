// Writes small GGUF files for tests, valid and invalid.
//
//   GgufWriter writer;
//   writer.text("general.architecture", "llama").number("llama.block_count", std::uint32_t{2});
//   writer.tensor("token_embd.weight", {4, 32}, 0, bytes);
//   folder.write("model.gguf", writer.bytes());
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sluice {

class GgufWriter {
 public:
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> shape;  // row-major
    std::uint32_t type = 0;
    std::string data;
    std::optional<std::uint64_t> offset = {};  // instead of the next free one
  };

  template <class T>
  static std::string raw(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string string(std::string_view text) {
    return raw<std::uint64_t>(text.size()) + std::string(text);
  }

  // The numbers of the format's value types.
  template <class T>
  static constexpr std::uint32_t type_of() {
    if constexpr (std::is_same_v<T, std::uint8_t>) return 0;
    if constexpr (std::is_same_v<T, std::int8_t>) return 1;
    if constexpr (std::is_same_v<T, std::uint16_t>) return 2;
    if constexpr (std::is_same_v<T, std::int16_t>) return 3;
    if constexpr (std::is_same_v<T, std::uint32_t>) return 4;
    if constexpr (std::is_same_v<T, std::int32_t>) return 5;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, std::uint64_t>) return 10;
    if constexpr (std::is_same_v<T, std::int64_t>) return 11;
    if constexpr (std::is_same_v<T, double>) return 12;
    return 99;
  }

  // A value of any type, as its bytes.
  GgufWriter& value(std::string_view key, std::uint32_t type, const std::string& bytes) {
    values_.push_back(string(key) + raw(type) + bytes);
    return *this;
  }
  template <class T>
  GgufWriter& number(std::string_view key, T number) {
    return value(key, type_of<T>(), raw(number));
  }
  GgufWriter& text(std::string_view key, std::string_view text) {
    return value(key, 8, string(text));
  }
  template <class T>
  GgufWriter& numbers(std::string_view key, const std::vector<T>& numbers) {
    std::string bytes = raw(type_of<T>()) + raw<std::uint64_t>(numbers.size());
    for (const T item : numbers) bytes += raw(item);
    return value(key, 9, bytes);
  }
  GgufWriter& texts(std::string_view key, const std::vector<std::string>& texts) {
    std::string bytes = raw<std::uint32_t>(8) + raw<std::uint64_t>(texts.size());
    for (const std::string& item : texts) bytes += string(item);
    return value(key, 9, bytes);
  }

  GgufWriter& tensor(std::string_view name, std::vector<std::uint64_t> shape, std::uint32_t type,
                     std::string data) {
    tensors.push_back({std::string(name), std::move(shape), type, std::move(data)});
    return *this;
  }
  // The caller provides the encoding (F32, F16 bits and so on): `data` goes to the file unchanged.
  GgufWriter& floats(std::string_view name, std::vector<std::uint64_t> shape,
                     const std::vector<float>& data) {
    std::string bytes;
    for (const float value : data) bytes += raw(value);
    return tensor(name, std::move(shape), 0, std::move(bytes));
  }

  std::string bytes() const {
    std::string out = magic + raw(version) +
                      raw<std::uint64_t>(num_tensors.value_or(tensors.size())) +
                      raw<std::uint64_t>(num_values.value_or(values_.size()));
    for (const std::string& value : values_) out += value;
    std::string data;
    for (const Tensor& tensor : tensors) {
      data.resize((data.size() + alignment - 1) / alignment * alignment);
      out += string(tensor.name) + raw(static_cast<std::uint32_t>(tensor.shape.size()));
      for (std::size_t i = tensor.shape.size(); i-- > 0;) out += raw(tensor.shape[i]);
      out += raw(tensor.type) + raw(tensor.offset.value_or(data.size()));
      data += tensor.data;
    }
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }

  // Header fields; tests may set false values.
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  // alignment of the bytes; the file states it only if the key is written, too
  std::uint64_t alignment = 32;
  std::optional<std::uint64_t> num_tensors, num_values;
  std::vector<Tensor> tensors;

 private:
  std::vector<std::string> values_;
};

}  // namespace sluice
