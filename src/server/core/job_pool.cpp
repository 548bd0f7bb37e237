#include "server/core/job_pool.h"

#include <algorithm>
#include <system_error>

#include "base/log.h"

namespace sluice {
namespace {

thread_local JobPool* pool_of_thread = nullptr;

}  // namespace

JobPool::JobPool(int threads, std::size_t capacity) : limit_(threads), jobs_(capacity) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

JobPool::~JobPool() {
  jobs_.close();
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  place_free_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void JobPool::work() noexcept {
  pool_of_thread = this;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      ++num_parked_;
      place_free_.wait(lock, [this] { return closed_ || num_running_ < limit_; });
      --num_parked_;
      ++num_running_;
    }
    const std::optional<std::function<void()>> job = jobs_.pop();
    if (!job) return;
    try {
      (*job)();
    } catch (const std::exception& e) {
      log_error("a job failed: {}", e.what());
    }
    const std::lock_guard lock(mutex_);
    --num_running_;
  }
}

bool JobPool::add_thread() {
  if (closed_) return true;  // nothing more is submitted
  if (threads_.size() >= static_cast<std::size_t>(limit_) + kMaxWaiting) return false;
  try {
    threads_.emplace_back([this] { work(); });
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

JobPool::Waiting::Waiting() : pool_(pool_of_thread) {
  if (pool_ == nullptr) return;
  const std::lock_guard lock(pool_->mutex_);
  // Free places have their threads, which are on their way.
  const int num_free = std::max(0, pool_->limit_ - pool_->num_running_);
  is_replaced_ = pool_->num_parked_ > num_free || pool_->add_thread();
  if (!is_replaced_) return;
  --pool_->num_running_;
  pool_->place_free_.notify_one();
}

// One job too many may run until one of them ends.
JobPool::Waiting::~Waiting() {
  if (pool_ == nullptr || !is_replaced_) return;
  const std::lock_guard lock(pool_->mutex_);
  ++pool_->num_running_;
}

}  // namespace sluice
