#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <ctime>

#include "base/log_format.h"
#include "base/log_mute.h"

namespace sluice {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

// Created at the first line. A failing stderr (closed pipe) must not stop the server, so errors are
// swallowed.
spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("sluice",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("[%Y-%m-%d %H:%M:%S] %v");
    made->set_error_handler([](const std::string&) {});
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *instance;
}

thread_local int num_mutes = 0;
bool logs_json = false;  // written at start-up, before there are other threads

std::string_view level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    default:
      return "info";
  }
}

// Now, as RFC 3339 has it, in UTC.
std::string utc_time() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm t{};
  gmtime_r(&seconds, &t);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", t.tm_year + 1900, t.tm_mon + 1,
                     t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, ms);
}

void write_json(LogLevel level, std::string_view text, const Json* fields) {
  Json line{{"time", utc_time()}, {"level", level_name(level)}, {"message", text}};
  if (fields != nullptr)
    for (const auto& [name, value] : fields->items()) line[name] = value;
  logger().log(to_spdlog(level), "{}", dump_json(line));
}

}  // namespace

LogMute::LogMute() {
  ++num_mutes;
}
LogMute::~LogMute() {
  --num_mutes;
}

void set_log_level(LogLevel level) {
  logger().set_level(to_spdlog(level));
}

bool log_enabled(LogLevel level) {
  return logger().should_log(to_spdlog(level));
}

void log_line(LogLevel level, std::string_view text) {
  if (num_mutes > 0) return;
  if (logs_json) return write_json(level, text, nullptr);
  const char* prefix = level == LogLevel::kWarning ? "warning: "
                       : level == LogLevel::kError ? "error: "
                                                   : "";
  logger().log(to_spdlog(level), "{}{}", prefix, text);
}

void set_log_format(LogFormat format) {
  logs_json = format == LogFormat::kJson;
  logger().set_pattern(logs_json ? "%v" : "[%Y-%m-%d %H:%M:%S] %v");
}

void log_record(LogLevel level, std::string_view text, const Json& fields) {
  if (!logs_json) return log_line(level, text);
  if (num_mutes == 0 && log_enabled(level)) write_json(level, text, &fields);
}

}  // namespace sluice
