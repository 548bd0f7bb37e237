#include "cli/download_bars.h"

#include <unistd.h>

#include <algorithm>

#include "cli/progress.h"
#include "engine/model_request.h"
#include "runtime/memory_plan.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLineInterval{10};
constexpr std::size_t kMaxName = 40;

std::string bytes(std::uint64_t count) {
  return format_bytes(static_cast<std::int64_t>(count));
}

// One that is too long loses its middle; its end tells shards apart.
std::string shortened(std::string_view name, std::size_t most) {
  if (name.size() <= most) return std::string(name);
  const std::size_t tail = (most - 3) * 2 / 3;
  return std::string(name.substr(0, most - 3 - tail)) + "..." +
         std::string(name.substr(name.size() - tail));
}

std::string speed_words(const DownloadProgress& progress, Clock::duration elapsed) {
  const double seconds = std::chrono::duration<double>(elapsed).count();
  const double fetched =
      static_cast<double>(progress.done - std::min(progress.done, progress.present));
  if (seconds < 0.5 || fetched <= 0) return "";
  const double speed = fetched / seconds;
  const double left =
      static_cast<double>(progress.size - std::min(progress.size, progress.done)) / speed;
  const std::string eta = left < 1      ? ""
                          : left < 90   ? fmt::format(", {:.0f} s left", left)
                          : left < 5400 ? fmt::format(", {:.0f} min left", left / 60)
                                        : fmt::format(", {:.1f} h left", left / 3600);
  return fmt::format(", {}/s{}", bytes(static_cast<std::uint64_t>(speed)), eta);
}

}  // namespace

std::string download_line(std::string_view name, std::uint64_t done, std::uint64_t size,
                          std::string_view more, int width) {
  const std::size_t columns = static_cast<std::size_t>(std::max(width, 20));
  const double part =
      size == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(size));
  const std::size_t name_columns = std::min(kMaxName, columns / 3);
  const std::string tail = fmt::format("] {:>3.0f} %  {} of {}{}", part * 100,
                                       bytes(std::min(done, size)), bytes(size), more);
  const std::string head = fmt::format("{:<{}} [", shortened(name, name_columns), name_columns);
  const std::size_t taken = head.size() + tail.size();
  const std::size_t room = taken + 4 < columns ? std::min<std::size_t>(columns - taken, 30) : 4;
  const auto full = static_cast<std::size_t>(part * static_cast<double>(room));
  std::string line = head + std::string(full, '#') + std::string(room - full, '.') + tail;
  if (line.size() > columns) line.resize(columns);
  return line;
}

DownloadBars::DownloadBars(std::FILE* out) : DownloadBars(out, isatty(fileno(out)) != 0, 0) {}

DownloadBars::DownloadBars(std::FILE* out, bool is_terminal, int columns)
    : out_(out),
      is_terminal_(is_terminal && HubEnvironment::of_process().shows_progress()),
      columns_(columns) {}

DownloadObserver DownloadBars::observer() {
  return {[this](const DownloadProgress& progress) { show(progress); },
          [this](const std::string& text) { say(text); }};
}

void DownloadBars::clear() {
  if (num_lines_ > 0) fmt::print(out_, "\x1b[{}A\r\x1b[J", num_lines_);
  num_lines_ = 0;
  std::fflush(out_);
}

void DownloadBars::say(const std::string& line) {
  clear();
  fmt::print(out_, "{}\n", line);
  std::fflush(out_);
}

void DownloadBars::show(const DownloadProgress& progress) {
  const auto now = Clock::now();
  const std::string first = progress.files.empty() ? "" : progress.files.front().path;
  if (began_for_ != first) {
    began_for_ = first;
    began_ = last_line_ = now;
  }
  const auto finished =
      static_cast<std::size_t>(std::ranges::count(progress.files, true, &FileProgress::finished));
  clear();
  for (const FileProgress& file : progress.files) {
    if (!file.finished || file.was_present || std::ranges::find(told_, file.path) != told_.end())
      continue;
    told_.push_back(file.path);
    say(fmt::format("{}: {} ({} of {} files)", file.path, bytes(file.size), finished,
                    progress.files.size()));
  }
  if (progress.done >= progress.size) return;
  const std::string more = speed_words(progress, now - began_);
  if (!is_terminal_) {
    if (now - last_line_ < kLineInterval) return;
    last_line_ = now;
    say(fmt::format("{}: {} of {}{}", progress.repo_id, bytes(progress.done), bytes(progress.size),
                    more));
    return;
  }
  const int width = (columns_ > 0 ? columns_ : terminal_columns(fileno(out_))) - 1;
  for (const FileProgress& file : progress.files) {
    if (!file.started || file.finished) continue;
    fmt::print(out_, "{}\n", download_line(file.path, file.done, file.size, "", width));
    ++num_lines_;
  }
  fmt::print(out_, "{}\n",
             download_line(fmt::format("{} of {} files", finished, progress.files.size()),
                           progress.done, progress.size, more, width));
  ++num_lines_;
  std::fflush(out_);
}

HubEnvironment hub_environment(const Arguments& arguments) {
  return HubEnvironment::of_process(arguments.get("download-dir"));
}

ResolvedModel obtain_model(const Options& options, bool weights) {
  DownloadBars bars(stderr);
  ModelRequest request = model_request(options, weights);
  request.observer = bars.observer();
  return obtain_model(request, hub_environment(options));
}

ResolvedModel obtain_tokenizer(const Options& options) {
  DownloadBars bars(stderr);
  ModelRequest request = tokenizer_request(options);
  request.observer = bars.observer();
  return obtain_model(request, hub_environment(options));
}

ResolvedModel find_model(const Options& options) {
  const ModelRequest request = model_request(options);
  return resolve_model(request.model, request.revision, hub_environment(options),
                       request.load_format);
}

}  // namespace sluice
