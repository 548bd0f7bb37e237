#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/memory_plan.h"
#include "tensor/host_memory.h"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kInterval{100};
// A step of loading is told from here on.
constexpr std::chrono::seconds kToldFrom{1};

}  // namespace

std::string progress_line(std::string_view what, double fraction, std::string_view detail,
                          int width) {
  const double part = std::clamp(fraction, 0.0, 1.0);
  const std::string end = fmt::format("] {:>3.0f} %  {}", part * 100, detail);
  const int room = std::clamp(width - 13 - static_cast<int>(end.size()) - 1, 4, 40);
  const auto full = static_cast<std::size_t>(part * room);
  return fmt::format("{:<12}[{}{}{}", what, std::string(full, '#'),
                     std::string(static_cast<std::size_t>(room) - full, '.'), end);
}

int terminal_columns(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void ProgressBar::clear() {
  if (shown_) fmt::print(out_, "\r\x1b[K");
  shown_ = false;
}

void ProgressBar::show(std::string_view what, double fraction, std::string_view detail) {
  if (out_ == nullptr || !is_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (shown_ && now - last_ < kInterval && fraction < 1) return;
  clear();
  last_ = now;
  const int width = terminal_columns(fileno(out_));
  std::string line = progress_line(what, fraction, detail, width);
  line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(width - 1, 1))));
  fmt::print(out_, "{}", line);
  std::fflush(out_);
  shown_ = true;
}

void ProgressBar::done(std::string_view text) {
  if (out_ == nullptr) return;
  clear();
  fmt::print(out_, "{}\n", text);
  std::fflush(out_);
}

void ProgressBar::finish() {
  if (out_ == nullptr) return;
  clear();
  std::fflush(out_);
}

LoadProgress::LoadProgress(std::int64_t expected_bytes)
    : expected_bytes_(expected_bytes),
      bytes_before_(resident_bytes()),
      is_terminal_(isatty(STDERR_FILENO) != 0),
      bar_(stderr, is_terminal_),
      step_began_(std::chrono::steady_clock::now()),
      thread_([this] { watch(); }) {}

LoadProgress::~LoadProgress() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::function<void(const std::string&, double)> LoadProgress::callback() {
  // The engine tells of a step when it is over.
  return [this](const std::string& step, double) {
    std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::milli> took = now - step_began_;
    step_began_ = now;
    // Of short steps nobody needs to know.
    if (!is_terminal_ && took >= kToldFrom)
      bar_.done(fmt::format("{}: {:.0f} ms", step, took.count()));
  };
}

void LoadProgress::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kInterval, [this] { return stop_; })) {
    const std::int64_t taken = std::clamp<std::int64_t>(resident_bytes() - bytes_before_, 0,
                                                        std::max<std::int64_t>(expected_bytes_, 0));
    if (expected_bytes_ <= 0) {
      bar_.show("loading", 0, "");
      continue;
    }
    bar_.show("loading",
              std::min(static_cast<double>(taken) / static_cast<double>(expected_bytes_), 0.99),
              fmt::format("{} of about {}", format_bytes(taken), format_bytes(expected_bytes_)));
  }
}

}  // namespace sluice
