// Writes to a file of SQLite on a thread of its own, so that nothing that serves waits for a disk.
//
//   writer.submit({.run = [=](Database& file) { ... }, .done = [](const StorageError*) { ... }});
//
// Jobs run in the order of their submission; those that wait share a transaction. A job that may
// wait is tried again, at growing intervals, while the file cannot be written; the others fail at
// once. What waits is bounded in bytes. The destructor writes what waits, with one try. A failure
// and the end of it are lines of the log. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "storage/database.h"

namespace sluice {

class DatabaseWriter {
 public:
  struct Job {
    // In a transaction. May run again after a failure, so only the last run counts.
    std::function<void(Database&)> run;
    // Once, on the writer's thread: null where the file has it.
    std::function<void(const StorageError*)> done;
    std::size_t bytes = 0;  // that the job holds
    bool may_wait = false;
  };
  // Opens the file: Error as of Database.
  DatabaseWriter(const std::string& path, const DatabaseKind& kind, std::size_t max_waiting_bytes);
  ~DatabaseWriter();
  DatabaseWriter(const DatabaseWriter&) = delete;
  DatabaseWriter& operator=(const DatabaseWriter&) = delete;

  // False, and the job is gone: too much waits, or the file is damaged. A job with bytes 0 is
  // always taken.
  bool submit(Job job);
  std::uint64_t num_failures() const { return failures_.load(); }
  std::size_t waiting_bytes() const;

 private:
  using Jobs = std::deque<Job>;
  void work();
  // Runs all of them, each alone where the rows of one may be at fault. What may be tried again
  // stays in `jobs`; then the result is true.
  bool write(Jobs& jobs);
  void write_together(Jobs& jobs);
  std::optional<StorageError> write_one(Job& job);
  void note(const StorageError* error);

  const std::string path_;
  const std::string what_;
  const std::size_t max_waiting_bytes_;
  std::atomic<std::uint64_t> failures_{0};
  // Writer's thread.
  Database file_;
  std::optional<StorageTrouble> trouble_;  // that the log knows of
  // Guarded by mutex_.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Jobs jobs_;
  std::size_t waiting_bytes_ = 0;
  bool is_urgent_ = false;  // a job that may not wait came
  bool is_damaged_ = false;
  bool is_ending_ = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace sluice
