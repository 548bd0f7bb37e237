// Log lines as text or as JSON objects, for programs that collect them (--log-format).
//
//   log_record(LogLevel::kInfo, "POST /v1/models 200", {{"status", 200}});
//
// A JSON line: {"time": "2026-04-05T20:02:51.123Z", "level": "info", "message": "...", "status":
// 200}.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/log.h"

namespace sluice {

enum class LogFormat { kText, kJson };

// For start-up.
void set_log_format(LogFormat format);
// One line: the text, or the object with the members of `fields` behind its own. Any thread.
void log_record(LogLevel level, std::string_view text, const Json& fields);

}  // namespace sluice
