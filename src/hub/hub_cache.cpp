#include "hub/hub_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>

#include "base/error.h"
#include "base/file.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";
constexpr std::string_view kTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This directory holds downloaded models, which can be fetched again "
    "(https://bford.info/cachedir/).\n";

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    parts.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// A folder, held by its descriptor.
class Folder {
 public:
  // A path from the user: created with its parents, links followed.
  explicit Folder(const std::string& path) : path_(path) {
    std::error_code error;
    fs::create_directories(path, error);
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(descriptor_ >= 0, "open");
  }
  ~Folder() { ::close(descriptor_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  int get() const { return descriptor_; }
  // Enters a subfolder, created if it is missing; a link is refused.
  void enter(const std::string& name) {
    if (::mkdirat(descriptor_, name.c_str(), 0777) != 0)
      must(errno == EEXIST, "make " + name + " in");
    const int inner =
        ::openat(descriptor_, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    must(inner >= 0, "open " + name + " in");
    ::close(std::exchange(descriptor_, inner));
    path_ += '/' + name;
  }
  void must(bool condition, std::string_view what) const {
    require(
        condition,
        "cannot {} {}: {}; --download-dir (or HF_HUB_CACHE) names another directory for the cache",
        what, path_, std::strerror(errno));
  }

 private:
  std::string path_;
  int descriptor_ = -1;
};

// A unique name beside `name`.
std::string temporary_name(std::string_view name) {
  std::random_device random;
  return fmt::format("{}.{:08x}.tmp", name.substr(0, 200), random());
}

bool write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// Atomically replaces the file `name` of the folder by one with this text.
void replace_file(const Folder& folder, const std::string& name, std::string_view text) {
  const std::string temporary = temporary_name(name);
  const int file = ::openat(folder.get(), temporary.c_str(),
                            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  folder.must(file >= 0, "write to");
  const bool written = write_all(file, text);
  const bool closed = ::close(file) == 0;
  const bool renamed = written && closed &&
                       ::renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) == 0;
  const int why = errno;
  if (!renamed) ::unlinkat(folder.get(), temporary.c_str(), 0);
  errno = why;
  folder.must(renamed, "write " + name + " to");
}

// Copies a blob to a new file of the folder.
void copy_into(const Folder& folder, const std::string& blob, const std::string& temporary) {
  const File source = open_regular_file(blob);
  const int file = ::openat(folder.get(), temporary.c_str(),
                            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  folder.must(file >= 0, "write to");
  std::string buffer(1 << 20, '\0');
  const std::uint64_t size = source.size();
  bool good = true;
  for (std::uint64_t at = 0; good && at < size;) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), size - at));
    good = source.read(at, std::as_writable_bytes(std::span(buffer.data(), count))) &&
           write_all(file, {buffer.data(), count});
    at += count;
  }
  good = ::close(file) == 0 && good;
  folder.must(good, "copy to");
}

}  // namespace

std::string repo_folder_name(std::string_view repo_id) {
  std::string name = "models";
  for (const std::string& part : parts_of(repo_id)) name += "--" + part;
  return name;
}

std::string repo_id_of_folder(std::string_view folder) {
  if (!folder.starts_with(kPrefix) || folder.size() == kPrefix.size()) return "";
  std::string id(folder.substr(kPrefix.size()));
  const std::size_t at = id.find("--");
  if (at != std::string::npos) id.replace(at, 2, "/");
  return id.find("--") == std::string::npos ? id : "";
}

RepoCache::RepoCache(std::string cache, std::string_view repo_id)
    : cache_(std::move(cache)), name_(repo_folder_name(repo_id)), folder_(cache_ + "/" + name_) {}

std::string RepoCache::snapshot(std::string_view commit) const {
  return fmt::format("{}/snapshots/{}", folder_, commit);
}
std::string RepoCache::blob(std::string_view digest) const {
  return fmt::format("{}/blobs/{}", folder_, digest);
}
std::string RepoCache::lock(std::string_view digest) const {
  return fmt::format("{}/.locks/{}/{}.lock", cache_, name_, digest);
}

std::string RepoCache::read_ref(std::string_view revision) const {
  const fs::path ref = fs::path(folder_) / "refs" / revision;
  std::error_code error;
  if (!fs::is_directory(ref.parent_path(), error)) return {};
  std::string commit =
      read_text_beneath(ref.parent_path().string(), ref.filename().string(), 4096).value_or("");
  while (!commit.empty() &&
         (commit.back() == '\n' || commit.back() == '\r' || commit.back() == ' '))
    commit.pop_back();
  require(commit.empty() || is_hex(commit, 40),
          "{} does not hold a commit of 40 hex digits; the cache is damaged: remove that file, and "
          "`sluice pull` writes it anew",
          ref.string());
  return commit;
}

std::optional<std::vector<RepoFile>> RepoCache::read_tree(std::string_view commit) const {
  std::error_code error;
  if (!fs::is_directory(folder_ + "/trees", error)) return std::nullopt;
  try {
    const auto text = read_text_beneath(folder_ + "/trees", fmt::format("{}.json", commit),
                                        RepoLimits{}.max_page_bytes);
    return text ? parse_tree_cache(*text) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;  // an optimisation only
  }
}

bool RepoCache::has_file(std::string_view commit, std::string_view path) const {
  std::error_code error;
  return fs::is_regular_file(fs::path(snapshot(commit)) / path, error);
}

bool RepoCache::is_known_absent(std::string_view commit, std::string_view path) const {
  std::error_code error;
  return fs::is_regular_file(fs::path(folder_) / ".no_exist" / commit / path, error);
}

void RepoCache::prepare() const {
  Folder root(cache_);
  if (::faccessat(root.get(), "CACHEDIR.TAG", F_OK, 0) != 0)
    replace_file(root, "CACHEDIR.TAG", kTag);
  Folder(cache_ + "/.locks").enter(name_);
  for (const char* part : {"blobs", "refs", "snapshots"})
    Folder(folder_).enter(part);  // the folder itself may be a link to another disk
}

void RepoCache::write_ref(std::string_view revision, std::string_view commit) const {
  Folder folder(folder_);
  std::vector<std::string> parts = parts_of(fmt::format("refs/{}", revision));
  const std::string name = parts.back();
  parts.pop_back();
  for (const std::string& part : parts) folder.enter(part);
  replace_file(folder, name, commit);
}

void RepoCache::write_tree(std::string_view commit, const std::vector<RepoFile>& files) const {
  Folder folder(folder_);
  folder.enter("trees");
  replace_file(folder, fmt::format("{}.json", commit), tree_cache_text(files));
}

void RepoCache::mark_absent(std::string_view commit, std::string_view path) const {
  if (is_known_absent(commit, path)) return;
  Folder folder(folder_);
  folder.enter(".no_exist");
  std::vector<std::string> parts = parts_of(fmt::format("{}/{}", commit, path));
  const std::string name = parts.back();
  parts.pop_back();
  for (const std::string& part : parts) folder.enter(part);
  replace_file(folder, name, "");
}

void RepoCache::link(std::string_view commit, std::string_view path, std::string_view digest,
                     bool symlinks, bool is_new) const {
  check(is_safe_repo_path(path), "a path that is not safe reached the cache: {}", path);
  Folder folder(folder_);
  std::vector<std::string> parts = parts_of(fmt::format("snapshots/{}/{}", commit, path));
  const std::string name = parts.back();
  parts.pop_back();
  std::string target;
  for (const std::string& part : parts) {
    folder.enter(part);
    target += "../";
  }
  target += fmt::format("blobs/{}", digest);
  const std::string temporary = temporary_name(name);
  const bool linked = symlinks && ::symlinkat(target.c_str(), folder.get(), temporary.c_str()) == 0;
  if (!linked) {
    const bool can_copy = !symlinks || errno == EPERM || errno == ENOTSUP || errno == ENOSYS;
    folder.must(can_copy, "link " + name + " in");
    const bool moved =
        is_new && ::renameat(AT_FDCWD, blob(digest).c_str(), folder.get(), temporary.c_str()) == 0;
    if (!moved) copy_into(folder, blob(digest), temporary);
  }
  const bool renamed = ::renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) == 0;
  const int why = errno;
  if (!renamed) ::unlinkat(folder.get(), temporary.c_str(), 0);
  errno = why;
  folder.must(renamed, "put " + name + " in");
}

std::uint64_t free_bytes(const std::string& path) {
  fs::path place = path;
  struct statvfs info{};
  while (::statvfs(place.empty() ? "." : place.c_str(), &info) != 0) {
    require(place.has_parent_path() && place != place.parent_path(),
            "cannot see how much space {} has: {}", path, std::strerror(errno));
    place = place.parent_path();
  }
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace sluice
