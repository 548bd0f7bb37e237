// An advisory lock on a file (flock), as huggingface_hub takes it on .locks/<repo>/<etag>.lock. One
// process at a time downloads a blob, and the others find it afterwards.
#pragma once

#include <atomic>
#include <functional>
#include <string>

namespace sluice {

class FileLock {
 public:
  // Creates the file if it is missing and waits for the lock; `on_wait` is called once if that
  // takes longer than a moment. Gives up when `stop` is set: Error{kFatal}. Error{kBadInput} if the
  // file cannot be created.
  FileLock(const std::string& path, const std::atomic<bool>* stop,
           const std::function<void()>& on_wait);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // False on file systems that grant a lock to every process (some network file systems): then
  // other processes may be writing.
  bool is_real() const { return is_real_; }

 private:
  int descriptor_ = -1;
  bool is_real_ = true;
};

// Whether another process, or another descriptor of this process, holds the lock at `path` now.
bool is_locked(const std::string& path);

}  // namespace sluice
