// Log lines on stderr: `[2026-04-05 20:02:51] text`. Counts, ids and timings only, never prompt or
// output text.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace sluice {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Any thread may log; setting the level is for start-up.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kDebug))
    log_line(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kInfo))
    log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kWarning))
    log_line(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kError))
    log_line(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sluice
