#include "text/parsers/tool_parser_json.h"

#include <utility>

#include "base/json.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxDepth = 64;

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

JsonMachine::Status JsonMachine::push(char c) {
  switch (token_) {
    case Token::kString:
    case Token::kEscape:
    case Token::kUnicode:
      return string(c);
    case Token::kNumber:
      if (number(c)) return Status::kMore;
      if (!number_ends()) return Status::kInvalid;
      token_ = Token::kNone;
      end_value();
      return structure(c);
    case Token::kLiteral:
      if (c != literal_[0]) return Status::kInvalid;
      literal_.remove_prefix(1);
      if (literal_.empty()) {
        token_ = Token::kNone;
        end_value();
      }
      return Status::kMore;
    case Token::kNone:
      return structure(c);
  }
  return Status::kInvalid;
}

JsonMachine::Status JsonMachine::string(char c) {
  if (token_ == Token::kEscape) {
    if (c == 'u') {
      token_ = Token::kUnicode;
      unicode_left_ = 4;
      return Status::kMore;
    }
    token_ = Token::kString;
    return std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos ? Status::kInvalid
                                                                            : Status::kMore;
  }
  if (token_ == Token::kUnicode) {
    const char low = static_cast<char>(c | 0x20);
    if (!is_digit(c) && (low < 'a' || low > 'f')) return Status::kInvalid;
    if (--unicode_left_ == 0) token_ = Token::kString;
    return Status::kMore;
  }
  if (c == '\\') {
    token_ = Token::kEscape;
  } else if (c == '"') {
    token_ = Token::kNone;
    if (at_key()) {
      expect_ = Expect::kColon;
    } else {
      end_value();
    }
  }
  return Status::kMore;
}

bool JsonMachine::number_ends() const {
  return number_ == Number::kZero || number_ == Number::kWhole || number_ == Number::kFraction ||
         number_ == Number::kExponentDigits;
}

// True if the byte continues the number.
bool JsonMachine::number(char c) {
  const auto become = [&](Number next) {
    number_ = next;
    return true;
  };
  const bool exponent = c == 'e' || c == 'E';
  switch (number_) {
    case Number::kMinus:
      return is_digit(c) && become(c == '0' ? Number::kZero : Number::kWhole);
    case Number::kZero:
      return (c == '.' && become(Number::kDot)) || (exponent && become(Number::kExponent));
    case Number::kWhole:
      return is_digit(c) || (c == '.' && become(Number::kDot)) ||
             (exponent && become(Number::kExponent));
    case Number::kDot:
      return is_digit(c) && become(Number::kFraction);
    case Number::kFraction:
      return is_digit(c) || (exponent && become(Number::kExponent));
    case Number::kExponent:
      return (is_digit(c) && become(Number::kExponentDigits)) ||
             ((c == '+' || c == '-') && become(Number::kExponentSign));
    case Number::kExponentSign:
      return is_digit(c) && become(Number::kExponentDigits);
    case Number::kExponentDigits:
      return is_digit(c);
  }
  return false;
}

JsonMachine::Status JsonMachine::begin_value(char c) {
  if (c == '{' || c == '[') {
    if (stack_.size() >= kMaxDepth) return Status::kInvalid;
    stack_ += c;
    expect_ = c == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
  } else if (c == '"') {
    token_ = Token::kString;
    expect_ = Expect::kValue;
  } else if (c == '-' || is_digit(c)) {
    token_ = Token::kNumber;
    number_ = c == '-' ? Number::kMinus : c == '0' ? Number::kZero : Number::kWhole;
    expect_ = Expect::kValue;
  } else if (c == 't' || c == 'f' || c == 'n') {
    token_ = Token::kLiteral;
    literal_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
    expect_ = Expect::kValue;
  } else {
    return Status::kInvalid;
  }
  return Status::kMore;
}

JsonMachine::Status JsonMachine::structure(char c) {
  if (is_blank(c)) return Status::kMore;
  const bool closes =
      (c == '}' || c == ']') && !stack_.empty() && stack_.back() == (c == '}' ? '{' : '[');
  switch (expect_) {
    case Expect::kValueOrEnd:
    case Expect::kKeyOrEnd:
    case Expect::kCommaOrEnd:
      if (closes) {
        stack_.pop_back();
        end_value();
        return stack_.empty() ? Status::kDone : Status::kMore;
      }
      if (expect_ == Expect::kCommaOrEnd) {
        if (c != ',') return Status::kInvalid;
        expect_ = stack_.back() == '{' ? Expect::kKey : Expect::kValue;
        return Status::kMore;
      }
      if (expect_ == Expect::kValueOrEnd) return begin_value(c);
      [[fallthrough]];
    case Expect::kKey:
      if (c != '"') return Status::kInvalid;
      token_ = Token::kString;
      expect_ = Expect::kKey;
      return Status::kMore;
    case Expect::kColon:
      if (c != ':') return Status::kInvalid;
      expect_ = Expect::kValue;
      return Status::kMore;
    case Expect::kValue:
      if (stack_.empty() && c != '{') return Status::kInvalid;
      return begin_value(c);
    case Expect::kDone:
      return Status::kInvalid;
  }
  return Status::kInvalid;
}

// Raw control bytes are invalid inside a JSON string, but models write newlines there, so they
// become escapes.
void JsonCall::take(char c) {
  std::string& out = part_ == Part::kArguments && streams_ ? arguments_ : text_;
  if (static_cast<unsigned char>(c) < 0x20 && machine_.in_string()) {
    out += fmt::format("\\u{:04x}", static_cast<int>(c));
  } else {
    out += c;
  }
}

JsonCall::Status JsonCall::push(char c) {
  const Status status = mended(c);
  if (status == Status::kInvalid && is_passed_on()) arguments_ += comma_ + word_ + escape_;
  return status;
}

// A comma is read with the byte behind it, which may be a closing bracket.
JsonCall::Status JsonCall::mended(char c) {
  if (!word_.empty()) return in_word(c);
  if (machine_.in_string()) return mends_ ? in_quotes(c) : read(c);
  if (!comma_.empty()) {
    if (is_blank(c)) {
      comma_ += c;
      return Status::kMore;
    }
    std::string comma = std::exchange(comma_, {});
    if (mends_ && (c == '}' || c == ']') && !machine_.at_first()) comma.erase(0, 1);
    if (read(comma) == Status::kInvalid) {
      comma_ = std::move(comma);
      return Status::kInvalid;
    }
  }
  if (c == ',') {
    comma_ = c;
    return Status::kMore;
  }
  if (mends_ && c == '\'' && (machine_.at_key() || machine_.at_value())) {
    is_single_ = true;
    return read('"');
  }
  if (mends_ && (c == 'T' || c == 'F' || c == 'N') && machine_.at_value()) {
    word_ = c;
    return Status::kMore;
  }
  return read(c);
}

// True, False and None.
JsonCall::Status JsonCall::in_word(char c) {
  const std::string_view word = word_[0] == 'T' ? "True" : word_[0] == 'F' ? "False" : "None";
  if (c != word[word_.size()]) return Status::kInvalid;
  word_ += c;
  if (word_.size() < word.size()) return Status::kMore;
  word_.clear();
  return read(word == "True" ? "true" : word == "False" ? "false" : "null");
}

// Inside a string: JSON's quotes stay, and Python's become those.
JsonCall::Status JsonCall::in_quotes(char c) {
  if (!escape_.empty()) {
    escape_.clear();
    if (c == '\'') return read(c);
    if (c == 'x' && is_single_) return read("\\u00");
    if (read('\\') == Status::kInvalid) return Status::kInvalid;
    return read(c);
  }
  if (c == '\\' && machine_.in_plain_string()) {
    escape_ = c;
    return Status::kMore;
  }
  if (!is_single_ || !machine_.in_plain_string()) return read(c);
  if (c == '"') return read("\\\"");
  is_single_ = c != '\'';
  return read(c == '\'' ? '"' : c);
}

JsonCall::Status JsonCall::read(std::string_view text) {
  for (const char c : text)
    if (read(c) == Status::kInvalid) return Status::kInvalid;
  return Status::kMore;
}

JsonCall::Status JsonCall::read(char c) {
  const int depth = machine_.depth();
  const bool was_key = machine_.at_key(), was_value = machine_.at_value(),
             was_string = machine_.in_string();
  if (bare_ || part_ == Part::kArguments || part_ == Part::kName || part_ == Part::kId ||
      part_ == Part::kKey) {
    // Inside a part: the byte belongs to the part, unless it ends a number or literal, which is
    // checked below.
  } else if (depth == 1 && !was_string && !is_blank(c)) {
    if (was_key && c == '"') {
      part_ = Part::kKey;
      text_.clear();
    } else if (was_value) {
      const bool is_arguments =
          key_ == "arguments" || key_ == "parameters" || key_ == arguments_key_;
      part_ = key_ == "name" || key_ == name_key_ ? Part::kName
              : key_ == "id"                      ? Part::kId
              : is_arguments                      ? Part::kArguments
                                                  : Part::kOther;
      has_odd_member_ = has_odd_member_ || (part_ == Part::kOther && key_ != "type" &&
                                            (id_key_.empty() || key_ != id_key_));
      if ((part_ == Part::kName && has_name_) || (part_ == Part::kArguments && has_arguments_))
        part_ = Part::kOther;
      text_.clear();
      streams_ = part_ == Part::kArguments && c == '{';
    }
  }
  const Status status = machine_.push(c);
  if (status == Status::kInvalid) return status;
  if (bare_) {
    part_ = Part::kArguments;
    streams_ = true;
    take(c);
    if (status == Status::kDone) has_arguments_ = true;
    return status;
  }
  // A number or literal has no closing byte of its own; the comma or brace after it belongs to the
  // outer object.
  const bool closed_by_other = machine_.depth() < 1 || (machine_.depth() == 1 && c == ',' &&
                                                        machine_.at_key() && !machine_.in_string());
  if (part_ != Part::kNone && part_ != Part::kOther && !closed_by_other) take(c);
  const bool key_ends = part_ == Part::kKey && machine_.depth() == 1 && !machine_.in_string();
  const bool value_ends = part_ != Part::kNone && part_ != Part::kKey && machine_.depth() <= 1 &&
                          (machine_.after_value() || closed_by_other);
  if (key_ends || value_ends) end_part();
  return status;
}

void JsonCall::end_part() {
  const Part part = std::exchange(part_, Part::kNone);
  if (part == Part::kOther) return;
  if (part == Part::kArguments && streams_) {
    has_arguments_ = true;
    return;
  }
  const std::optional<std::string> text = decode_json_string(text_);
  if (part == Part::kKey) {
    key_ = text.value_or("");
  } else if (part == Part::kName) {
    if (!text) return;
    name_ = *text;
    has_name_ = true;
  } else if (part == Part::kId) {
    id_ = text.value_or("");
  } else {
    has_arguments_ = true;
    const std::optional<JsonText> value = read_json_text(text_);
    const std::optional<std::string> arguments = value ? call_arguments(*value) : std::nullopt;
    has_odd_arguments_ = !arguments;
    arguments_ = arguments.value_or("");
  }
}

std::optional<std::string> call_arguments(const JsonText& value) {
  if (value.kind == JsonKind::kObject) return value.text;
  if (value.kind == JsonKind::kNull) return "{}";
  const std::optional<std::string> text = decode_json_string(value.text);
  if (!text) return std::nullopt;
  // Some models put the arguments into a string.
  if (text->find_first_not_of(" \n\r\t") == std::string::npos) return "{}";
  const std::optional<JsonText> inner = read_json_text(*text);
  if (!inner || (inner->kind != JsonKind::kObject && inner->kind != JsonKind::kNull))
    return std::nullopt;
  return inner->kind == JsonKind::kNull ? "{}" : inner->text;
}

std::string JsonCall::take_arguments() {
  return std::exchange(arguments_, {});
}

}  // namespace sluice
