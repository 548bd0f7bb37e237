// Progress on standard error: one live line on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace sluice {

// "load      [#####.....]  52 %  1.2 of about 2.4 GiB"; `width` columns in all, at least 40.
std::string progress_line(std::string_view what, double fraction, std::string_view detail,
                          int width);

// Columns of the terminal at `descriptor`; 80 where it is none.
int terminal_columns(int descriptor);

class ProgressBar {
 public:
  // Without a terminal only what done() is told is printed. Null: silent.
  ProgressBar(std::FILE* out, bool is_terminal) : out_(out), is_terminal_(is_terminal) {}
  ~ProgressBar() { finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws the line, at most ten times a second.
  void show(std::string_view what, double fraction, std::string_view detail);
  // Replaces the line by a plain one.
  void done(std::string_view text);
  // Takes the live line away.
  void finish();

 private:
  void clear();

  std::FILE* out_;
  bool is_terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

// Shows how a model loads: on a terminal the memory that this process has taken against what is
// expected, elsewhere a line for each step as it ends. Its own thread; one at a time.
class LoadProgress {
 public:
  explicit LoadProgress(std::int64_t expected_bytes);
  ~LoadProgress();
  // For Engine::create.
  std::function<void(const std::string& step, double fraction)> callback();

 private:
  void watch();

  const std::int64_t expected_bytes_;
  const std::int64_t bytes_before_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const bool is_terminal_;
  ProgressBar bar_;                                   // guarded by mutex_
  std::chrono::steady_clock::time_point step_began_;  // guarded by mutex_
  bool stop_ = false;                                 // guarded by mutex_
  std::thread thread_;                                // last: it uses all of the above
};

}  // namespace sluice
