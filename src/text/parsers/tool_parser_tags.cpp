// Arguments between tags: keys and values, typed by the schema or by the tag.
#include "text/parsers/tool_parser.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxKey = 1024;

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
  if (!trimmed(plain).empty()) {
    break_tags(plain + std::string(marker < 0 ? std::string_view() : scanner_.marker(marker)));
    return;
  }
  if (marker < 0) return;
  const Mark mark = marks_[static_cast<std::size_t>(marker)];
  if (mark.role == Role::kKeyOpen) {
    head_.clear();
    enter(State::kKey, {{attribute_free(format_.key_close), Role::kKeyClose}});
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

void ToolParser::step_key(char c) {
  if (scan(c, head_) != Role::kKeyClose) {
    if (head_.size() > kMaxKey) break_tags(std::exchange(head_, {}));
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
  enter(State::kValue, {{format_.value_close, Role::kValueClose}});
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
  const Role role = scan(c, plain);
  add_value(plain);
  if (streams_value_) {
    arguments(escape_json_string(value_));
    value_.clear();
  }
  if (role != Role::kValueClose) return;
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
