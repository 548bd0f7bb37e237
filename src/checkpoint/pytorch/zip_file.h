// The entries of a zip archive that are stored without compression, as torch.save writes them.
//
//   ZipFile zip(open_regular_file(path), path);
//   const ZipEntry* entry = zip.find("archive/data.pkl");
//   std::string text = zip.read_checked(*entry, 64 << 20);
//
// The archive is not trusted (R4, R6). The end record must end the file, and every offset and
// length is checked against the file. An entry must be stored in one piece, have one name, the same
// in its local header, and overlap no other entry. So an archive never yields more bytes than it
// has. Archives beyond 4 GiB (zip64) are supported. Encrypted or compressed entries, several disks,
// duplicate names, and bytes before the first entry are refused. Error{kBadInput} names the file
// and the entry. Source: PKWARE APPNOTE.TXT 6.3.9, sections 4.3 to 4.5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"

namespace sluice {

struct ZipEntry {
  std::string name;
  std::uint64_t offset = 0;  // offset of its bytes from the start of the file
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
};

class ZipFile {
 public:
  // Reads and checks the directory. `name` is used in messages.
  ZipFile(const File& file, std::string name);

  const std::vector<ZipEntry>& entries() const {
    return entries_;
  }  // in the order of the directory
  const ZipEntry* find(std::string_view name) const;  // null when there is none
  // The whole entry, with its CRC-32 verified. Error{kBadInput}: it has more than `max_bytes`.
  std::string read_checked(const ZipEntry& entry, std::uint64_t max_bytes) const;
  // Reads the whole entry in pieces and verifies its CRC-32.
  void verify(const ZipEntry& entry) const;

 private:
  struct Directory {
    std::uint64_t offset = 0, bytes = 0, entries = 0, end = 0;  // end: where the end records begin
  };
  Directory find_directory() const;
  void read_directory(const Directory& directory);
  void place(ZipEntry& entry, std::uint64_t header, std::uint64_t end);
  void require_crc(const ZipEntry& entry, std::uint32_t seen) const;
  std::string bytes_at(std::uint64_t offset, std::uint64_t count) const;

  const File& file_;
  std::string name_;
  std::uint64_t size_ = 0;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;  // views of entries_
};

// CRC-32 of the zip format. For bytes in pieces: crc32(second, crc32(first)).
std::uint32_t crc32(std::string_view bytes, std::uint32_t before = 0);

}  // namespace sluice
