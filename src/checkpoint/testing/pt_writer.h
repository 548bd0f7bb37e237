// Writes small files in the form of torch.save for tests, valid and invalid.
//
//   PickleWriter pickle;
//   pickle.begin_dict().tensor("w", "FloatStorage", "0", 6, 0, {2, 3}, {3, 1}).end_dict();
//   ZipWriter zip;
//   zip.add("archive/data.pkl", pickle.bytes()).add("archive/data/0", elements);
//   folder.write("pytorch_model.bin", zip.bytes());
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/pytorch/zip_file.h"

namespace sluice {

template <class T>
std::string little_endian(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// Opcodes of protocol 2.
class PickleWriter {
 public:
  static std::string text(std::string_view value) {
    return 'X' + little_endian(static_cast<std::uint32_t>(value.size())) + std::string(value);
  }
  static std::string integer(std::int64_t value) {
    return std::string("\x8a\x08", 2) + little_endian(value);
  }
  static std::string name(std::string_view module, std::string_view name) {
    return 'c' + std::string(module) + '\n' + std::string(name) + '\n';
  }
  static std::string integers(const std::vector<std::int64_t>& values) {
    std::string out = "(";
    for (const std::int64_t value : values) out += integer(value);
    return out + 't';
  }
  static std::string storage(std::string_view type, std::string_view key, std::int64_t elements) {
    return '(' + text("storage") + name("torch", type) + text(key) + text("cpu") +
           integer(elements) + "tQ";
  }
  static std::string tensor_value(const std::string& storage, std::int64_t offset,
                                  const std::vector<std::int64_t>& shape,
                                  const std::vector<std::int64_t>& strides) {
    return name("torch._utils", "_rebuild_tensor_v2") + '(' + storage + integer(offset) +
           integers(shape) + integers(strides) + '\x89' + name("collections", "OrderedDict") +
           ")RtR";
  }

  PickleWriter& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  PickleWriter& begin_dict() {
    return raw(std::string("\x80\x02", 2)).raw(name("collections", "OrderedDict") + ")R(");
  }
  PickleWriter& tensor(std::string_view key, std::string_view type, std::string_view storage_key,
                       std::int64_t elements, std::int64_t offset,
                       const std::vector<std::int64_t>& shape,
                       const std::vector<std::int64_t>& strides) {
    return raw(text(key) +
               tensor_value(storage(type, storage_key, elements), offset, shape, strides));
  }
  PickleWriter& end_dict() { return raw("u."); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class ZipWriter {
 public:
  struct Entry {
    std::string name;
    std::string data;
    std::string local_name;  // name in the entry's own header
    std::uint16_t method = 0;
    std::uint16_t flags = 0;
    std::uint16_t disk = 0;
    std::optional<std::uint32_t> crc = {};  // instead of the right ones
    std::optional<std::uint64_t> stored = {};
    std::optional<std::uint64_t> size = {};
    std::optional<std::uint64_t> header = {};
    std::string extra = {};  // extra field of the directory
  };

  ZipWriter& add(std::string name, std::string data) {
    Entry entry;
    entry.local_name = name;
    entry.name = std::move(name);
    entry.data = std::move(data);
    entries.push_back(std::move(entry));
    return *this;
  }

  // With 64-bit records if `wide`.
  std::string bytes() const {
    std::string out = prefix, directory;
    for (const Entry& e : entries) {
      const std::uint64_t header = e.header.value_or(out.size()),
                          size = e.size.value_or(e.data.size()), stored = e.stored.value_or(size);
      const std::uint32_t crc = e.crc.value_or(crc32(e.data));
      out += little_endian(0x04034B50u) + head(e, crc, size) +
             little_endian(static_cast<std::uint16_t>(e.local_name.size())) +
             little_endian(std::uint16_t{0}) + e.local_name + e.data;
      const std::string extra = wide ? little_endian(std::uint16_t{1}) +
                                           little_endian(std::uint16_t{24}) + little_endian(size) +
                                           little_endian(stored) + little_endian(header)
                                     : e.extra;
      const auto narrow = [&](std::uint64_t value) {
        return little_endian(wide ? ~0u : static_cast<std::uint32_t>(value));
      };
      directory +=
          little_endian(0x02014B50u) + little_endian(std::uint16_t{20}) +
          little_endian(std::uint16_t{20}) + little_endian(e.flags) + little_endian(e.method) +
          little_endian(0u) + little_endian(crc) + narrow(stored) + narrow(size) +
          little_endian(static_cast<std::uint16_t>(e.name.size())) +
          little_endian(static_cast<std::uint16_t>(extra.size())) +
          little_endian(std::uint16_t{0}) + little_endian(e.disk) +
          little_endian(std::uint16_t{0}) + little_endian(0u) + narrow(header) + e.name + extra;
    }
    const std::uint64_t at = directory_at.value_or(out.size()),
                        count = num_entries.value_or(entries.size());
    const std::uint64_t length = directory_bytes.value_or(directory.size());
    out += directory;
    if (wide) {
      const std::uint64_t end = out.size();
      out += little_endian(0x06064B50u) + little_endian(std::uint64_t{44}) +
             little_endian(0x002D002Du) + little_endian(0u) + little_endian(0u) +
             little_endian(count) + little_endian(count) + little_endian(length) +
             little_endian(at);
      out += little_endian(0x07064B50u) + little_endian(0u) +
             little_endian(end64_at.value_or(end)) + little_endian(1u);
    }
    const auto narrow16 = [&](std::uint64_t value) {
      return little_endian(static_cast<std::uint16_t>(wide ? 0xFFFF : value));
    };
    const auto narrow32 = [&](std::uint64_t value) {
      return little_endian(wide ? ~0u : static_cast<std::uint32_t>(value));
    };
    return out + little_endian(0x06054B50u) + little_endian(0u) + narrow16(count) +
           narrow16(count) + narrow32(length) + narrow32(at) +
           little_endian(static_cast<std::uint16_t>(comment.size())) + comment;
  }

  std::vector<Entry> entries;
  bool wide = false;
  std::string prefix, comment;
  std::optional<std::uint64_t> num_entries, directory_at, directory_bytes,
      end64_at;  // may be false

 private:
  static std::string head(const Entry& e, std::uint32_t crc, std::uint64_t size) {
    return little_endian(std::uint16_t{20}) + little_endian(e.flags) + little_endian(e.method) +
           little_endian(0u) + little_endian(crc) +
           little_endian(static_cast<std::uint32_t>(size)) +
           little_endian(static_cast<std::uint32_t>(size));
  }
};

}  // namespace sluice
