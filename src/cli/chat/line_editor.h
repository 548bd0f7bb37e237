// Editing one line in a terminal: bytes in, text and cursor out. Knows no terminal, so that it can
// be tested.
//
// Keys: arrows, Home, End, Delete, Backspace; Ctrl-A E B F D H K U W T L P N; Alt-B F D; pasted
// text may hold newlines. Tab completes a command at the start of the line. Source of the
// sequences: ECMA-48 (CSI), xterm's control sequences (bracketed paste).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Lines that were entered, oldest first, at most 1,000; a line equal to the last one is not kept
// again.
class LineHistory {
 public:
  void add(std::string_view line);
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

class LineEditor {
 public:
  enum class Event {
    kNone,       // nothing to see
    kChanged,    // text or cursor changed: draw
    kLine,       // Enter
    kInterrupt,  // Ctrl-C
    kEnd,        // Ctrl-D on an empty line
    kClear,      // Ctrl-L: clear the screen, then draw
  };

  // `commands` are what Tab completes; they outlive the editor.
  explicit LineEditor(const LineHistory& history, std::span<const std::string_view> commands = {})
      : history_(history), commands_(commands), place_(history.lines().size()) {}

  Event push(char byte);
  const std::string& text() const { return text_; }
  std::size_t cursor() const { return cursor_; }  // a byte offset, at a character's start

 private:
  enum class State { kPlain, kEscape, kCsi, kSs3 };

  Event plain(unsigned char byte);
  Event escape(char byte);
  Event csi(char last);
  Event insert(std::string_view bytes);
  Event move_to(std::size_t place);
  Event erase(std::size_t from, std::size_t to);
  Event recall(std::size_t place);
  Event swap_characters();
  Event complete();
  std::size_t before(std::size_t at) const;  // start of the character before
  std::size_t after(std::size_t at) const;
  std::size_t word_before(std::size_t at) const;
  std::size_t word_after(std::size_t at) const;

  const LineHistory& history_;
  const std::span<const std::string_view> commands_;
  std::size_t place_;     // in the history; its size: the new line
  std::string new_line_;  // what was typed before history was recalled
  std::string text_;
  std::size_t cursor_ = 0;
  State state_ = State::kPlain;
  std::string csi_;  // parameters so far
  bool pasting_ = false;
  std::string partial_;  // bytes of a character that is not whole
};

// Columns that `text` takes; a newline of pasted text is drawn as one sign.
int text_columns(std::string_view text);

// What to send to a terminal of `columns` so that it shows prompt and text with the cursor in its
// place, given the row that the cursor was left in (0: the prompt's). Sets `row` to where it is
// now.
std::string draw_line(std::string_view prompt, std::string_view text, std::size_t cursor,
                      int columns, int& row);

// Joins lines to messages: """ opens and closes a message of several lines, a backslash at the end
// continues one.
class MessageReader {
 public:
  // True when `message` is whole.
  bool push(std::string_view line, std::string& message);
  bool inside() const { return quoted_ || continued_; }
  void reset();

 private:
  bool quoted_ = false;
  bool continued_ = false;
  std::string held_;
};

}  // namespace sluice
