// Silence for work that reads the same input many times.
#pragma once

namespace sluice {

// While it lives, log_line of this thread says nothing. May nest.
class LogMute {
 public:
  LogMute();
  ~LogMute();
  LogMute(const LogMute&) = delete;
  LogMute& operator=(const LogMute&) = delete;
};

}  // namespace sluice
