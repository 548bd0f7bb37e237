// An advisory lock on a file (flock), as huggingface_hub takes it on .locks/<repo>/<etag>.lock: one
// process at a time downloads a blob, and the others find it afterwards.
#pragma once

#include <atomic>
#include <functional>
#include <string>

namespace sluice {

class FileLock {
 public:
  // Makes the file where it is missing and waits until nobody else holds it; `on_wait` is called
  // once when that takes longer than a moment. Gives up when `stop` is set: Error{kFatal}.
  // Error{kBadInput} where the file cannot be made.
  FileLock(const std::string& path, const std::atomic<bool>* stop,
           const std::function<void()>& on_wait);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // False on file systems that give a lock to everybody who asks (some network file systems): what
  // others may be doing is then unknown.
  bool is_real() const { return is_real_; }

 private:
  int descriptor_ = -1;
  bool is_real_ = true;
};

// Whether another process, or another place of this one, holds the lock at `path` now.
bool is_locked(const std::string& path);

}  // namespace sluice
