#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "text/jinja/values/error.h"
#include "text/jinja/values/unicode.h"
#include "text/jinja/values/value.h"

namespace sluice::jinja {
namespace {

constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) { normalize(source); }

  std::vector<Token> run() {
    while (pos_ < source_.size()) data();
    add(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  void normalize(std::string_view source) {
    source_.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r') {
        if (i + 1 < source.size() && source[i + 1] == '\n') continue;
        source_ += '\n';
      } else {
        source_ += source[i];
      }
    }
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  char at(std::size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  bool starts(std::size_t i, std::string_view text) const {
    return source_.compare(i, text.size(), text) == 0;
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  // Advances and counts lines.
  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(pos_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    if (to > pos_) line_starting_ = source_[to - 1] == '\n';
    pos_ = to;
  }

  std::size_t skip_space(std::size_t i) const {
    while (i < source_.size()) {
      std::size_t next = i;
      if (!is_space(next_code_point(source_, next))) break;
      i = next;
    }
    return i;
  }

  // Text before a tag that begins with `sign`, after white space control.
  std::string_view trimmed(std::string_view text, char sign, bool is_print) const {
    if (sign == '-') return right_strip(text);
    if (sign == '+' || is_print) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (line == 0 && !line_starting_) return text;
    return skip_space_all(text.substr(line)) ? text.substr(0, line) : text;
  }
  static bool skip_space_all(std::string_view text) { return right_strip(text).empty(); }

  // Where the tag that closes at `i` ("%}" or "#}") ends, given the sign before it.
  std::size_t after_close(std::size_t i, char sign) const {
    i += 2;
    if (sign == '-') return skip_space(i);
    if (sign != '+' && at(i) == '\n') return i + 1;
    return i;
  }

  void data() {
    std::size_t open = pos_;
    while ((open = source_.find('{', open)) != std::string::npos) {
      const char next = at(open + 1);
      if (next == '{' || next == '%' || next == '#') break;
      ++open;
    }
    if (open == std::string::npos) {
      add(TokenKind::kData, source_.substr(pos_));
      advance(source_.size());
      return;
    }
    const char kind = source_[open + 1];
    const char sign = at(open + 2) == '-' || at(open + 2) == '+' ? source_[open + 2] : '\0';
    const std::string_view text =
        trimmed(std::string_view(source_).substr(pos_, open - pos_), sign, kind == '{');
    if (!text.empty()) add(TokenKind::kData, std::string(text));
    const std::size_t inside = open + 2 + (sign ? 1 : 0);
    advance(inside);
    if (kind == '#') {
      comment();
    } else if (kind == '{') {
      add(TokenKind::kPrintBegin, {});
      code(true);
    } else if (!raw()) {
      add(TokenKind::kBlockBegin, {});
      code(false);
    }
  }

  void comment() {
    if (pos_ >= source_.size()) return;
    const std::size_t close = source_.find("#}", pos_);
    if (close == std::string::npos) raise_syntax("Missing end of comment tag", line_);
    advance(after_close(close, close > pos_ ? source_[close - 1] : '\0'));
  }

  bool raw() {
    std::size_t i = skip_space(pos_);
    if (!starts(i, "raw")) return false;
    i = skip_space(i + 3);
    const bool strip = at(i) == '-';
    if (strip) ++i;
    if (!starts(i, "%}")) return false;
    advance(strip ? skip_space(i + 2) : i + 2);
    if (pos_ >= source_.size()) return true;
    for (std::size_t open = pos_; (open = source_.find("{%", open)) != std::string::npos;
         open += 2) {
      std::size_t end = open + 2;
      const char sign = at(end) == '-' || at(end) == '+' ? source_[end++] : '\0';
      end = skip_space(end);
      if (!starts(end, "endraw")) continue;
      end = skip_space(end + 6);
      const char close_sign = at(end) == '-' || at(end) == '+' ? source_[end++] : '\0';
      if (!starts(end, "%}")) continue;
      const std::string_view text =
          trimmed(std::string_view(source_).substr(pos_, open - pos_), sign, false);
      if (!text.empty()) add(TokenKind::kData, std::string(text));
      advance(after_close(end, close_sign));
      return true;
    }
    raise_syntax("Missing end of raw directive", line_);
  }

  // Inside {{ }} or {% %}.
  void code(bool print) {
    std::string open;  // brackets without their closing partner
    while (pos_ < source_.size()) {
      if (open.empty() && code_end(print)) return;
      std::size_t next = pos_;
      const std::uint32_t code = next_code_point(source_, next);
      if (is_space(code)) {
        advance(skip_space(pos_));
      } else if (is_ascii_digit(source_[pos_])) {
        number();
      } else if (is_name_start(code)) {
        name();
      } else if (code == '\'' || code == '"') {
        string();
      } else {
        operation(open);
      }
    }
  }

  bool code_end(bool print) {
    const char c = at(pos_);
    const std::size_t close = pos_ + (c == '-' || (c == '+' && !print) ? 1 : 0);
    if (!starts(close, print ? "}}" : "%}")) return false;
    add(print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, {});
    if (print) {
      advance(c == '-' ? skip_space(close + 2) : close + 2);
    } else {
      advance(after_close(close, close > pos_ ? c : '\0'));
    }
    return true;
  }

  std::size_t skip_digits(std::size_t i, bool (*is_one)(char)) const {
    while (is_one(at(i)) || (at(i) == '_' && is_one(at(i + 1)))) ++i;
    return i;
  }

  void number() {
    std::size_t end = pos_;
    const char mark = static_cast<char>(at(pos_ + 1) | 0x20);
    bool real = false;
    if (source_[pos_] == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
      end = skip_digits(pos_ + 2, [](char c) {
        return is_ascii_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
      });
    } else {
      // A decimal integer other than zero begins with no zero.
      const bool zeros = source_[pos_] == '0';
      end = zeros ? skip_digits(pos_, [](char c) { return c == '0'; })
                  : skip_digits(pos_, is_ascii_digit);
      const std::size_t whole = skip_digits(pos_, is_ascii_digit);
      // After a dot (nested.1.1) a number is an index, never a fraction.
      if (pos_ == 0 || source_[pos_ - 1] != '.') {
        std::size_t tail = whole;
        if (at(tail) == '.' && is_ascii_digit(at(tail + 1))) {
          real = true;
          tail = skip_digits(tail + 1, is_ascii_digit);
        }
        const std::size_t sign = tail + 1 + (at(tail + 1) == '+' || at(tail + 1) == '-' ? 1 : 0);
        if ((at(tail) | 0x20) == 'e' && is_ascii_digit(at(sign))) {
          real = true;
          tail = skip_digits(sign, is_ascii_digit);
        }
        if (real) end = tail;
      }
    }
    std::string text = source_.substr(pos_, end - pos_);
    std::erase(text, '_');
    add(real ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    advance(end);
  }

  void name() {
    std::size_t end = pos_;
    while (end < source_.size()) {
      std::size_t next = end;
      if (!is_name_part(next_code_point(source_, next))) break;
      end = next;
    }
    add(TokenKind::kName, source_.substr(pos_, end - pos_));
    advance(end);
  }

  void string() {
    const char quote = source_[pos_];
    std::string text;
    std::size_t i = pos_ + 1;
    for (;; ++i) {
      if (i >= source_.size()) unexpected_char();
      const char c = source_[i];
      if (c == quote) break;
      if (c != '\\') {
        text += c;
      } else if (++i < source_.size()) {
        i = escape(i, text);
      }
    }
    add(TokenKind::kString, std::move(text));
    advance(i + 1);
  }

  // The escape whose letter stands at `i`; returns its last byte.
  std::size_t escape(std::size_t i, std::string& text) const {
    const char c = source_[i];
    static constexpr std::string_view kLetters = "abfnrtv\\'\"", kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t known = kLetters.find(c); known != std::string_view::npos) {
      text += kMeanings[known];
    } else if (c == '\n') {
      return i;
    } else if (c >= '0' && c <= '7') {
      std::uint32_t code = 0;
      std::size_t end = i;
      while (end < i + 3 && at(end) >= '0' && at(end) <= '7')
        code = code * 8 + static_cast<std::uint32_t>(source_[end++] - '0');
      append_code_point(text, code);
      return end - 1;
    } else if (c == 'N') {
      raise_syntax("characters by name (\\N{...}) are not offered; write the character", line_);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      std::uint32_t code = 0;
      for (std::size_t k = 1; k <= digits; ++k) {
        const char d = at(i + k);
        const bool hex = is_ascii_digit(d) || ((d | 0x20) >= 'a' && (d | 0x20) <= 'f');
        if (!hex) raise_syntax(std::string("(unicode error) truncated \\") + c + " escape", line_);
        code = code * 16 +
               static_cast<std::uint32_t>(is_ascii_digit(d) ? d - '0' : (d | 0x20) - 'a' + 10);
      }
      if (code > 0x10FFFF) raise_syntax("(unicode error) illegal Unicode character", line_);
      append_code_point(text, code);
      return i + digits;
    } else {
      text += '\\';
      text += c;
    }
    return i;
  }

  void operation(std::string& open) {
    for (const std::string_view op : kOperators) {
      if (!starts(pos_, op)) continue;
      const char c = op[0];
      if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty()) raise_syntax(std::string("unexpected '") + c + "'", line_);
        if (open.back() != c)
          raise_syntax(std::string("unexpected '") + c + "', expected '" + open.back() + "'",
                       line_);
        open.pop_back();
      }
      add(TokenKind::kOperator, std::string(op));
      advance(pos_ + op.size());
      return;
    }
    unexpected_char();
  }

  [[noreturn]] void unexpected_char() {
    std::size_t end = pos_;
    next_code_point(source_, end);
    std::string message = "unexpected char ";
    append_repr(message, std::string_view(source_).substr(pos_, end - pos_));
    raise_syntax(message + " at " + std::to_string(count_code_points(source_.substr(0, pos_))),
                 line_);
  }

  std::string source_;
  std::size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "template data / text";
    case TokenKind::kPrintBegin:
      return "begin of print statement";
    case TokenKind::kPrintEnd:
      return "end of print statement";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kString:
      return "string";
    case TokenKind::kInteger:
      return "integer";
    case TokenKind::kFloat:
      return "float";
    default:
      return token.text;
  }
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace sluice::jinja
