// GLM's format: keys and values between tags; values are text or JSON, by the tool's schema.
#include <algorithm>
#include <cctype>

#include "text/parsers/tool_parser.h"
#include "text/parsers/tool_parser_format.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxKey = 1024;

bool all_blank(std::string_view text) {
  return trimmed(text).empty();
}

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("_-.:/").find(c) != std::string_view::npos;
}

bool fits(JsonKind kind, const std::string& type) {
  switch (kind) {
    case JsonKind::kObject:
      return type == "object";
    case JsonKind::kArray:
      return type == "array";
    case JsonKind::kString:
      return type == "string";
    case JsonKind::kInteger:
      return type == "integer" || type == "number";
    case JsonKind::kNumber:
      return type == "number";
    case JsonKind::kBoolean:
      return type == "boolean";
    case JsonKind::kNull:
      return type == "null";
  }
  return false;
}

// The JSON text of a value that may not be a string. A value that parses as a stated type has that
// type; any other value is a string.
std::string typed_value(const std::string& raw, const std::vector<std::string>* types) {
  const bool may_be_string =
      types && std::find(types->begin(), types->end(), "string") != types->end();
  const std::optional<JsonText> value = read_json_text(raw);
  const bool is_stated = value && types && value->kind != JsonKind::kString &&
                         std::any_of(types->begin(), types->end(), [&](const std::string& type) {
                           return fits(value->kind, type);
                         });
  if (!value || (may_be_string && !is_stated)) return "\"" + escape_json_string(raw) + "\"";
  return value->text;
}

}  // namespace

const std::vector<std::string>* ToolParser::types_of(const std::string& key) const {
  const auto tool = schemas_.find(name_);
  if (tool == schemas_.end()) return nullptr;
  const auto types = tool->second.find(key);
  return types == tool->second.end() || types->second.empty() ? nullptr : &types->second;
}

void ToolParser::step_glm_name(char c) {
  std::string plain;
  const int marker = scanner_.push(c, plain);
  for (const char p : plain) {
    const bool second_word = !head_.empty() && head_.back() == ' ' && is_name_char(p);
    if ((!is_name_char(p) && !is_blank(p)) || second_word || head_.size() > kMaxToolName) {
      give_up(true);
      return;
    }
    if (is_name_char(p)) {
      head_ += p;
    } else if (!head_.empty()) {
      head_ += ' ';
    }
    if (p != '\n' || head_.empty()) continue;
    begin(std::string(trimmed(head_)));
    enter(State::kGlmNext, {kGlmKey, format_.close, format_.open});
    return;
  }
  if (marker < 0) return;
  if (!begin(std::string(trimmed(head_)))) {
    give_up(true);
    return;
  }
  enter(State::kGlmNext, {kGlmKey, format_.close, format_.open});
  for (const char m : std::string(marker == 0 ? kGlmKey : format_.close)) step_glm(m);
}

void ToolParser::step_glm(char c) {
  std::string plain;
  switch (state_) {
    case State::kGlmName:
      step_glm_name(c);
      return;
    case State::kGlmNext: {
      const int marker = scanner_.push(c, plain);
      if (marker == 0) {
        head_.clear();
        enter(State::kGlmKey, {kGlmEndKey});
      } else if (marker == 1) {
        complete();
        enter_content();
      } else if (marker == 2 && (told_ || !first_argument_ || is_tool(name_))) {
        complete();  // only the closing mark is missing
        enter_call(0);
      } else if (marker == 2 || !all_blank(plain)) {
        break_glm(plain);
      }
      return;
    }
    case State::kGlmKey:
      if (scanner_.push(c, head_) == 0) {
        key_ = std::string(trimmed(head_));
        enter(State::kGlmBeforeValue, {kGlmValue});
      } else if (head_.size() > kMaxKey) {
        break_glm(head_);
      }
      return;
    case State::kGlmBeforeValue: {
      const int marker = scanner_.push(c, plain);
      if (marker == 0) {
        const std::vector<std::string>* types = types_of(key_);
        streams_string_ = types && types->size() == 1 && types->front() == "string";
        arguments(std::string(first_argument_ ? "{" : ", ") + "\"" + escape_json_string(key_) +
                  "\": " + (streams_string_ ? "\"" : ""));
        first_argument_ = false;
        value_.clear();
        enter(State::kGlmValue, {kGlmEndValue});
      } else if (!all_blank(plain)) {
        break_glm(plain);
      }
      return;
    }
    case State::kGlmValue:
      step_glm_value(c);
      return;
    default:
      return;
  }
}

void ToolParser::step_glm_value(char c) {
  const int marker = scanner_.push(c, value_);
  if (streams_string_) {
    arguments(escape_json_string(value_));
    value_.clear();
  }
  if (marker != 0) return;
  arguments(streams_string_ ? "\"" : typed_value(value_, types_of(key_)));
  value_.clear();
  enter(State::kGlmNext, {kGlmKey, format_.close, format_.open});
}

// What cannot be in a call came. A call that was told ends there: `plain` is text.
void ToolParser::break_glm(const std::string& plain) {
  if (!told_) {
    give_up(true);
    return;
  }
  incomplete_ = true;
  const std::string left = plain + scanner_.held();
  enter_content();
  block_open_ = true;
  replay(left);
}

}  // namespace sluice
