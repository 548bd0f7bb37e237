// GLM's format: keys and values between tags; values are text or JSON, by the tool's schema.
#include <algorithm>
#include <cctype>

#include "text/parsers/tool_parser.h"
#include "text/parsers/tool_parser_format.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxName = 128, kMaxKey = 1024;
constexpr std::string_view kKey = kGlmKey, kEndKey = kGlmEndKey, kValue = kGlmValue,
                           kEndValue = kGlmEndValue;

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

bool all_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(), is_blank);
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool is_name_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("_-.:/").find(c) != std::string_view::npos;
}

// The inside of a JSON string. Bytes of UTF-8 pass unchanged, since a character may arrive in two
// pieces.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

const char* json_type(const Json& value) {
  switch (value.type()) {
    case Json::value_t::boolean:
      return "boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "integer";
    case Json::value_t::number_float:
      return "number";
    case Json::value_t::binary:
      return "integer";
    case Json::value_t::array:
      return "array";
    case Json::value_t::object:
      return "object";
    case Json::value_t::null:
      return "null";
    default:
      return "string";
  }
}

// The JSON text of a value that may not be a string. A value that parses as a stated type has that
// type; any other value is a string.
std::string typed_value(const std::string& raw, const std::vector<std::string>* types) {
  const bool may_be_string =
      types && std::find(types->begin(), types->end(), "string") != types->end();
  std::string text(trimmed(raw));
  if (!may_be_string && (text == "True" || text == "False"))
    text = text == "True" ? "true" : "false";
  if (!may_be_string && text == "None") text = "null";
  const Result<Json> value = parse_json(text, kArgumentsJson);
  if (!value.ok()) return "\"" + escaped(raw) + "\"";
  if (may_be_string) {
    const std::string type = json_type(*value);
    const auto stated = [&](std::string_view t) {
      return std::find(types->begin(), types->end(), t) != types->end();
    };
    if (type == "string" || !(stated(type) || (type == "integer" && stated("number"))))
      return "\"" + escaped(raw) + "\"";
  }
  return text;
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
    if ((!is_name_char(p) && !is_blank(p)) || second_word || head_.size() > kMaxName) {
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
    enter(State::kGlmNext, {kKey, format_.close});
    return;
  }
  if (marker < 0) return;
  if (!begin(std::string(trimmed(head_)))) {
    give_up(true);
    return;
  }
  enter(State::kGlmNext, {kKey, format_.close});
  for (const char m : std::string(marker == 0 ? kKey : format_.close)) step_glm(m);
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
        enter(State::kGlmKey, {kEndKey});
      } else if (marker == 1) {
        arguments(first_argument_ ? "{}" : "}");
        enter_content();
      } else if (!all_blank(plain)) {
        give_up(false);
        content(plain);
      }
      return;
    }
    case State::kGlmKey:
      if (scanner_.push(c, head_) == 0) {
        key_ = head_;
        enter(State::kGlmBeforeValue, {kValue});
      } else if (head_.size() > kMaxKey) {
        give_up(false);
      }
      return;
    case State::kGlmBeforeValue: {
      const int marker = scanner_.push(c, plain);
      if (marker == 0) {
        const std::vector<std::string>* types = types_of(key_);
        streams_string_ = types && types->size() == 1 && types->front() == "string";
        arguments(std::string(first_argument_ ? "{" : ", ") + "\"" + escaped(key_) +
                  "\": " + (streams_string_ ? "\"" : ""));
        first_argument_ = false;
        value_.clear();
        enter(State::kGlmValue, {kEndValue});
      } else if (!all_blank(plain)) {
        give_up(false);
        content(plain);
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
    arguments(escaped(value_));
    value_.clear();
  }
  if (marker != 0) return;
  arguments(streams_string_ ? "\"" : typed_value(value_, types_of(key_)));
  value_.clear();
  enter(State::kGlmNext, {kKey, format_.close});
}

// The text ended inside a value: the partial value is reported unchanged.
void ToolParser::finish_value() {
  arguments(streams_string_ ? escaped(value_) : value_);
  value_.clear();
}

}  // namespace sluice
