// Bytes of a file where they lie in the page cache, for a reader that takes them elsewhere in one
// pass (weights that are repacked), which spares it the copy that read() makes.
//
// A file that becomes shorter while it is mapped, or a disk that fails, would end the process with
// SIGBUS. So a handler, installed with the first mapping, puts zeros where the bytes were: the
// reader goes on, and whole() tells it afterwards (R6). Signals for other addresses take the way
// they took before.
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
  // Whether all that was read so far were the file's bytes.
  bool whole() const;

  static constexpr int kMax = 256;

 private:
  MappedBytes(int slot, std::span<const std::byte> bytes) : slot_(slot), bytes_(bytes) {}

  int slot_ = -1;  // among the mappings that the handler knows; -1: moved from
  std::span<const std::byte> bytes_;
};

}  // namespace sluice
