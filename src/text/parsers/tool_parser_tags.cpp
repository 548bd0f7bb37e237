// Arguments between tags: keys and values, typed by the schema or by the tag.
#include "text/parsers/tool_parser.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxKey = 1024;
// An end of the call that so much text follows stands in a value.
constexpr std::size_t kMaxBehindValue = 4096;

// The first attribute's value, which may stand between quotes: KEY, "KEY" or 'KEY' and more.
std::string_view first_value(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || (text.front() != '"' && text.front() != '\'')) return text;
  const std::size_t end = text.find(text.front(), 1);
  return end == std::string_view::npos ? text : text.substr(1, end - 1);
}

}  // namespace

void ToolParser::enter_pairs() {
  std::vector<Mark> marks = {{attribute_free(format_.key_open), Role::kKeyOpen}};
  add_ends(marks);
  enter(State::kPairs, std::move(marks));
}

void ToolParser::step_pairs(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  const std::string marked(marker < 0 ? std::string_view() : scanner_.marker(marker));
  if (const std::size_t at = plain.find_first_not_of(" \n\r\t"); at != std::string::npos) {
    if (first_argument_ && plain[at] == '{') {
      // The arguments as one JSON object, in place of tags.
      unread(plain.substr(at + 1) + marked + scanner_.held());
      begin_json(true);
      step_json('{');
      return;
    }
    break_tags(plain + marked);
    return;
  }
  if (marker < 0) return;
  const Mark mark = marks_[static_cast<std::size_t>(marker)];
  if (mark.role == Role::kKeyOpen) {
    head_.clear();
    enter_key();
    return;
  }
  const bool is_close = mark.role == Role::kClose || mark.role == Role::kCallClose;
  if (is_close || told_ || !first_argument_ || is_tool(name_)) {
    // Where another call begins, only the closing mark is missing.
    if (!first_argument_) arguments("}");
    end_call(mark.role, mark.text);
    return;
  }
  break_tags(std::string(mark.text));
}

// A key holds no mark of its format.
void ToolParser::enter_key() {
  std::vector<Mark> marks = {{attribute_free(format_.key_close), Role::kKeyClose},
                             {attribute_free(format_.key_open), Role::kKeyOpen},
                             {format_.value_open, Role::kValueOpen},
                             {format_.value_close, Role::kValueClose}};
  add_ends(marks);
  enter(State::kKey, std::move(marks));
}

void ToolParser::step_key(char c) {
  const int marker = scanner_.push(c, head_);
  const Mark mark = marker < 0 ? Mark{{}, Role::kNone} : marks_[static_cast<std::size_t>(marker)];
  if (mark.role != Role::kKeyClose) {
    if (mark.role != Role::kNone || head_.size() > kMaxKey)
      break_tags(std::exchange(head_, {}) + std::string(mark.text));
    return;
  }
  key_ = std::string(first_value(head_));
  if (format_.string_key_close.empty()) {
    value_is_string_ = schemas_.is_string(name_, key_);
  } else {
    value_is_string_ =
        head_.find("\"true\"") != std::string::npos || head_.find("'true'") != std::string::npos;
  }
  if (format_.value_open.empty()) {
    begin_value();
  } else {
    enter(State::kBeforeValue, {{format_.value_open, Role::kValueOpen}});
  }
}

void ToolParser::step_before_value(char c) {
  std::string plain;
  const Role role = scan(c, plain);
  if (!trimmed(plain).empty()) {
    break_tags(plain + std::string(role == Role::kNone ? std::string_view() : format_.value_open));
  } else if (role == Role::kValueOpen) {
    begin_value();
  }
}

void ToolParser::begin_value() {
  streams_value_ = value_is_string_;
  arguments(std::string(first_argument_ ? "{" : ", ") + "\"" + escape_json_string(key_) +
            "\": " + (streams_value_ ? "\"" : ""));
  first_argument_ = false;
  value_.clear();
  held_newline_.clear();
  value_began_ = false;
  enter_value();
}

// A value ends at its own closing mark. The end of the call is watched, too, since the closing mark
// may be missing.
void ToolParser::enter_value() {
  std::vector<Mark> marks = {{format_.value_close, Role::kValueClose}};
  if (format_.call_close.empty()) {
    marks.push_back({format_.close, Role::kClose});
    marks.push_back({format_.other_close, Role::kClose});
  } else {
    marks.push_back({format_.call_close, Role::kCallClose});
  }
  enter(State::kValue, std::move(marks));
}

// Text of the value; a line break at each end may be the frame's.
void ToolParser::add_value(std::string_view text) {
  if (text.empty()) return;
  if (format_.pads_values) {
    if (!value_began_ && text.front() == '\n') text.remove_prefix(1);
    value_began_ = true;
    if (text.empty()) return;
    value_ += std::exchange(held_newline_, {});
    if (text.back() == '\n') {
      held_newline_ = "\n";
      text.remove_suffix(1);
    }
  }
  value_ += text;
}

void ToolParser::step_value(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  const Mark mark = marker < 0 ? Mark{{}, Role::kNone} : marks_[static_cast<std::size_t>(marker)];
  add_value(plain);
  stream_value();
  if (mark.role == Role::kValueClose) {
    end_value();
  } else if (mark.role != Role::kNone) {
    behind_value_ = mark.text;
    is_behind_call_ = false;
    std::vector<Mark> marks = {{format_.value_close, Role::kValueClose},
                               {attribute_free(format_.key_open), Role::kKeyOpen}};
    add_ends(marks);
    enter(State::kBehindValue, std::move(marks));
  }
}

// The end of the call stands in a value. It ends the value where only closing marks follow, or
// another call with a key, and no closing mark of the value. Otherwise it is text of the value.
void ToolParser::step_behind_value(char c) {
  behind_value_ += c;
  std::string plain;
  const int marker = scanner_.push(c, plain);
  const Mark mark = marker < 0 ? Mark{{}, Role::kNone} : marks_[static_cast<std::size_t>(marker)];
  const bool is_text =
      mark.role == Role::kValueClose || behind_value_.size() > kMaxBehindValue ||
      (!is_behind_call_ && (mark.role == Role::kKeyOpen || !trimmed(plain).empty()));
  if (is_text) {
    const std::string again = marker < 0 ? scanner_.held() : std::string(mark.text);
    behind_value_.resize(behind_value_.size() - again.size());
    add_value(std::exchange(behind_value_, {}));
    stream_value();
    enter_value();
    unread(again);
    return;
  }
  if (mark.role == Role::kOpen || mark.role == Role::kCallOpen) is_behind_call_ = true;
  if (mark.role == Role::kKeyOpen) end_open_value();
}

// The value's closing mark is missing.
void ToolParser::end_open_value() {
  const std::string left = std::exchange(behind_value_, {});
  end_value();
  unread(left);
}

void ToolParser::stream_value() {
  if (!streams_value_) return;
  arguments(escape_json_string(value_));
  value_.clear();
}

void ToolParser::end_value() {
  if (streams_value_) {
    arguments("\"");
  } else if (format_.string_key_close.empty()) {
    arguments(schemas_.typed_value(name_, key_, value_));
  } else {
    arguments(literal_or_string(value_));
  }
  value_.clear();
  enter_pairs();
}

// What cannot be in a call came. A call that was told ends there: `plain` is text.
void ToolParser::break_tags(const std::string& plain) {
  if (!told_) {
    begun_ = false;
    give_up(true);
    return;
  }
  incomplete_ = true;
  const std::string left = plain + scanner_.held();
  enter_text(true);
  replay(left);
}

}  // namespace sluice
