// The terminal as `sluice run` uses it.
#pragma once

#include <termios.h>

#include <csignal>
#include <optional>
#include <string>

#include "cli/chat/line_editor.h"

namespace sluice {

// Text from a model as a terminal may have it: control characters but newline and tab, which could
// move the cursor or change settings, are shown as ^[ and the like (those from U+0080 to U+009F as
// ?). `text` holds whole characters.
std::string harmless(std::string_view text);

// SIGINT as a question instead of an end. Made before other threads start, so that none of them
// gets the signal.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Whether Ctrl-C came since the last call.
  bool taken();

 private:
  int descriptor_ = -1;
  sigset_t before_;
};

// Reads lines with editing and history. The terminal is put back when this goes.
class TerminalReader {
 public:
  TerminalReader();
  ~TerminalReader();
  TerminalReader(const TerminalReader&) = delete;
  TerminalReader& operator=(const TerminalReader&) = delete;

  enum class End { kLine, kInterrupt, kEnd };
  // Shows the prompt and reads until Enter, Ctrl-C or the end.
  End read(std::string_view prompt, std::string& line);

  LineHistory history;
  std::span<const std::string_view> commands;  // what Tab completes

 private:
  void set_keys(bool signals);

  termios before_{};
  std::string ahead_;  // keys that came with a line's end: of the next line
};

// Where typed lines are kept: $XDG_STATE_HOME/sluice/history, else ~/.local/state/sluice/history;
// empty without a home.
std::string history_path();
// A line each, newlines written as \n. A file that cannot be read is no history.
void load_history(const std::string& path, LineHistory& history);
// For the user alone (mode 600). False when it cannot be written.
bool save_history(const std::string& path, const LineHistory& history);

}  // namespace sluice
