// Files of a model directory, opened by plain name beneath a directory and read with pread (R6,
// R8).
//
// Names that come from a file (shards of an index) must be one path component of [A-Za-z0-9._-]
// that does not begin with a dot or a dash. They are opened beneath the directory's descriptor. The
// directory itself comes from the user and is trusted. Its entries may be symbolic links, since the
// Hugging Face cache stores snapshots as links to ../../blobs. The target must be a regular file,
// and opening never blocks on a pipe or a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_bytes.h"

namespace sluice {

// An open regular file; closed with the object.
class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  std::uint64_t size() const;
  // Fills `out` from byte `offset` of the file; false when the file ends before. System errors
  // throw. Any thread.
  bool read(std::uint64_t offset, std::span<std::byte> out) const;
  // The same bytes as read(), mapped instead of copied; see MappedBytes::map(). Any thread.
  std::optional<MappedBytes> map(std::uint64_t offset, std::uint64_t bytes) const {
    return MappedBytes::map(descriptor_, offset, bytes);
  }

 private:
  int descriptor_ = -1;
};

// Whether `name` may be opened beneath a model directory.
bool is_plain_file_name(std::string_view name);

// As is_plain_file_name(), for a path of several components.
bool is_plain_path(std::string_view path);

// The names of a directory's entries of any type, sorted; none when the directory cannot be read.
std::vector<std::string> names_in(const std::string& directory);

// Opens `directory`/`name`; nothing when there is no such entry. Error{kBadInput} when the name is
// not plain, the entry is no regular file, or the system refuses.
std::optional<File> open_beneath(const std::string& directory, std::string_view name);

// Opens the file at `path`, which comes from the user. Error{kBadInput} when the file is missing,
// is no regular file, or the system refuses.
File open_regular_file(const std::string& path);

// The whole text of `directory`/`name`, at most `max_bytes` long; nothing when there is no such
// entry.
std::optional<std::string> read_text_beneath(const std::string& directory, std::string_view name,
                                             std::uint64_t max_bytes);

}  // namespace sluice
