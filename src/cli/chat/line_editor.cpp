#include "cli/chat/line_editor.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxHistory = 1000;
constexpr std::size_t kMaxCsi = 32;                        // longer sequences are no keys
constexpr std::string_view kNewlineSign = "\xE2\x86\xB5";  // U+21B5
constexpr std::string_view kQuotes = "\"\"\"";

constexpr unsigned char ctrl(char letter) {
  return static_cast<unsigned char>(letter - 'a' + 1);
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n';
}

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

}  // namespace

void LineHistory::add(std::string_view line) {
  if (line.empty() || (!lines_.empty() && lines_.back() == line)) return;
  lines_.emplace_back(line);
  if (lines_.size() > kMaxHistory) lines_.erase(lines_.begin());
}

std::size_t LineEditor::before(std::size_t at) const {
  if (at == 0) return 0;
  do --at;
  while (at > 0 && continues_character(text_[at]));
  return at;
}

std::size_t LineEditor::after(std::size_t at) const {
  if (at >= text_.size()) return text_.size();
  do ++at;
  while (at < text_.size() && continues_character(text_[at]));
  return at;
}

std::size_t LineEditor::word_before(std::size_t at) const {
  while (at > 0 && is_blank(text_[at - 1])) --at;
  while (at > 0 && !is_blank(text_[at - 1])) --at;
  return at;
}

std::size_t LineEditor::word_after(std::size_t at) const {
  while (at < text_.size() && is_blank(text_[at])) ++at;
  while (at < text_.size() && !is_blank(text_[at])) ++at;
  return at;
}

LineEditor::Event LineEditor::insert(std::string_view bytes) {
  text_.insert(cursor_, bytes);
  cursor_ += bytes.size();
  return Event::kChanged;
}

LineEditor::Event LineEditor::move_to(std::size_t place) {
  if (place == cursor_) return Event::kNone;
  cursor_ = place;
  return Event::kChanged;
}

LineEditor::Event LineEditor::erase(std::size_t from, std::size_t to) {
  if (from >= to) return Event::kNone;
  text_.erase(from, to - from);
  cursor_ = from;
  return Event::kChanged;
}

LineEditor::Event LineEditor::recall(std::size_t place) {
  const std::size_t newest = history_.lines().size();
  if (place > newest || place == place_) return Event::kNone;
  if (place_ == newest) new_line_ = text_;
  place_ = place;
  text_ = place == newest ? new_line_ : history_.lines()[place];
  cursor_ = text_.size();
  return Event::kChanged;
}

// The character before the cursor and the one at it; at the end the last two.
LineEditor::Event LineEditor::swap_characters() {
  const std::size_t right = cursor_ == text_.size() ? before(cursor_) : cursor_;
  const std::size_t left = before(right);
  if (left == right) return Event::kNone;
  const std::size_t end = after(right);
  std::rotate(text_.begin() + static_cast<std::ptrdiff_t>(left),
              text_.begin() + static_cast<std::ptrdiff_t>(right),
              text_.begin() + static_cast<std::ptrdiff_t>(end));
  cursor_ = end;
  return Event::kChanged;
}

LineEditor::Event LineEditor::push(char byte) {
  switch (state_) {
    case State::kPlain:
      return plain(static_cast<unsigned char>(byte));
    case State::kEscape:
      return escape(byte);
    case State::kSs3:
      state_ = State::kPlain;
      return csi(byte);
    case State::kCsi:
      if (byte >= 0x40 && byte <= 0x7E) {
        state_ = State::kPlain;
        return csi(byte);
      }
      if (csi_.size() < kMaxCsi) csi_ += byte;
      return Event::kNone;
  }
  return Event::kNone;
}

LineEditor::Event LineEditor::plain(unsigned char byte) {
  if (byte == 0x1B) {
    state_ = State::kEscape;
    return Event::kNone;
  }
  if (pasting_ && (byte == '\r' || byte == '\n')) return insert("\n");
  if (pasting_ && byte == '\t') return insert("\t");
  switch (byte) {
    case '\r':
    case '\n':
      return Event::kLine;
    case '\t':
      return complete();
    case ctrl('a'):
      return move_to(0);
    case ctrl('b'):
      return move_to(before(cursor_));
    case ctrl('c'):
      return Event::kInterrupt;
    case ctrl('d'):
      return text_.empty() ? Event::kEnd : erase(cursor_, after(cursor_));
    case ctrl('e'):
      return move_to(text_.size());
    case ctrl('f'):
      return move_to(after(cursor_));
    case ctrl('h'):
    case 0x7F:
      return erase(before(cursor_), cursor_);
    case ctrl('k'):
      return erase(cursor_, text_.size());
    case ctrl('l'):
      return Event::kClear;
    case ctrl('n'):
      return recall(place_ + 1);
    case ctrl('p'):
      return place_ == 0 ? Event::kNone : recall(place_ - 1);
    case ctrl('t'):
      return swap_characters();
    case ctrl('u'):
      return erase(0, cursor_);
    case ctrl('w'):
      return erase(word_before(cursor_), cursor_);
    default:
      break;
  }
  if (byte < 0x20) return Event::kNone;
  // Only whole characters enter the text.
  partial_ += static_cast<char>(byte);
  const Utf8Step step = next_utf8(partial_);
  if (step.kind == Utf8Step::kIncomplete) return Event::kNone;
  const std::string whole = std::move(partial_);
  partial_.clear();
  if (step.kind == Utf8Step::kCharacter) return insert(whole);
  // What cannot begin a character is dropped; its last byte may begin the next one.
  return whole.size() > 1 ? plain(static_cast<unsigned char>(whole.back())) : Event::kNone;
}

// To the command that the line begins, or as far as all that fit agree; a whole one gets a space.
LineEditor::Event LineEditor::complete() {
  if (cursor_ != text_.size() || text_.empty()) return Event::kNone;
  std::string common;
  int num_fitting = 0;
  for (const std::string_view command : commands_) {
    if (!command.starts_with(text_)) continue;
    if (num_fitting++ == 0) common = command;
    const auto differ = std::ranges::mismatch(common, command);
    common.erase(differ.in1, common.end());
  }
  if (num_fitting == 1) common += ' ';
  return common.size() > text_.size() ? insert(common.substr(text_.size())) : Event::kNone;
}

LineEditor::Event LineEditor::escape(char byte) {
  state_ = State::kPlain;
  switch (byte) {
    case '[':
      state_ = State::kCsi;
      csi_.clear();
      return Event::kNone;
    case 'O':
      state_ = State::kSs3;
      csi_.clear();
      return Event::kNone;
    case 'b':
      return move_to(word_before(cursor_));
    case 'f':
      return move_to(word_after(cursor_));
    case 'd':
      return erase(cursor_, word_after(cursor_));
    case 0x7F:
      return erase(word_before(cursor_), cursor_);
    default:
      return Event::kNone;
  }
}

LineEditor::Event LineEditor::csi(char last) {
  const bool by_word = csi_ == "1;5" || csi_ == "1;3";  // with Ctrl or Alt
  switch (last) {
    case 'A':
      return place_ == 0 ? Event::kNone : recall(place_ - 1);
    case 'B':
      return recall(place_ + 1);
    case 'C':
      return move_to(by_word ? word_after(cursor_) : after(cursor_));
    case 'D':
      return move_to(by_word ? word_before(cursor_) : before(cursor_));
    case 'F':
      return move_to(text_.size());
    case 'H':
      return move_to(0);
    case '~':
      if (csi_ == "1" || csi_ == "7") return move_to(0);
      if (csi_ == "4" || csi_ == "8") return move_to(text_.size());
      if (csi_ == "3") return erase(cursor_, after(cursor_));
      if (csi_ == "200") pasting_ = true;
      if (csi_ == "201") pasting_ = false;
      return Event::kNone;
    default:
      return Event::kNone;
  }
}

int text_columns(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    if (text[0] == '\n' || text[0] == '\t')
      columns += 1;
    else
      columns += step.kind == Utf8Step::kCharacter
                     ? utf8proc_charwidth(static_cast<utf8proc_int32_t>(step.code))
                     : 1;
    text.remove_prefix(static_cast<std::size_t>(step.size));
  }
  return columns;
}

std::string draw_line(std::string_view prompt, std::string_view text, std::size_t cursor,
                      int columns, int& row) {
  std::string out;
  if (row > 0) out += "\x1b[" + std::to_string(row) + "A";
  out += "\r\x1b[J";
  out += prompt;
  for (char c : text) {
    if (c == '\n')
      out += kNewlineSign;
    else
      out += c == '\t' ? ' ' : c;
  }
  const int whole = text_columns(prompt) + text_columns(text);
  const int place = text_columns(prompt) + text_columns(text.substr(0, cursor));
  // A line that just fills the row leaves the cursor in it: the next row begins with the next
  // character.
  if (whole > 0 && whole % columns == 0) out += "\r\n";
  const int last_row = whole / columns;
  row = place / columns;
  if (last_row > row) out += "\x1b[" + std::to_string(last_row - row) + "A";
  out += "\r";
  if (place % columns > 0) out += "\x1b[" + std::to_string(place % columns) + "C";
  return out;
}

bool MessageReader::push(std::string_view line, std::string& message) {
  if (quoted_) {
    const bool closes = line.ends_with(kQuotes);
    if (closes) line.remove_suffix(kQuotes.size());
    held_ += line;
    if (!closes) {
      held_ += '\n';
      return false;
    }
    if (held_.ends_with('\n')) held_.pop_back();  // the closing quotes stood on a line of their own
  } else if (!continued_ && line.starts_with(kQuotes)) {
    line.remove_prefix(kQuotes.size());
    if (line.size() >= kQuotes.size() && line.ends_with(kQuotes)) {
      message = line.substr(0, line.size() - kQuotes.size());
      return true;
    }
    quoted_ = true;
    held_ = line;
    if (!held_.empty()) held_ += '\n';
    return false;
  } else if (line.ends_with('\\')) {
    continued_ = true;
    held_ += line.substr(0, line.size() - 1);
    held_ += '\n';
    return false;
  } else {
    held_ += line;
  }
  message = std::move(held_);
  reset();
  return true;
}

void MessageReader::reset() {
  quoted_ = continued_ = false;
  held_.clear();
}

}  // namespace sluice
