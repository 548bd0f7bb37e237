#include "text/parsers/literal_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "text/parsers/lenient_json.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxKey = 1024;
constexpr std::size_t kMaxBasedDigits = 256;

bool is_word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' ||
         c == '+';
}

bool is_key_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' ||
         c == '$' || static_cast<unsigned char>(c) >= 0x80;
}

void append_escaped(char c, std::string& json) {
  if (c == '"' || c == '\\') {
    json += '\\';
    json += c;
  } else if (c == '\n') {
    json += "\\n";
  } else if (static_cast<unsigned char>(c) < 0x20) {
    json += fmt::format("\\u{:04x}", static_cast<int>(c));
  } else {
    json += c;
  }
}

void append_code(std::uint32_t code, std::string& json) {
  if (code >= 0x10000) {
    json += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                        0xDC00 + ((code - 0x10000) & 0x3FF));
  } else {
    json += fmt::format("\\u{:04x}", code);
  }
}

// The decimal digits of digits of another base; empty: they are none.
std::string decimal(std::string_view digits, int base) {
  if (digits.empty() || digits.size() > kMaxBasedDigits) return {};
  std::string out = "0";  // the lowest digit first
  for (const char c : digits) {
    const auto low = static_cast<char>(c | 0x20);
    int carry = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : base;
    if (carry >= base) return {};
    for (char& digit : out) {
      carry += (digit - '0') * base;
      digit = static_cast<char>('0' + carry % 10);
      carry /= 10;
    }
    for (; carry > 0; carry /= 10) out += static_cast<char>('0' + carry % 10);
  }
  std::ranges::reverse(out);
  return out;
}

// The base of 0x, 0o and 0b; 10 for other words.
int base_of(std::string_view word) {
  if (word.size() < 2 || word[0] != '0') return 10;
  const auto low = static_cast<char>(word[1] | 0x20);
  return low == 'x' ? 16 : low == 'o' ? 8 : low == 'b' ? 2 : 10;
}

// The JSON text of a number, of true, false or null; empty: the word is none of these. Python's
// numbers may have underscores, a plus, a base, or nothing on one side of the point.
std::string literal(std::string text) {
  const bool is_word = std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '_';
  if (!is_word) std::erase(text, '_');
  if (text.starts_with('+')) text.erase(0, 1);
  const std::size_t start = text.starts_with('-') ? 1 : 0;
  if (const int base = base_of(std::string_view(text).substr(start)); base != 10) {
    const std::string digits = decimal(std::string_view(text).substr(start + 2), base);
    return digits.empty() ? digits : text.substr(0, start) + digits;
  }
  if (text.size() > start && text[start] == '.') text.insert(start, "0");
  if (text.ends_with('.')) text += '0';
  const std::optional<JsonText> value = read_json_text(text);
  return value && value->kind != JsonKind::kString ? value->text : std::string();
}

// Letters before a string that change nothing but its backslashes.
bool is_string_prefix(std::string_view word) {
  return word == "r" || word == "R" || word == "u" || word == "U";
}

}  // namespace

LiteralArguments::LiteralArguments(Style style, std::string_view quote)
    : style_(style), has_mark_(!quote.empty()), stack_(style == Style::kKeywords ? "(" : "{") {
  if (has_mark_) scanner_ = MarkerScanner({quote});
}

LiteralArguments::Status LiteralArguments::push(char c, std::string& json) {
  const Status status = step(c, held_);
  if (parentheses_.empty()) {
    json += held_;
    held_.clear();
  }
  return status;
}

LiteralArguments::Status LiteralArguments::step(char c, std::string& json) {
  if (!began_) json += '{';
  began_ = true;
  if (token_ == Token::kMarked) {
    std::string plain;
    const int mark = scanner_.push(c, plain);
    for (const char p : plain) append_escaped(p, json);
    if (mark == 0) end_string(json);
    return Status::kMore;
  }
  if (!has_mark_ || token_ != Token::kNone) return read(c, json);
  std::string plain;
  const int mark = scanner_.push(c, plain);
  for (const char p : plain) {
    const Status status = read(p, json);
    if (status != Status::kMore) return status;
  }
  if (mark < 0) return Status::kMore;
  if (expect_ != Expect::kValue && expect_ != Expect::kValueOrEnd) return Status::kInvalid;
  if (!takes_members() && !first_) json += ", ";
  first_ = false;
  json += '"';
  is_key_ = false;
  token_ = Token::kMarked;
  return Status::kMore;
}

LiteralArguments::Status LiteralArguments::read(char c, std::string& json) {
  switch (token_) {
    case Token::kNone:
    case Token::kMarked:
      return structure(c, json);
    case Token::kKey:
      return key(c, json);
    case Token::kWord:
      return word(c, json);
    case Token::kBare:
      return bare(c, json);
    case Token::kQuoted:
      return quoted(c, json);
    case Token::kRaw:
      token_ = Token::kQuoted;
      append_escaped(c, json);
      return Status::kMore;
    case Token::kEscape:
      return escape(c, json);
    case Token::kHex:
      return hex(c, json);
    case Token::kOctal:
      return octal(c, json);
  }
  return Status::kInvalid;
}

LiteralArguments::Status LiteralArguments::structure(char c, std::string& json) {
  if (is_blank(c)) return Status::kMore;
  if (is_open_ && joins_string(c, json)) return Status::kMore;
  const char top = stack_.back();
  const bool closes = c == (top == '[' ? ']' : top == '{' ? '}' : ')');
  switch (expect_) {
    case Expect::kKeyOrEnd:
    case Expect::kValueOrEnd:
    case Expect::kCommaOrEnd:
      if (closes) {
        close_bracket(json);
        first_ = false;
        expect_ = stack_.empty() ? Expect::kDone : Expect::kCommaOrEnd;
        return stack_.empty() ? Status::kDone : Status::kMore;
      }
      if (expect_ == Expect::kKeyOrEnd) return begin_key(c, json);
      if (expect_ == Expect::kValueOrEnd) return begin_value(c, json);
      if (c != ',') return Status::kInvalid;
      if (top == 'p') {
        json.insert(parentheses_.back(), "[");
        parentheses_.pop_back();
        stack_.back() = 't';
      }
      expect_ = takes_members() ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
      return Status::kMore;
    case Expect::kAssign:
      if (c != (top == '(' ? '=' : ':')) return Status::kInvalid;
      json += ": ";
      expect_ = Expect::kValue;
      return Status::kMore;
    case Expect::kValue:
      return begin_value(c, json);
    case Expect::kDone:
      return Status::kInvalid;
  }
  return Status::kInvalid;
}

// A string has ended: true if `c` begins another one, which is joined to it.
bool LiteralArguments::joins_string(char c, std::string& json) {
  if (c == '"' || c == '\'') {
    begin_string(c, false, json);
    return true;
  }
  if (is_string_prefix(std::string_view(&c, 1))) {
    word_ = c;
    token_ = Token::kWord;
    return true;
  }
  json += '"';
  is_open_ = false;
  return false;
}

// A parenthesis without a comma is its value.
void LiteralArguments::close_bracket(std::string& json) {
  const char top = stack_.back();
  stack_.pop_back();
  if (top == 'p') {
    if (first_) json.insert(parentheses_.back(), "[]");
    parentheses_.pop_back();
  } else {
    json += top == '[' || top == 't' ? ']' : '}';
  }
}

LiteralArguments::Status LiteralArguments::begin_key(char c, std::string& json) {
  if (!first_) json += ", ";
  first_ = false;
  if (c == '"' || (c == '\'' && style_ == Style::kKeywords)) {
    if (stack_.size() == 1 && style_ == Style::kKeywords) return Status::kInvalid;
    begin_string(c, true, json);
    return Status::kMore;
  }
  if (!takes_bare_keys() || !is_key_char(c)) return Status::kInvalid;
  word_ = c;
  token_ = Token::kKey;
  return Status::kMore;
}

LiteralArguments::Status LiteralArguments::key(char c, std::string& json) {
  // Keys of braces are any text up to the colon.
  const bool goes_on = style_ == Style::kBraces
                           ? std::string_view(":{}[],\n").find(c) == std::string_view::npos
                           : is_key_char(c);
  if (goes_on) {
    word_ += c;
    return word_.size() > kMaxKey ? Status::kInvalid : Status::kMore;
  }
  json += "\"" + escape_json_string(trimmed(word_)) + "\"";
  token_ = Token::kNone;
  expect_ = Expect::kAssign;
  return structure(c, json);
}

LiteralArguments::Status LiteralArguments::begin_value(char c, std::string& json) {
  if (!takes_members() && !first_) json += ", ";
  first_ = false;
  if (c == '[' || c == '{') {
    if (stack_.size() >= kMaxDepth) return Status::kInvalid;
    stack_ += c;
    json += c;
    first_ = true;
    expect_ = c == '[' ? Expect::kValueOrEnd : Expect::kKeyOrEnd;
  } else if (c == '(' && style_ == Style::kKeywords) {
    if (stack_.size() >= kMaxDepth) return Status::kInvalid;
    stack_ += 'p';
    parentheses_.push_back(json.size());
    first_ = true;
    expect_ = Expect::kValueOrEnd;
  } else if (c == '"' || (c == '\'' && style_ == Style::kKeywords)) {
    begin_string(c, false, json);
  } else if (style_ == Style::kBraces) {
    if (std::string_view(",:}]<'").find(c) != std::string_view::npos) return Status::kInvalid;
    word_ = c;
    token_ = Token::kBare;
  } else if (is_word_char(c)) {
    word_ = c;
    token_ = Token::kWord;
  } else {
    return Status::kInvalid;
  }
  return Status::kMore;
}

LiteralArguments::Status LiteralArguments::word(char c, std::string& json) {
  if (is_word_char(c)) {
    word_ += c;
    return Status::kMore;
  }
  if ((c == '"' || c == '\'') && is_string_prefix(word_)) {
    const bool is_raw = word_ == "r" || word_ == "R";
    begin_string(c, false, json);
    is_raw_ = is_raw;
    return Status::kMore;
  }
  const std::string text = is_open_ ? std::string() : literal(std::move(word_));
  if (text.empty()) return Status::kInvalid;
  json += text;
  token_ = Token::kNone;
  expect_ = Expect::kCommaOrEnd;
  return structure(c, json);
}

// A value without quotes ends at a comma or a bracket. Marks and opening brackets are none of it.
LiteralArguments::Status LiteralArguments::bare(char c, std::string& json) {
  if (std::string_view("<{[\"").find(c) != std::string_view::npos) return Status::kInvalid;
  if (std::string_view(",}]").find(c) == std::string_view::npos) {
    word_ += c;
    return Status::kMore;
  }
  const std::optional<JsonText> value = read_json_text(word_);
  json += value ? value->text : "\"" + escape_json_string(trimmed(word_)) + "\"";
  word_.clear();
  token_ = Token::kNone;
  expect_ = Expect::kCommaOrEnd;
  return structure(c, json);
}

void LiteralArguments::begin_string(char quote, bool is_key, std::string& json) {
  if (!is_open_) json += '"';
  is_open_ = is_raw_ = false;
  quote_ = quote;
  is_key_ = is_key;
  is_long_ = false;
  is_empty_ = true;
  num_quotes_ = 0;
  token_ = Token::kQuoted;
}

void LiteralArguments::end_string(std::string& json) {
  is_open_ = !is_key_ && style_ == Style::kKeywords;
  if (!is_open_) json += '"';
  token_ = Token::kNone;
  expect_ = is_key_ ? Expect::kAssign : Expect::kCommaOrEnd;
}

LiteralArguments::Status LiteralArguments::quoted(char c, std::string& json) {
  if (c == quote_) {
    if (!is_long_ && !is_empty_) {
      end_string(json);
      return Status::kMore;
    }
    ++num_quotes_;
    if (is_long_ && num_quotes_ == 3) end_string(json);
    if (!is_long_ && num_quotes_ == 2) {
      is_long_ = true;
      num_quotes_ = 0;
    }
    return Status::kMore;
  }
  if (!is_long_ && num_quotes_ == 1) {  // two quotes: an empty string
    end_string(json);
    return structure(c, json);
  }
  for (; num_quotes_ > 0; --num_quotes_) append_escaped(quote_, json);
  is_empty_ = false;
  if (c == '\\' && is_raw_) {
    append_escaped(c, json);
    token_ = Token::kRaw;
  } else if (c == '\\') {
    token_ = Token::kEscape;
  } else {
    append_escaped(c, json);
  }
  return Status::kMore;
}

// A backslash was read. An escape that the language does not know stands for itself.
LiteralArguments::Status LiteralArguments::escape(char c, std::string& json) {
  token_ = Token::kQuoted;
  digits_.clear();
  switch (c) {
    case '\n':
      return Status::kMore;
    case '\'':
    case '/':
      json += c;
      return Status::kMore;
    case '"':
    case '\\':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
      json += '\\';
      json += c;
      return Status::kMore;
    case 'a':
      append_code(7, json);
      return Status::kMore;
    case 'v':
      append_code(11, json);
      return Status::kMore;
    case 'x':
    case 'u':
    case 'U':
      token_ = Token::kHex;
      digits_left_ = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      return Status::kMore;
    default:
      break;
  }
  if (c >= '0' && c <= '7') {
    digits_ = c;
    token_ = Token::kOctal;
    return Status::kMore;
  }
  json += "\\\\";
  append_escaped(c, json);
  return Status::kMore;
}

LiteralArguments::Status LiteralArguments::hex(char c, std::string& json) {
  if (!std::isxdigit(static_cast<unsigned char>(c))) return Status::kInvalid;
  digits_ += c;
  if (--digits_left_ > 0) return Status::kMore;
  token_ = Token::kQuoted;
  if (digits_.size() == 4) {
    json += "\\u" + digits_;
    return Status::kMore;
  }
  const auto code = static_cast<std::uint32_t>(std::stoul(digits_, nullptr, 16));
  if (code > 0x10FFFF) return Status::kInvalid;
  append_code(code, json);
  return Status::kMore;
}

LiteralArguments::Status LiteralArguments::octal(char c, std::string& json) {
  const bool goes_on = c >= '0' && c <= '7' && digits_.size() < 3;
  if (goes_on) {
    digits_ += c;
    return Status::kMore;
  }
  append_code(static_cast<std::uint32_t>(std::stoul(digits_, nullptr, 8)), json);
  token_ = Token::kQuoted;
  return quoted(c, json);
}

}  // namespace sluice
