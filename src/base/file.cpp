#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace sluice {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

// A descriptor that is closed on every way out.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

// Refuses the pointer file that a clone without git-lfs has in place of a large file.
void refuse_pointer(int descriptor, std::uint64_t size, const std::string& path) {
  constexpr std::string_view kBeginning = "version https://git-lfs.github.com/spec/";
  char text[kBeginning.size()];
  if (size < kBeginning.size() || size > 1024) return;  // a pointer file has some 130 bytes
  const bool is_pointer = ::pread(descriptor, text, sizeof text, 0) == sizeof text &&
                          std::string_view(text, sizeof text) == kBeginning;
  require(!is_pointer,
          "{} is a pointer of git-lfs and not the file itself; fetch it with `git lfs pull` in "
          "that folder, or download the "
          "model with `sluice pull`",
          path);
}

}  // namespace

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}
File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

std::uint64_t File::size() const {
  struct stat info{};
  require(::fstat(descriptor_, &info) == 0, "cannot read the size of a file: {}",
          std::strerror(errno));
  return static_cast<std::uint64_t>(info.st_size);
}

bool File::read(std::uint64_t offset, std::span<std::byte> out) const {
  constexpr std::size_t kMaxRead = std::size_t{1} << 30;  // one pread moves at most 2 GiB
  for (std::size_t done = 0; done < out.size();) {
    const ssize_t got =
        ::pread(descriptor_, out.data() + done, std::min(out.size() - done, kMaxRead),
                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, "cannot read a file: {}", std::strerror(errno));
    if (got == 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), is_name_char);
}

bool is_plain_path(std::string_view path) {
  for (std::size_t slash; (slash = path.find('/')) != std::string_view::npos;
       path.remove_prefix(slash + 1))
    if (!is_plain_file_name(path.substr(0, slash))) return false;
  return is_plain_file_name(path);
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::optional<File> open_beneath(const std::string& directory, std::string_view name) {
  require(is_plain_file_name(name),
          "\"{}\" is not a plain file name of letters, digits, '.', '_' and '-'",
          name.substr(0, 80));
  const Descriptor parent(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  require(parent.get() >= 0, "cannot open the directory {}: {}", directory, std::strerror(errno));
  const std::string entry(name);
  Descriptor file(
      ::openat(parent.get(), entry.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0 && errno == ENOENT) return std::nullopt;
  require(file.get() >= 0, "cannot open {}/{}: {}", directory, name, std::strerror(errno));
  struct stat info{};
  require(::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode), "{}/{} is not a regular file",
          directory, name);
  refuse_pointer(file.get(), static_cast<std::uint64_t>(info.st_size),
                 fmt::format("{}/{}", directory, name));
  return File(file.release());
}

File open_regular_file(const std::string& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  require(file.get() >= 0, "cannot open {}: {}", path, std::strerror(errno));
  struct stat info{};
  require(::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode), "{} is not a regular file",
          path);
  refuse_pointer(file.get(), static_cast<std::uint64_t>(info.st_size), path);
  return File(file.release());
}

std::optional<std::string> read_text_beneath(const std::string& directory, std::string_view name,
                                             std::uint64_t max_bytes) {
  const std::optional<File> file = open_beneath(directory, name);
  if (!file) return std::nullopt;
  const std::uint64_t size = file->size();
  require(size <= max_bytes, "{}/{} is {} bytes long; at most {} are allowed", directory, name,
          size, max_bytes);
  std::string text(size, '\0');
  require(file->read(0, std::as_writable_bytes(std::span(text))),
          "{}/{} became shorter while it was read", directory, name);
  return text;
}

}  // namespace sluice
