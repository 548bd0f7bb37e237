// Messages of fixed layout as bytes: numbers in the machine's order, lists and texts behind their
// counts.
//
//   ByteWriter out;
//   out.value(std::uint32_t{7});
//   out.list(tokens);
//   ByteReader in(out.bytes());
//   const auto seven = in.value<std::uint32_t>();
//   const auto tokens = in.list<std::int32_t>();
//   in.expect_end();
//
// The reader checks every length against the bytes that are left (R1). Error{kFatal}: the bytes are
// no such message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace sluice {

// A number without padding bytes, or a struct of such numbers.
template <class T>
concept PlainBytes = std::is_trivially_copyable_v<T> &&
                     (std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>);

class ByteWriter {
 public:
  template <PlainBytes T>
  void value(const T& value) {
    append(&value, sizeof value);
  }
  template <PlainBytes T>
  void list(const std::vector<T>& values) {
    value(std::uint64_t{values.size()});
    append(values.data(), values.size() * sizeof(T));
  }
  void text(std::string_view text) {
    value(std::uint64_t{text.size()});
    append(text.data(), text.size());
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  void append(const void* data, std::size_t size) {
    if (size == 0) return;
    const std::size_t at = bytes_.size();
    bytes_.resize(at + size);
    std::memcpy(bytes_.data() + at, data, size);
  }
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  // `bytes` outlive the reader.
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <PlainBytes T>
  T value() {
    T out;
    std::memcpy(&out, take(sizeof out), sizeof out);
    return out;
  }
  // A flag is 0 or 1.
  bool flag() {
    const auto byte = value<std::uint8_t>();
    if (byte > 1) fail(ErrorKind::kFatal, "a message has {} where 0 or 1 stands", byte);
    return byte == 1;
  }
  // The count of a list whose entries take at least `entry_bytes` each.
  std::size_t count(std::size_t entry_bytes) {
    const auto count = value<std::uint64_t>();
    if (count > left_.size() / entry_bytes)
      fail(ErrorKind::kFatal, "a message counts {} entries, and {} bytes are left", count,
           left_.size());
    return static_cast<std::size_t>(count);
  }
  template <PlainBytes T>
  std::vector<T> list() {
    std::vector<T> out(count(sizeof(T)));
    const std::byte* from = take(out.size() * sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), from, out.size() * sizeof(T));
    return out;
  }
  std::string text() {
    const std::size_t size = count(1);
    return std::string(reinterpret_cast<const char*>(take(size)), size);
  }
  void expect_end() const {
    if (!left_.empty()) fail(ErrorKind::kFatal, "a message has {} bytes too many", left_.size());
  }

 private:
  const std::byte* take(std::size_t size) {
    if (size > left_.size())
      fail(ErrorKind::kFatal, "a message ends where {} bytes were to come, and {} are left", size,
           left_.size());
    const std::byte* at = left_.data();
    left_ = left_.subspan(size);
    return at;
  }
  std::span<const std::byte> left_;
};

}  // namespace sluice
