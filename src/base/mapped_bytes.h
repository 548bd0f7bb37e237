// Bytes of a file, mapped from the page cache, for a reader that repacks them in one pass
// (weights). Mapping saves the copy that read() makes.
//
// If a mapped file becomes shorter, or a disk fails, an access raises SIGBUS, which would end the
// process. So a handler, installed with the first mapping, replaces the bytes by zeros: the reader
// goes on, and whole() reports the loss afterwards (R6). Signals for other addresses go to the
// handler that was installed before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace sluice {

class MappedBytes {
 public:
  // Bytes [offset, offset + bytes) of an open file. Nothing when they cannot be had so: the file
  // ends before, its file system does not map, or kMax are mapped at once. Any thread.
  static std::optional<MappedBytes> map(int descriptor, std::uint64_t offset, std::uint64_t bytes);
  ~MappedBytes();
  MappedBytes(MappedBytes&& other) noexcept;
  MappedBytes& operator=(MappedBytes&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  // Whether all bytes read so far were the file's bytes.
  bool whole() const;

  static constexpr int kMax = 256;

 private:
  MappedBytes(int slot, std::span<const std::byte> bytes) : slot_(slot), bytes_(bytes) {}

  int slot_ = -1;  // index in the handler's table; -1: moved from
  std::span<const std::byte> bytes_;
};

}  // namespace sluice
