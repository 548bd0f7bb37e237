// The reader of ExactJson: a loop over values with the open containers on a stack of its own.
#include <unordered_set>

#include "text/grammar/schema/exact_json.h"
#include "text/unicode.h"

namespace sluice::grammar {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

class ExactJsonReader {
 public:
  ExactJsonReader(std::string_view source, const ExactJsonLimits& limits)
      : source_(source), limits_(limits) {}

  Result<ExactJson> read() {
    if (source_.size() > limits_.max_bytes) {
      return Fault{400, "json_too_large", "",
                   fmt::format("the JSON text has {} bytes; at most {} are allowed", source_.size(),
                               limits_.max_bytes)};
    }
    for (bool more = true; more;) {
      if (!step(more)) return fault_;
    }
    blanks();
    if (at_ != source_.size()) {
      (void)fail("text follows the value");
      return fault_;
    }
    return std::move(out_);
  }

 private:
  using Node = ExactJson::Node;
  struct Open {
    JsonId container;
    JsonId last;  // the latest child
    std::unordered_set<std::string> keys;
  };

  bool fail(std::string_view what) {
    fault_ = {400, "invalid_json", "",
              fmt::format("the text is not JSON: {} at byte {}", what, at_)};
    return false;
  }
  void blanks() {
    while (at_ < source_.size() && (source_[at_] == ' ' || source_[at_] == '\t' ||
                                    source_[at_] == '\n' || source_[at_] == '\r')) {
      ++at_;
    }
  }
  char peek() const { return at_ < source_.size() ? source_[at_] : '\0'; }

  // Reads one value and the closing brackets behind it; `more` is false after the root.
  bool step(bool& more) {
    blanks();
    ExactJson::Piece key;
    if (!open_.empty() && out_.kind(open_.back().container) == JsonKind::kObject) {
      if (!read_key(key)) return false;
    }
    if (!read_value(key)) return false;
    while (true) {
      if (open_.empty()) {
        more = false;
        return true;
      }
      blanks();
      const bool is_object = out_.kind(open_.back().container) == JsonKind::kObject;
      const bool is_empty = open_.back().last == kNoJson;
      if (peek() == (is_object ? '}' : ']')) {
        ++at_;
        open_.pop_back();
        continue;
      }
      if (is_empty) return true;  // the first child follows
      if (peek() != ',') return fail("a comma or a closing bracket is missing");
      ++at_;
      return true;
    }
  }

  bool read_key(ExactJson::Piece& key) {
    if (peek() != '"') return fail("a key is missing");
    if (!read_string(key)) return false;
    if (!limits_.repeated_keys && !open_.back().keys.insert(std::string(out_.view(key))).second) {
      fault_ = {400, "duplicate_key", "",
                fmt::format("the key {} appears twice in an object; give it once",
                            quote_json(out_.view(key).substr(0, 200)))};
      return false;
    }
    blanks();
    if (peek() != ':') return fail("a colon is missing");
    ++at_;
    blanks();
    return true;
  }

  bool read_value(ExactJson::Piece key) {
    if (out_.nodes_.size() >= limits_.max_values) {
      fault_ = {400, "json_too_large", "",
                fmt::format("the JSON text has more than {} values", limits_.max_values)};
      return false;
    }
    Node node;
    node.key = key;
    const char c = peek();
    if (c == '{' || c == '[') {
      node.kind = c == '{' ? JsonKind::kObject : JsonKind::kArray;
      ++at_;
    } else if (c == '"') {
      node.kind = JsonKind::kString;
      if (!read_string(node.text)) return false;
    } else if (c == '-' || is_digit(c)) {
      node.kind = JsonKind::kNumber;
      if (!read_number(node.text)) return false;
    } else if (source_.substr(at_).starts_with("null")) {
      at_ += 4;
    } else if (source_.substr(at_).starts_with("true")) {
      node.kind = JsonKind::kTrue;
      at_ += 4;
    } else if (source_.substr(at_).starts_with("false")) {
      node.kind = JsonKind::kFalse;
      at_ += 5;
    } else {
      return fail("a value is missing");
    }
    const auto id = static_cast<JsonId>(out_.nodes_.size());
    if (!open_.empty()) link(node, id);
    const bool is_container = node.kind == JsonKind::kObject || node.kind == JsonKind::kArray;
    out_.nodes_.push_back(node);
    if (is_container) {
      if (open_.size() >= static_cast<std::size_t>(limits_.max_depth)) {
        fault_ = {400, "json_too_deep", "",
                  fmt::format("the JSON text is nested more than {} deep", limits_.max_depth)};
        return false;
      }
      open_.push_back({id, kNoJson, {}});
    }
    return true;
  }

  void link(Node& node, JsonId id) {
    Open& top = open_.back();
    Node& parent = out_.nodes_[static_cast<std::size_t>(top.container)];
    node.parent = top.container;
    node.index = parent.count++;
    if (top.last == kNoJson) {
      parent.first = id;
    } else {
      out_.nodes_[static_cast<std::size_t>(top.last)].next = id;
    }
    top.last = id;
  }

  bool read_number(ExactJson::Piece& piece) {
    const std::size_t start = at_;
    if (peek() == '-') ++at_;
    const std::size_t first = at_;
    while (is_digit(peek())) ++at_;
    if (at_ == first || (source_[first] == '0' && at_ > first + 1)) return fail("a bad number");
    if (peek() == '.') {
      const std::size_t point = ++at_;
      while (is_digit(peek())) ++at_;
      if (at_ == point) return fail("a bad number");
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      const std::size_t exponent = at_;
      while (is_digit(peek())) ++at_;
      if (at_ == exponent) return fail("a bad number");
    }
    piece = keep(source_.substr(start, at_ - start));
    return true;
  }

  ExactJson::Piece keep(std::string_view text) {
    const ExactJson::Piece piece{static_cast<std::uint32_t>(out_.pool_.size()),
                                 static_cast<std::uint32_t>(text.size())};
    out_.pool_ += text;
    return piece;
  }

  bool read_hex(char32_t& unit) {
    unit = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      if (is_digit(c)) {
        unit = unit * 16 + static_cast<char32_t>(c - '0');
      } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
        unit = unit * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
      } else {
        return fail("a bad \\u escape");
      }
    }
    return true;
  }

  bool read_escape() {
    const char c = peek();
    ++at_;
    switch (c) {
      case '"':
      case '\\':
      case '/':
        out_.pool_ += c;
        return true;
      case 'b':
        out_.pool_ += '\b';
        return true;
      case 'f':
        out_.pool_ += '\f';
        return true;
      case 'n':
        out_.pool_ += '\n';
        return true;
      case 'r':
        out_.pool_ += '\r';
        return true;
      case 't':
        out_.pool_ += '\t';
        return true;
      case 'u':
        break;
      default:
        return fail("a bad escape");
    }
    char32_t code = 0;
    if (!read_hex(code)) return false;
    if (code >= 0xD800 && code < 0xDC00) {
      char32_t low = 0;
      if (!source_.substr(at_).starts_with("\\u")) return fail("a lone surrogate");
      at_ += 2;
      if (!read_hex(low)) return false;
      if (low < 0xDC00 || low > 0xDFFF) return fail("a lone surrogate");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      return fail("a lone surrogate");
    }
    append_utf8(out_.pool_, code);
    return true;
  }

  bool read_string(ExactJson::Piece& piece) {
    ++at_;
    piece.begin = static_cast<std::uint32_t>(out_.pool_.size());
    while (true) {
      if (at_ >= source_.size()) return fail("an unfinished string");
      const auto byte = static_cast<unsigned char>(source_[at_]);
      if (byte == '"') break;
      if (byte == '\\') {
        ++at_;
        if (!read_escape()) return false;
      } else if (byte < 0x20) {
        return fail("a raw control character in a string");
      } else if (byte < 0x80) {
        out_.pool_ += source_[at_++];
      } else {
        const Utf8Step step = next_utf8(source_.substr(at_, 4));
        if (step.kind != Utf8Step::kCharacter) return fail("invalid UTF-8");
        out_.pool_ += source_.substr(at_, static_cast<std::size_t>(step.size));
        at_ += static_cast<std::size_t>(step.size);
      }
    }
    ++at_;
    piece.size = static_cast<std::uint32_t>(out_.pool_.size()) - piece.begin;
    return true;
  }

  std::string_view source_;
  ExactJsonLimits limits_;
  std::size_t at_ = 0;
  std::vector<Open> open_;
  ExactJson out_;
  Fault fault_;
};

Result<ExactJson> ExactJson::parse(std::string_view text, const ExactJsonLimits& limits) {
  return ExactJsonReader(text, limits).read();
}

}  // namespace sluice::grammar
