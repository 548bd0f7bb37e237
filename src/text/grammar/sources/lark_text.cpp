#include "text/grammar/sources/lark_text.h"

#include "text/grammar/sources/grammar_parts.h"
#include "text/unicode.h"

namespace sluice::grammar {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

}  // namespace

std::string LarkText::place(std::size_t position) const {
  return place_in(text_, position);
}

void LarkText::fail_at(std::size_t position, std::string_view what) {
  fail({400, "invalid_grammar", "",
        fmt::format("The Lark grammar is wrong at {}: {}.", place(position), what)});
}

void LarkText::refuse(std::size_t position, std::string_view what) {
  fail({400, "unsupported_grammar", "",
        fmt::format("The Lark grammar has {} at {}, which is not supported.", what,
                    place(position))});
}

void LarkText::undefined(std::size_t position, std::string_view name) {
  fail({400, "undefined_rule", "",
        fmt::format("The Lark grammar uses '{}' at {}, which it does not define.",
                    name.substr(0, 64), place(position))});
}

void LarkText::go_to(const Span& span) {
  at_ = span.begin;
  end_ = span.end;
}

void LarkText::skip_comment() {
  while (at_ < end_ && text_[at_] != '\n') ++at_;
}

bool LarkText::skip(bool also_lines) {
  while (at_ < end_) {
    const char c = text_[at_];
    if (c == '#' || next_is("//")) {
      skip_comment();
      continue;
    }
    if (c == '\n' ? !also_lines : c != ' ' && c != '\t' && c != '\r') return true;
    ++at_;
  }
  return false;
}

std::string_view LarkText::name() {
  const std::size_t begin = at_;
  while (is_name(peek())) ++at_;
  return text_.substr(begin, at_ - begin);
}

std::optional<std::uint64_t> LarkText::number() {
  skip(false);
  const std::size_t begin = at_;
  std::uint64_t value = 0;
  for (; is_digit(peek()); ++at_)
    value = std::min(value * 10 + static_cast<std::uint64_t>(peek() - '0'), kMaxCount + 1);
  if (at_ == begin) return std::nullopt;
  skip(false);
  return value;
}

std::size_t LarkText::literal_end() const {
  const char mark = text_[at_];
  for (std::size_t i = at_ + 1; i < end_ && text_[i] != '\n'; ++i) {
    if (text_[i] == mark) return i + 1;
    if (text_[i] == '\\') ++i;
  }
  return 0;
}

LarkText::Span LarkText::body() {
  Span span = rest();
  std::size_t depth = 0;
  while (at_ < end_) {
    const char c = text_[at_];
    if (c == '#' || next_is("//")) {
      skip_comment();
    } else if (c == '"' || c == '/') {
      const std::size_t end = literal_end();
      if (end == 0) {
        fail_at(at_, c == '"' ? "this string is not closed" : "this pattern is not closed");
        return span;
      }
      at_ = end;
    } else if (c == '\n' && depth == 0) {
      span.end = at_;
      if (!skip(true) || text_[at_] != '|') return span;
      span.end = end_;
    } else {
      if (c == '(' || c == '[') ++depth;
      if ((c == ')' || c == ']') && depth > 0) --depth;
      ++at_;
    }
  }
  return span;
}

std::optional<char32_t> LarkText::escape() {
  const std::size_t begin = at_++;
  const char c = peek();
  ++at_;
  int digits = 0;
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case '\\':
    case '"':
    case '\'':
    case '/':
      return static_cast<char32_t>(c);
    case 'x':
      digits = 2;
      break;
    case 'u':
      digits = 4;
      break;
    case 'U':
      digits = 8;
      break;
    default:
      fail_at(begin, "an escape is \\n \\r \\t \\f \\v \\\\ \\\" \\xHH \\uHHHH or \\UHHHHHHHH");
      return std::nullopt;
  }
  std::uint32_t code = 0;
  for (; digits > 0; --digits, ++at_) {
    const char d = peek();
    const bool is_upper = d >= 'A' && d <= 'F', is_lower = d >= 'a' && d <= 'f';
    if (!is_digit(d) && !is_upper && !is_lower) break;
    code = code * 16 + static_cast<std::uint32_t>(is_digit(d) ? d - '0' : (d | 0x20) - 'a' + 10);
  }
  if (digits == 0 && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF)) return code;
  fail_at(begin, "an escape has too few digits, or names a surrogate or a code beyond U+10FFFF");
  return std::nullopt;
}

std::optional<std::vector<char32_t>> LarkText::string() {
  std::vector<char32_t> codes;
  const std::size_t end = literal_end();
  if (end == 0) {
    fail_at(at_, "this string is not closed");
    return std::nullopt;
  }
  for (++at_; at_ < end - 1;) {
    if (peek() == '\\') {
      const std::optional<char32_t> code = escape();
      if (!code) return std::nullopt;
      codes.push_back(*code);
      continue;
    }
    const Utf8Step next = next_utf8(text_.substr(at_));
    if (next.kind != Utf8Step::kCharacter) {
      fail_at(at_, "the text is not valid UTF-8");
      return std::nullopt;
    }
    codes.push_back(next.code);
    at_ += static_cast<std::size_t>(next.size);
  }
  at_ = end;
  return codes;
}

std::optional<std::string_view> LarkText::pattern() {
  const std::size_t begin = at_, end = literal_end();
  if (end == 0) {
    fail_at(begin, "this pattern is not closed");
    return std::nullopt;
  }
  at_ = end;
  return text_.substr(begin + 1, end - begin - 2);
}

}  // namespace sluice::grammar
