#include "storage/database_writer.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace sluice {
namespace {

constexpr int kLockWaitMs = 2000;
constexpr std::chrono::milliseconds kFirstPause{250}, kLongestPause{10'000};
// Jobs of one transaction, unless one must be tried at once.
constexpr std::size_t kMaxJobs = 256;

}  // namespace

DatabaseWriter::DatabaseWriter(const std::string& path, const DatabaseKind& kind,
                               std::size_t max_waiting_bytes)
    : path_(path),
      what_(kind.what),
      max_waiting_bytes_(max_waiting_bytes),
      file_(path, kind, kLockWaitMs),
      thread_([this] { work(); }) {}

DatabaseWriter::~DatabaseWriter() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool DatabaseWriter::submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (job.bytes > 0 && (is_damaged_ || waiting_bytes_ + job.bytes > max_waiting_bytes_))
      return false;
    waiting_bytes_ += job.bytes;
    is_urgent_ = is_urgent_ || !job.may_wait;
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
  return true;
}

std::size_t DatabaseWriter::waiting_bytes() const {
  const std::lock_guard lock(mutex_);
  return waiting_bytes_;
}

void DatabaseWriter::work() {
  std::chrono::milliseconds pause{0};
  Jobs jobs;  // taken; they stay in waiting_bytes_ until they are written or gone
  for (;;) {
    bool is_ending = false;
    {
      std::unique_lock lock(mutex_);
      if (jobs.empty())
        wake_.wait(lock, [&] { return is_ending_ || !jobs_.empty(); });
      else
        wake_.wait_for(lock, pause, [&] { return is_ending_ || is_urgent_; });
      is_ending = is_ending_;
      const std::size_t most = is_urgent_ || is_ending_ ? jobs.size() + jobs_.size() : kMaxJobs;
      is_urgent_ = false;
      while (!jobs_.empty() && jobs.size() < most) {
        jobs.push_back(std::move(jobs_.front()));
        jobs_.pop_front();
      }
      if (jobs.empty()) return;
    }
    std::size_t before = 0, after = 0;
    for (const Job& job : jobs) before += job.bytes;
    const bool is_stuck = write(jobs);
    if (is_ending && is_stuck) {
      log_error("{}: {} were not written at the end", path_, what_);
      return;
    }
    for (const Job& job : jobs) after += job.bytes;
    {
      const std::lock_guard lock(mutex_);
      waiting_bytes_ -= before - after;
    }
    pause =
        is_stuck ? std::clamp(2 * pause, kFirstPause, kLongestPause) : std::chrono::milliseconds{0};
  }
}

bool DatabaseWriter::write(Jobs& jobs) {
  std::optional<StorageError> trouble;  // of the file: no job needs to try
  try {
    write_together(jobs);
    note(nullptr);
    jobs.clear();
    return false;
  } catch (const StorageError& e) {
    // Of rows alone: each job by itself shows whose.
    if (e.trouble() != StorageTrouble::kRefused) trouble = e;
  }
  if (trouble) note(&*trouble);
  Jobs kept;
  for (Job& job : jobs) {
    std::optional<StorageError> error = trouble;
    if (!error) {
      error = write_one(job);
      note(error ? &*error : nullptr);
      if (error && error->trouble() != StorageTrouble::kRefused) trouble = error;
    }
    const bool is_lasting = error && (error->trouble() == StorageTrouble::kDamaged ||
                                      error->trouble() == StorageTrouble::kRefused);
    if (error && job.may_wait && !is_lasting)
      kept.push_back(std::move(job));
    else
      job.done(error ? &*error : nullptr);
  }
  if (trouble && trouble->trouble() == StorageTrouble::kDamaged) {
    const std::lock_guard lock(mutex_);
    is_damaged_ = true;
  }
  jobs = std::move(kept);
  return !jobs.empty();
}

void DatabaseWriter::write_together(Jobs& jobs) {
  Transaction change(file_);
  for (Job& job : jobs) job.run(file_);
  change.commit();
  for (Job& job : jobs) job.done(nullptr);
}

std::optional<StorageError> DatabaseWriter::write_one(Job& job) {
  try {
    Transaction change(file_);
    job.run(file_);
    change.commit();
    return std::nullopt;
  } catch (const StorageError& e) {
    return e;
  }
}

void DatabaseWriter::note(const StorageError* error) {
  if (error) {
    failures_.fetch_add(1);
    if (trouble_ != error->trouble())
      log_error("{}: {} cannot be written: {} ({})", path_, what_, trouble_text(error->trouble()),
                error->what());
    trouble_ = error->trouble();
  } else if (std::exchange(trouble_, std::nullopt)) {
    log_info("{}: {} are written again", path_, what_);
  }
}

}  // namespace sluice
