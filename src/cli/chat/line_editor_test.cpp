#include "cli/chat/line_editor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/chat/terminal.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using Event = LineEditor::Event;

// The last event of typing `keys`.
Event type(LineEditor& editor, std::string_view keys) {
  Event event = Event::kNone;
  for (char c : keys) event = editor.push(c);
  return event;
}

// Text and cursor after typing, the cursor as a bar.
std::string after(std::string_view keys, const LineHistory& history = {}) {
  LineEditor editor(history);
  type(editor, keys);
  std::string text = editor.text();
  return text.insert(editor.cursor(), "|");
}

TEST(LineEditor, KeysEdit) {
  EXPECT_EQ(after("abc"), "abc|");
  EXPECT_EQ(after("abc\x1b[D\x1b[Dx"), "ax|bc");
  EXPECT_EQ(after("abc\x02\x02\x06y"), "aby|c");
  EXPECT_EQ(after("abc\x01z"), "z|abc");
  EXPECT_EQ(after("abc\x1b[Hz\x1b[Fy"), "zabcy|");
  EXPECT_EQ(after("abc\x1bOHz"), "z|abc");
  EXPECT_EQ(after("abc\x7f\x08"), "a|");
  EXPECT_EQ(after("abc\x01\x1b[3~\x04"), "|c");
  EXPECT_EQ(after("abc def\x17"), "abc |");
  EXPECT_EQ(after("abc def  \x1b\x7f"), "abc |");
  EXPECT_EQ(after("abc def\x1b"
                  "b\x0b"),
            "abc |");
  EXPECT_EQ(after("abc def\x01\x1b"
                  "f!"),
            "abc!| def");
  EXPECT_EQ(after("abc def\x01\x1b[1;5C\x15"), "| def");
  EXPECT_EQ(after("abc def\x01\x1b"
                  "d"),
            "| def");
  EXPECT_EQ(after("ab\x14"), "ba|");
  EXPECT_EQ(after("abc\x02\x14"), "acb|");
  EXPECT_EQ(after("\x7f\x02\x1b[D\x1b[3~x\x06"), "x|");  // nothing to take away
}

TEST(LineEditor, CharactersStayWhole) {
  EXPECT_EQ(after("a\u00e9\u4e2d\x7f"), "a\u00e9|");
  EXPECT_EQ(after("\u4e2d\u6587\x02x"), "\u4e2dx|\u6587");
  EXPECT_EQ(after("\u00e9\u4e2d\x14"), "\u4e2d\u00e9|");
  EXPECT_EQ(after("a\xff"
                  "b\xc3"
                  "c\xa9"),
            "abc|");  // bytes that are no character
  LineHistory none;
  LineEditor editor(none);
  EXPECT_EQ(editor.push('\xe4'), Event::kNone);
  EXPECT_EQ(editor.push('\xb8'), Event::kNone);
  EXPECT_EQ(editor.push('\xad'), Event::kChanged);
}

TEST(LineEditor, EventsAreTold) {
  LineHistory none;
  for (const auto& [keys, event] :
       std::vector<std::pair<std::string, Event>>{{"a\r", Event::kLine},
                                                  {"\n", Event::kLine},
                                                  {"a\x03", Event::kInterrupt},
                                                  {"\x04", Event::kEnd},
                                                  {"a\x0c", Event::kClear},
                                                  {"a\x06", Event::kNone},
                                                  {"\x1b[99;99;99q", Event::kNone},
                                                  {"\x1bx", Event::kNone}}) {
    LineEditor editor(none);
    EXPECT_EQ(type(editor, keys), event) << testing::PrintToString(keys);
  }
}

TEST(LineEditor, PastedLinesAreOneLine) {
  EXPECT_EQ(after("\x1b[200~one\rtwo\tthree\x1b[201~!"), "one\ntwo\tthree!|");
  LineHistory none;
  LineEditor editor(none);
  EXPECT_EQ(type(editor, "\x1b[200~one\r"), Event::kChanged);
  EXPECT_EQ(type(editor, "\x1b[201~\r"), Event::kLine);
}

TEST(LineEditor, HistoryIsRecalled) {
  LineHistory history;
  for (const char* line : {"one", "", "two", "two"}) history.add(line);
  EXPECT_THAT(history.lines(), ElementsAre("one", "two"));
  EXPECT_EQ(after("new\x1b[A", history), "two|");
  EXPECT_EQ(after("new\x10\x10\x10", history), "one|");
  EXPECT_EQ(after("new\x1b[A\x1b[A\x1b[B\x1b[B\x1b[B", history), "new|");
  for (int i = 0; i < 1100; ++i) history.add(std::to_string(i));
  EXPECT_EQ(history.lines().size(), 1000u);
  EXPECT_EQ(history.lines().back(), "1099");
}

TEST(DrawLine, PutsTheCursorWhereItIs) {
  int row = 0;
  EXPECT_EQ(draw_line("> ", "abc", 3, 80, row), "\r\x1b[J> abc\r\x1b[5C");
  EXPECT_EQ(row, 0);
  // Two rows of ten: the cursor in the first.
  EXPECT_EQ(draw_line("> ", "abcdefghij", 4, 10, row), "\r\x1b[J> abcdefghij\x1b[1A\r\x1b[6C");
  EXPECT_EQ(row, 0);
  EXPECT_EQ(draw_line("> ", "abcdefghij", 10, 10, row), "\r\x1b[J> abcdefghij\r\x1b[2C");
  EXPECT_EQ(row, 1);
  // From the second row back up.
  EXPECT_EQ(draw_line("> ", "a", 1, 10, row), "\x1b[1A\r\x1b[J> a\r\x1b[3C");
  // A full row.
  EXPECT_EQ(draw_line("> ", "abcdefgh", 8, 10, row), "\r\x1b[J> abcdefgh\r\n\r");
  EXPECT_EQ(row, 1);
  EXPECT_EQ(text_columns("a\u4e2d\n"), 4);  // wide characters take two columns, a newline one sign
}

std::vector<std::string> messages(std::initializer_list<const char*> lines) {
  MessageReader reader;
  std::vector<std::string> out;
  std::string message;
  for (const char* line : lines)
    if (reader.push(line, message)) out.push_back(message);
  return out;
}

TEST(LineEditor, TabCompletesCommands) {
  constexpr std::string_view kCommands[] = {"/save", "/set", "/show", "/load"};
  const auto completed = [&](std::string_view keys) {
    const LineHistory history;
    LineEditor editor(history, kCommands);
    type(editor, keys);
    return editor.text();
  };
  EXPECT_EQ(completed("/l\t"), "/load ");
  EXPECT_EQ(completed("/s\t"), "/s");
  EXPECT_EQ(completed("/\tl\tfile"), "/load file");
  EXPECT_EQ(completed("/sh\t"), "/show ");
  EXPECT_EQ(completed("/x\t"), "/x");
  EXPECT_EQ(completed("\thello\t"), "hello");
  EXPECT_EQ(completed("/load\x01\t"), "/load");  // not at the end
}

TEST(MessageReader, JoinsLines) {
  EXPECT_THAT(messages({"one", "two"}), ElementsAre("one", "two"));
  EXPECT_THAT(messages({"one\\", "two\\", "three", "four"}),
              ElementsAre("one\ntwo\nthree", "four"));
  EXPECT_THAT(messages({"\"\"\"one", "two\\", "", "three\"\"\"", "four"}),
              ElementsAre("one\ntwo\\\n\nthree", "four"));
  EXPECT_THAT(messages({"\"\"\"", "one", "two", "\"\"\""}), ElementsAre("one\ntwo"));
  EXPECT_THAT(messages({"\"\"\"one\"\"\"", "\"\"\"\"\"\""}), ElementsAre("one", ""));
  EXPECT_THAT(messages({"a \"\"\" b"}), ElementsAre("a \"\"\" b"));
  MessageReader reader;
  std::string message;
  reader.push("\"\"\"", message);
  EXPECT_TRUE(reader.inside());
  reader.reset();
  EXPECT_FALSE(reader.inside());
}

TEST(Terminal, ControlCharactersOfAModelAreShown) {
  EXPECT_EQ(harmless("a\tb\nc é €"), "a\tb\nc é €");
  EXPECT_EQ(harmless("\x1b]0;title\x07"), "^[]0;title^G");
  EXPECT_EQ(harmless("\r\x7f"), "^M^?");
  EXPECT_EQ(harmless("x\xC2\x9B"
                     "2J\xC2\xA0"),
            "x?2J\xC2\xA0");
}

}  // namespace
}  // namespace sluice
