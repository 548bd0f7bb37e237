#include "hub/partial_blob.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/digest.h"
#include "base/error.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".incomplete";
constexpr std::uint64_t kMagic = 0x3130424c41495450;  // "PTIALB01" in memory

// The header after the bytes of the blob; one byte for each piece follows it.
struct Marks {
  std::uint64_t magic = kMagic;
  std::uint64_t piece_bytes = 0;
  std::uint64_t num_pieces = 0;
};

std::size_t pieces_of(std::uint64_t size, std::uint64_t piece) {
  return static_cast<std::size_t>((size + piece - 1) / piece);
}

bool read_at(int file, std::uint64_t offset, void* out, std::size_t size) {
  auto* at = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = ::pread(file, at, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

void write_at(int file, const std::string& path, std::uint64_t offset, const void* bytes,
              std::size_t size) {
  const auto* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t put = ::pwrite(file, at, size, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    require(put >= 0 || (errno != ENOSPC && errno != EDQUOT),
            "the disk is full: {} cannot be written ({} are free); make room, or let "
            "--download-dir (or HF_HUB_CACHE) name a directory on a larger disk. "
            "What has come is kept",
            path, fmt::format("{} MiB", free_bytes(path) >> 20));
    require(put > 0, "cannot write {}: {}", path, std::strerror(errno));
    at += put;
    offset += static_cast<std::uint64_t>(put);
    size -= static_cast<std::size_t>(put);
  }
}

std::uint64_t size_of(int file) {
  struct stat info{};
  return ::fstat(file, &info) == 0 && S_ISREG(info.st_mode)
             ? static_cast<std::uint64_t>(info.st_size)
             : 0;
}

}  // namespace

std::uint64_t piece_bytes_of(std::uint64_t size) {
  constexpr std::uint64_t kMiB = 1 << 20;
  return std::clamp<std::uint64_t>((size / 64 + kMiB - 1) / kMiB, 1, 32) * kMiB;
}

// The digest of the first pieces.
struct PartialBlob::Digest {
  bool is_sha256;
  Sha256 sha256;
  Sha1 sha1;
  std::size_t next_piece = 0;

  Digest(bool wants_sha256, std::uint64_t size) : is_sha256(wants_sha256) {
    // git hashes a header before the contents.
    const std::string header = fmt::format("blob {}", size) + '\0';
    if (!is_sha256) sha1.update(std::as_bytes(std::span(header)));
  }
  void update(std::span<const std::byte> bytes) {
    is_sha256 ? sha256.update(bytes) : sha1.update(bytes);
  }
  std::string hex() { return is_sha256 ? sha256.hex() : sha1.hex(); }
};

PartialBlob::PartialBlob(const RepoCache& cache, std::string digest, std::uint64_t size,
                         bool may_claim)
    : cache_(cache), digest_(std::move(digest)), size_(size), piece_bytes_(piece_bytes_of(size)) {
  check(is_hex(digest_, 64) || is_hex(digest_, 40), "a blob named {}", digest_);
  std::random_device random;
  path_ = cache_.blob(fmt::format("{}.{:08x}{}", digest_, random(), kEnding));
  hashed_ = std::make_unique<Digest>(digest_.size() == 64, size_);
  if (may_claim && claim_leftover()) return;
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  require(
      descriptor_ >= 0,
      "cannot make {}: {}; --download-dir (or HF_HUB_CACHE) names another directory for the cache",
      path_, std::strerror(errno));
  begin_anew();
}

PartialBlob::~PartialBlob() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::uint64_t PartialBlob::marks_at() const {
  return size_ + sizeof(Marks);
}

void PartialBlob::begin_anew() {
  done_.assign(pieces_of(size_, piece_bytes_), false);
  const Marks marks{kMagic, piece_bytes_, done_.size()};
  // Clears the file, so that old marks vanish before the file has its size again.
  require(::ftruncate(descriptor_, 0) == 0, "cannot empty {}: {}", path_, std::strerror(errno));
  write_at(descriptor_, path_, size_, &marks, sizeof marks);
  require(::ftruncate(descriptor_, static_cast<off_t>(marks_at() + done_.size())) == 0,
          "cannot make {} larger: {}", path_, std::strerror(errno));
}

bool PartialBlob::read_marks() {
  const std::uint64_t length = size_of(descriptor_);
  Marks marks;
  if (length > size_ && read_at(descriptor_, size_, &marks, sizeof marks) &&
      marks.magic == kMagic && marks.piece_bytes >= 1 << 16 && marks.piece_bytes <= 1 << 30 &&
      marks.num_pieces == pieces_of(size_, marks.piece_bytes) &&
      length == marks_at() + marks.num_pieces) {
    std::string bytes(marks.num_pieces, '\0');
    if (!read_at(descriptor_, marks_at(), bytes.data(), bytes.size())) return false;
    piece_bytes_ = marks.piece_bytes;
    done_.assign(bytes.size(), false);
    for (std::size_t i = 0; i < bytes.size(); ++i) done_[i] = bytes[i] == 1;
    return true;
  }
  if (length == 0 || length > size_) return false;
  // The beginning of the blob, as huggingface_hub leaves it.
  piece_bytes_ = piece_bytes_of(size_);
  done_.assign(pieces_of(size_, piece_bytes_), false);
  for (std::size_t i = 0; i < done_.size(); ++i) done_[i] = end(i) <= length;
  const Marks fresh{kMagic, piece_bytes_, done_.size()};
  write_at(descriptor_, path_, size_, &fresh, sizeof fresh);
  for (std::size_t i = 0; i < done_.size(); ++i) {
    const char mark = done_[i] ? 1 : 0;
    write_at(descriptor_, path_, marks_at() + i, &mark, 1);
  }
  return true;
}

bool PartialBlob::claim_leftover() {
  std::vector<fs::path> leftovers;
  std::error_code error;
  const std::string beginning = digest_ + '.';
  for (fs::directory_iterator entry(fs::path(path_).parent_path(), error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(beginning) && name.ends_with(kEnding)) leftovers.push_back(entry->path());
  }
  // The file with the largest allocated size probably has the most data; the others are useless.
  const auto allocated = [](const fs::path& path) {
    struct stat info{};
    return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? info.st_blocks : -1;
  };
  std::ranges::sort(leftovers, std::greater<>(), allocated);
  for (const fs::path& leftover : leftovers) {
    if (descriptor_ < 0 && ::rename(leftover.c_str(), path_.c_str()) == 0) {
      descriptor_ = ::open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
      resumed_ = descriptor_ >= 0 && read_marks() && done_bytes() > 0;
      if (resumed_) continue;
      if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
      fs::remove(path_, error);
    } else {
      fs::remove(leftover, error);
    }
  }
  return resumed_;
}

bool PartialBlob::is_done(std::size_t piece) const {
  const std::lock_guard lock(mutex_);
  return done_[piece];
}

std::uint64_t PartialBlob::done_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < done_.size(); ++i)
    if (done_[i]) sum += end(i) - begin(i);
  return sum;
}

void PartialBlob::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  check(offset <= size_ && bytes.size() <= size_ - offset, "bytes beyond the end of {}", path_);
  write_at(descriptor_, path_, offset, bytes.data(), bytes.size());
}

void PartialBlob::mark_done(std::size_t piece) {
  const char mark = 1;
  write_at(descriptor_, path_, marks_at() + piece, &mark, 1);
  const std::lock_guard lock(mutex_);
  done_[piece] = true;
}

void PartialBlob::hash_done_pieces() {
  std::string buffer(1 << 20, '\0');
  while (hashed_->next_piece < num_pieces() && is_done(hashed_->next_piece)) {
    const std::size_t piece = hashed_->next_piece;
    for (std::uint64_t at = begin(piece); at < end(piece);) {
      const auto count =
          static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), end(piece) - at));
      require(read_at(descriptor_, at, buffer.data(), count), "cannot read {} back: {}", path_,
              std::strerror(errno));
      hashed_->update(std::as_bytes(std::span(buffer.data(), count)));
      at += count;
    }
    ++hashed_->next_piece;
  }
}

void PartialBlob::advance_digest() {
  const std::unique_lock lock(digest_mutex_, std::try_to_lock);
  if (lock.owns_lock()) hash_done_pieces();
}

bool PartialBlob::finish() {
  const std::lock_guard lock(digest_mutex_);
  hash_done_pieces();
  check(hashed_->next_piece == num_pieces(), "{} is not complete", path_);
  found_digest_ = hashed_->hex();
  hashed_ = std::make_unique<Digest>(digest_.size() == 64, size_);
  if (found_digest_ != digest_) {
    const std::lock_guard marks_lock(mutex_);
    resumed_ = false;
    begin_anew();
    return false;
  }
  const std::string blob = cache_.blob(digest_);
  const bool cut =
      ::ftruncate(descriptor_, static_cast<off_t>(size_)) == 0 && ::fsync(descriptor_) == 0;
  require(cut, "cannot finish {}: {}", path_, std::strerror(errno));
  // Without working locks another process may have been faster: its blob is as good.
  require(::rename(path_.c_str(), blob.c_str()) == 0 || fs::exists(blob),
          "cannot rename {} to {}: {}", path_, blob, std::strerror(errno));
  const int folder =
      ::open(fs::path(blob).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  return true;
}

}  // namespace sluice
