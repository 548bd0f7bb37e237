#include "text/parsers/lenient_json.h"

#include "base/json.h"

namespace sluice {
namespace {

constexpr int kMaxDepth = 64;

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Reads values from a text; every function returns false where the text has no clear meaning.
class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  // A value; strict JSON keeps its text as written.
  bool item(JsonText& out, int depth) {
    blanks();
    const std::size_t start = at_;
    is_strict_ = true;
    if (!value(out, depth)) return false;
    out.is_strict = is_strict_;
    if (is_strict_) out.text = source_.substr(start, at_ - start);
    return true;
  }
  bool string(std::string& out);
  void blanks() {
    while (at_ < source_.size() && is_blank(source_[at_])) ++at_;
  }
  bool done() const { return at_ >= source_.size(); }
  char peek() const { return done() ? '\0' : source_[at_]; }
  void skip() { ++at_; }
  bool open_string() const { return open_string_; }
  std::size_t at() const { return at_; }

 private:
  bool value(JsonText& out, int depth);
  bool container(JsonText& out, int depth);
  bool number(JsonText& out);
  bool word(JsonText& out);
  bool escape(char quote, std::string& out);
  bool hex(int digits, std::string& out);
  void bend() { is_strict_ = false; }
  void digits(std::string& out) {
    while (!done() && is_digit(peek())) out += source_[at_++];
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool is_strict_ = true, open_string_ = false;
};

bool Reader::hex(int digits, std::string& out) {
  std::string code;
  for (int i = 0; i < digits; ++i) {
    if (done() || !is_hex(peek())) return false;
    code += source_[at_++];
  }
  out += "\\u" + std::string(4 - static_cast<std::size_t>(digits), '0') + code;
  return true;
}

// A backslash was read. JSON's escapes are the same in Python, but for the slash.
bool Reader::escape(char quote, std::string& out) {
  if (done()) return false;
  const char c = source_[at_++];
  if (c == 'u') return hex(4, out);
  if (std::string_view("\"\\bfnrt").find(c) != std::string_view::npos ||
      (c == '/' && quote == '"')) {
    out += '\\';
    out += c;
    return true;
  }
  bend();
  if (c == '\'') {
    out += '\'';
    return true;
  }
  return c == 'x' && quote == '\'' && hex(2, out);
}

// Between quotes of either kind; `out` gets the JSON text with its quotes.
bool Reader::string(std::string& out) {
  const char quote = source_[at_++];
  if (quote == '\'') bend();
  out += '"';
  while (!done()) {
    const char c = source_[at_++];
    if (c == quote) {
      out += '"';
      return true;
    }
    if (c == '\\') {
      if (escape(quote, out)) continue;
      open_string_ = done();
      return false;
    }
    if (c == '"') {
      out += "\\\"";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      bend();
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  open_string_ = true;
  return false;
}

bool Reader::number(JsonText& out) {
  out.kind = JsonKind::kInteger;
  if (peek() == '-') out.text += source_[at_++];
  const std::size_t whole = out.text.size();
  digits(out.text);
  if (out.text.size() == whole) return false;
  if (out.text[whole] == '0' && out.text.size() > whole + 1) return false;
  if (peek() == '.') {
    out.kind = JsonKind::kNumber;
    out.text += source_[at_++];
    const std::size_t fraction = out.text.size();
    digits(out.text);
    if (out.text.size() == fraction) return false;
  }
  if (peek() == 'e' || peek() == 'E') {
    out.kind = JsonKind::kNumber;
    out.text += source_[at_++];
    if (peek() == '+' || peek() == '-') out.text += source_[at_++];
    const std::size_t exponent = out.text.size();
    digits(out.text);
    if (out.text.size() == exponent) return false;
  }
  return true;
}

bool Reader::word(JsonText& out) {
  struct Word {
    std::string_view written, meant;
    JsonKind kind;
  };
  static constexpr Word kWords[] = {
      {"true", "true", JsonKind::kBoolean},   {"false", "false", JsonKind::kBoolean},
      {"null", "null", JsonKind::kNull},      {"True", "true", JsonKind::kBoolean},
      {"False", "false", JsonKind::kBoolean}, {"None", "null", JsonKind::kNull}};
  for (const Word& row : kWords) {
    if (!source_.substr(at_).starts_with(row.written)) continue;
    at_ += row.written.size();
    if (row.written != row.meant) bend();
    out.kind = row.kind;
    out.text = row.meant;
    return true;
  }
  return false;
}

bool Reader::container(JsonText& out, int depth) {
  const bool is_object = peek() == '{';
  const char close = is_object ? '}' : ']';
  out.kind = is_object ? JsonKind::kObject : JsonKind::kArray;
  out.text += source_[at_++];
  for (bool first = true;; first = false) {
    blanks();
    if (peek() == close && !done()) {
      if (!first) bend();  // a comma came before
      break;
    }
    if (!first) out.text += ", ";
    if (is_object) {
      if (peek() != '"' && peek() != '\'') return false;
      if (!string(out.text)) return false;
      blanks();
      if (peek() != ':') return false;
      skip();
      out.text += ": ";
    }
    JsonText inner;
    if (!value(inner, depth + 1)) return false;
    out.text += inner.text;
    blanks();
    if (done()) return false;
    if (peek() == close) break;
    if (peek() != ',') return false;
    skip();
  }
  out.text += source_[at_++];
  return true;
}

bool Reader::value(JsonText& out, int depth) {
  blanks();
  if (done() || depth > kMaxDepth) return false;
  const char c = peek();
  if (c == '{' || c == '[') return container(out, depth);
  if (c == '"' || c == '\'') {
    out.kind = JsonKind::kString;
    return string(out.text);
  }
  if (c == '-' || is_digit(c)) return number(out);
  return word(out);
}

}  // namespace

std::optional<JsonText> read_json_text(std::string_view source) {
  Reader reader(source);
  JsonText out;
  if (!reader.item(out, 0)) return std::nullopt;
  reader.blanks();
  if (!reader.done()) return std::nullopt;
  return out;
}

const JsonText* JsonMembers::find(std::string_view key) const {
  for (const auto& [name, value] : members)
    if (name == key) return &value;
  return nullptr;
}

MembersStatus read_json_members(std::string_view source, JsonMembers& out) {
  Reader reader(source);
  const auto failed = [&] {
    return reader.open_string() ? MembersStatus::kOpenString : MembersStatus::kBroken;
  };
  reader.blanks();
  if (reader.peek() != '{') return MembersStatus::kBroken;
  reader.skip();
  while (true) {
    reader.blanks();
    if (reader.done() || reader.peek() == '}') break;
    if (reader.peek() != '"' && reader.peek() != '\'') return MembersStatus::kBroken;
    std::string key;
    if (!reader.string(key)) return failed();
    reader.blanks();
    if (reader.peek() != ':') return MembersStatus::kBroken;
    reader.skip();
    JsonText value;
    if (!reader.item(value, 1)) return failed();
    out.members.emplace_back(decode_json_string(key).value_or(key), std::move(value));
    reader.blanks();
    if (reader.done() || reader.peek() == '}') break;
    if (reader.peek() != ',') return MembersStatus::kBroken;
    reader.skip();
  }
  out.is_closed = !reader.done();
  if (out.is_closed) reader.skip();
  out.length = reader.at();
  return MembersStatus::kWhole;
}

std::optional<std::string> decode_json_string(std::string_view text) {
  const Result<Json> value = parse_json(text);
  if (!value.ok() || !value->is_string()) return std::nullopt;
  return value->get<std::string>();
}

std::string escape_json_string(std::string_view text) {
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

}  // namespace sluice
