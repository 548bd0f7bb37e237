#include "cli/chat/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "cli/progress.h"

namespace sluice {
namespace {

void write_out(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string harmless(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      out += '?';
      ++i;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      out += '^';
      out += static_cast<char>(byte ^ 0x40);
    } else {
      out += text[i];
    }
  }
  return out;
}

Interrupts::Interrupts() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGINT);
  pthread_sigmask(SIG_BLOCK, &wanted, &before_);
  descriptor_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  check(descriptor_ >= 0, "signalfd failed");
}

Interrupts::~Interrupts() {
  close(descriptor_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool Interrupts::taken() {
  signalfd_siginfo info;
  bool any = false;
  while (::read(descriptor_, &info, sizeof info) == sizeof info) any = true;
  return any;
}

TerminalReader::TerminalReader() {
  tcgetattr(STDIN_FILENO, &before_);
  set_keys(true);
  write_out("\x1b[?2004h");  // pasted text arrives between marks
}

TerminalReader::~TerminalReader() {
  write_out("\x1b[?2004l");
  tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

// Keys come one by one and unseen. Ctrl-C is a signal while an answer runs, and a key while a line
// is edited.
void TerminalReader::set_keys(bool signals) {
  termios now = before_;
  now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN | (signals ? 0 : ISIG));
  now.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
  now.c_cc[VMIN] = 1;
  now.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &now);
}

TerminalReader::End TerminalReader::read(std::string_view prompt, std::string& line) {
  set_keys(false);
  LineEditor editor(history, commands);
  int row = 0;
  const auto draw = [&] {
    write_out(
        draw_line(prompt, editor.text(), editor.cursor(), terminal_columns(STDOUT_FILENO), row));
  };
  draw();
  std::optional<End> end;
  while (!end) {
    std::string keys = std::exchange(ahead_, "");
    if (keys.empty()) {
      char typed[256];
      const ssize_t count = ::read(STDIN_FILENO, typed, sizeof typed);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0)
        end = End::kEnd;
      else
        keys.assign(typed, static_cast<std::size_t>(count));
    }
    bool changed = false;
    for (std::size_t i = 0; i < keys.size() && !end; ++i) {
      switch (editor.push(keys[i])) {
        case LineEditor::Event::kNone:
          break;
        case LineEditor::Event::kChanged:
          changed = true;
          break;
        case LineEditor::Event::kLine:
          end = End::kLine;
          break;
        case LineEditor::Event::kInterrupt:
          end = End::kInterrupt;
          break;
        case LineEditor::Event::kEnd:
          end = End::kEnd;
          break;
        case LineEditor::Event::kClear:
          write_out("\x1b[H\x1b[2J");
          row = 0;
          changed = true;
          break;
      }
      if (end && *end != End::kInterrupt) ahead_ = keys.substr(i + 1);
    }
    if (changed && !end) draw();
  }
  // The cursor goes below the text, wherever in it it was.
  write_out(
      draw_line(prompt, editor.text(), editor.text().size(), terminal_columns(STDOUT_FILENO), row) +
      "\r\n");
  line = editor.text();
  if (*end == End::kLine) history.add(line);
  set_keys(true);
  return *end;
}

std::string history_path() {
  const std::string state = environment("XDG_STATE_HOME"), home = environment("HOME");
  if (!state.empty()) return state + "/sluice/history";
  return home.empty() ? "" : home + "/.local/state/sluice/history";
}

void load_history(const std::string& path, LineHistory& history) {
  std::ifstream in(path, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const bool escaped = line[i] == '\\' && i + 1 < line.size();
      text += !escaped ? line[i] : line[++i] == 'n' ? '\n' : line[i];
    }
    history.add(text);
  }
}

bool save_history(const std::string& path, const LineHistory& history) {
  if (path.empty()) return false;
  std::error_code ec;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ec);
  std::string text;
  for (const std::string& line : history.lines()) {
    for (char c : line) {
      if (c == '\\') text += '\\';
      if (c == '\n')
        text += "\\n";
      else
        text += c;
    }
    text += '\n';
  }
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const bool whole = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  return close(file) == 0 && whole;
}

}  // namespace sluice
