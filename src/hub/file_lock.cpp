#include "hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kStep{50};
constexpr int kStepsBeforeNote = 10;

int open_lock(const std::string& path) {
  return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0664);
}

// Whether the file at `path` is still the file of `descriptor`: another process may have removed it
// before the lock was acquired.
bool is_current(int descriptor, const std::string& path) {
  struct stat held{}, named{};
  return ::fstat(descriptor, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

}  // namespace

FileLock::FileLock(const std::string& path, const std::atomic<bool>* stop,
                   const std::function<void()>& on_wait) {
  for (int steps = 0;; ++steps) {
    if (descriptor_ < 0) descriptor_ = open_lock(path);
    require(descriptor_ >= 0,
            "cannot make the lock {}: {}; --download-dir (or HF_HUB_CACHE) names another directory "
            "for the cache",
            path, std::strerror(errno));
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
      if (is_current(descriptor_, path)) break;
      ::close(std::exchange(descriptor_, -1));
      continue;
    }
    if (errno == ENOSYS || errno == ENOTSUP || errno == ENOLCK) {
      is_real_ = false;
      return;
    }
    if (steps == kStepsBeforeNote && on_wait) on_wait();
    if (stop != nullptr && stop->load()) {
      ::close(std::exchange(descriptor_, -1));
      fail(ErrorKind::kFatal, "stopped while waiting for {}", path);
    }
    std::this_thread::sleep_for(kStep);
  }
  // A second descriptor must be refused.
  const int second = open_lock(path);
  is_real_ = second < 0 || ::flock(second, LOCK_EX | LOCK_NB) != 0;
  if (second >= 0) ::close(second);
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);  // also unlocks
}

bool is_locked(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;
  const bool held = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return held;
}

}  // namespace sluice
