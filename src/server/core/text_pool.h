// The small pool on which requests are parsed, rendered and tokenised, so that an I/O thread never
// waits for text (R15).
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "base/channel.h"
#include "base/log.h"

namespace sluice {

class TextPool {
 public:
  explicit TextPool(int threads, std::size_t capacity = 4096) : jobs_(capacity) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~TextPool() {
    jobs_.close();
    for (std::thread& thread : threads_) thread.join();
  }

  // False when too much waits already. Any thread.
  bool submit(std::function<void()> job) { return jobs_.try_push(std::move(job)); }

 private:
  void work() noexcept {
    while (std::optional<std::function<void()>> job = jobs_.pop()) {
      try {
        (*job)();
      } catch (const std::exception& e) {
        log_error("a text job failed: {}", e.what());
      }
    }
  }

  Channel<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
};

}  // namespace sluice
