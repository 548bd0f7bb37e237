#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <unordered_set>
#include <utility>
#include <vector>

namespace sluice {
namespace {

// Reads a text with an explicit stack of open containers.
class Parser {
 public:
  Parser(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  Result<Json> run() {
    if (value() && (skip_space(), pos_ != text_.size())) invalid();
    if (!fault_.code.empty()) return fault_;
    return std::move(root_);
  }

 private:
  // One value with all that stands in it.
  bool value() {
    for (;;) {
      skip_space();
      if (peek() == '{' || peek() == '[') {
        const bool is_object = peek() == '{';
        if (!open(is_object ? Json::object() : Json::array())) return false;
        ++pos_;
        skip_space();
        if (peek() != (is_object ? '}' : ']')) {
          if (is_object && !key()) return false;
          continue;
        }
        close();
      } else if (!scalar()) {
        return false;
      }
      while (!stack_.empty()) {  // after a value
        skip_space();
        const bool is_object = stack_.back()->is_object();
        if (peek() == ',') {
          ++pos_;
          if (is_object && (skip_space(), !key())) return false;
          break;
        }
        if (peek() != (is_object ? '}' : ']')) return invalid();
        close();
      }
      if (stack_.empty()) return true;
    }
  }

  bool scalar() {
    switch (peek()) {
      case '"': {
        std::string text;
        return string(text) && add(Json(std::move(text)));
      }
      case 't':
        return word("true") && add(Json(true));
      case 'f':
        return word("false") && add(Json(false));
      case 'n':
        return word("null") && add(Json(nullptr));
      default:
        return number();
    }
  }

  bool key() {
    std::string name;
    if (peek() != '"') return invalid();
    if (!string(name)) return false;
    skip_space();
    if (peek() != ':') return invalid();
    ++pos_;
    const bool is_new = keys_.back().insert(name).second;
    if (!is_new && !limits_.last_key_wins)
      return stop("duplicate_key",
                  fmt::format("the key \"{}\" appears twice in one object", name.substr(0, 64)));
    is_repeated_ = !is_new;
    pending_key_ = std::move(name);
    return true;
  }

  bool word(std::string_view expected) {
    if (!text_.substr(pos_).starts_with(expected)) {
      while (pos_ < text_.size() && !expected.empty() && text_[pos_] == expected[0]) {
        ++pos_;
        expected.remove_prefix(1);
      }
      return invalid();
    }
    pos_ += expected.size();
    return true;
  }

  bool digits() {
    const std::size_t begin = pos_;
    while (peek() >= '0' && peek() <= '9') ++pos_;
    return pos_ > begin || invalid();
  }

  bool number() {
    const std::size_t begin = pos_;
    if (peek() == '-') ++pos_;
    if (peek() == '0') {
      ++pos_;
    } else if (!digits()) {
      return false;
    }
    bool is_integer = true;
    if (peek() == '.') {
      is_integer = false;
      ++pos_;
      if (!digits()) return false;
    }
    if (peek() == 'e' || peek() == 'E') {
      is_integer = false;
      ++pos_;
      if (peek() == '+' || peek() == '-') ++pos_;
      if (!digits()) return false;
    }
    const std::string_view text = text_.substr(begin, pos_ - begin);
    return is_integer ? integer(text) : real(text);
  }

  bool integer(std::string_view text) {
    const char* end = text.data() + text.size();
    std::int64_t plain = 0;
    if (std::from_chars(text.data(), end, plain).ec == std::errc())
      return add(text[0] == '-' ? Json(plain) : Json(static_cast<std::uint64_t>(plain)));
    std::uint64_t large = 0;
    if (text[0] != '-' && std::from_chars(text.data(), end, large).ec == std::errc())
      return add(Json(large));
    if (!limits_.exact_numbers) return real(text);
    if (text.size() > kMaxDigits)
      return stop("invalid_json", fmt::format("an integer has {} digits; at most {} are allowed",
                                              text.size(), kMaxDigits));
    return add(big_integer(text));
  }

  bool real(std::string_view text) {
    double value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc())
      value = std::strtod(std::string(text).c_str(), nullptr);  // zero or infinite
    if (!std::isfinite(value) && !limits_.exact_numbers)
      return stop("invalid_json", fmt::format("a number near byte {} is out of range", pos_));
    return add(Json(value));
  }

  // Nothing that stands in a string is longer than what is written for it in JSON.
  bool string(std::string& out) {
    ++pos_;
    const std::size_t begin = pos_;
    out.resize(end_of_string() - begin);
    char* to = out.data();
    for (;;) {
      copy_plain(to);
      if (pos_ >= text_.size()) return invalid();
      const char c = text_[pos_];
      if (c == '"') {
        ++pos_;
        out.resize(static_cast<std::size_t>(to - out.data()));
        return true;
      }
      if (c == '\\') {
        if (!escape(to)) return false;
      } else if (static_cast<unsigned char>(c) < 0x20 || !encoded(to)) {
        return invalid();
      }
    }
  }

  // The place of the quote that closes the string at the current byte, or of the text's end.
  std::size_t end_of_string() const {
    for (std::size_t quote = pos_;; ++quote) {
      quote = text_.find('"', quote);
      if (quote == std::string_view::npos) return text_.size();
      std::size_t unescaped = quote;  // from here to the quote all are backslashes
      while (unescaped > pos_ && text_[unescaped - 1] == '\\') --unescaped;
      if ((quote - unescaped) % 2 == 0) return quote;
    }
  }

  static bool is_plain(char c) {
    return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x80 &&
           c != '"' && c != '\\';
  }

  // Whether all eight bytes are plain. A borrow reaches the high bit of a byte from the byte itself
  // or from a lower one that is not plain either.
  static bool are_plain(std::uint64_t bytes) {
    constexpr std::uint64_t kOnes = 0x0101010101010101, kHigh = 0x80 * kOnes;
    const auto zeros = [](std::uint64_t word) { return (word - kOnes) & ~word; };
    return ((bytes | (bytes - 0x20 * kOnes) | zeros(bytes ^ '"' * kOnes) |
             zeros(bytes ^ '\\' * kOnes)) &
            kHigh) == 0;
  }

  void copy_plain(char*& to) {
    const char* from = text_.data() + pos_;
    const char* const end = text_.data() + text_.size();
    std::uint64_t bytes = 0;
    while (end - from >= 8 && (std::memcpy(&bytes, from, 8), are_plain(bytes))) {
      std::memcpy(to, &bytes, 8);
      from += 8;
      to += 8;
    }
    while (from != end && is_plain(*from)) *to++ = *from++;
    pos_ = static_cast<std::size_t>(from - text_.data());
  }

  // One code point of UTF-8 with more than one byte.
  bool encoded(char*& to) {
    const auto byte = [&](std::size_t i) {
      return pos_ + i < text_.size() ? static_cast<unsigned char>(text_[pos_ + i]) : 0;
    };
    const unsigned first = byte(0), second = byte(1);
    const std::size_t size = first >= 0xC2 && first <= 0xDF   ? 2
                             : first >= 0xE0 && first <= 0xEF ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
    if (size == 0) return false;
    for (std::size_t i = 1; i < size; ++i)
      if ((byte(i) & 0xC0) != 0x80) return false;
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
      return false;
    for (std::size_t i = 0; i < size; ++i) *to++ = text_[pos_ + i];
    pos_ += size;
    return true;
  }

  bool escape(char*& to) {
    ++pos_;
    const char c = peek();
    static constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t known = kLetters.find(c);
    if (c != '\0' && known != std::string_view::npos) {
      *to++ = kMeanings[known];
      ++pos_;
      return true;
    }
    std::uint32_t code = 0, low = 0;
    if (c != 'u' || !hex(code)) return invalid();
    if (code >= 0xD800 && code < 0xDC00) {  // needs its other half
      if (peek() != '\\') return invalid();
      ++pos_;
      if (peek() != 'u' || !hex(low) || low < 0xDC00 || low > 0xDFFF) return invalid();
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
      return invalid();
    }
    append(to, code);
    return true;
  }

  // The digits after the `u` at the current byte.
  bool hex(std::uint32_t& code) {
    ++pos_;
    for (int i = 0; i < 4; ++i, ++pos_) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9') {
        code = code * 16 + static_cast<std::uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        code = code * 16 + static_cast<std::uint32_t>(lower - 'a' + 10);
      } else {
        return false;
      }
    }
    return true;
  }

  static void append(char*& to, std::uint32_t code) {
    const auto tail = [&](int shift) { *to++ = static_cast<char>(0x80 | (code >> shift & 0x3F)); };
    if (code < 0x80) {
      *to++ = static_cast<char>(code);
    } else if (code < 0x800) {
      *to++ = static_cast<char>(0xC0 | code >> 6);
      tail(0);
    } else if (code < 0x10000) {
      *to++ = static_cast<char>(0xE0 | code >> 12);
      tail(6);
      tail(0);
    } else {
      *to++ = static_cast<char>(0xF0 | code >> 18);
      tail(12);
      tail(6);
      tail(0);
    }
  }

  char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }

  void skip_space() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\n' ||
                                   text_[pos_] == '\t' || text_[pos_] == '\r'))
      ++pos_;
  }

  bool add(Json&& value) { return place(std::move(value)) != nullptr; }

  Json* place(Json&& value) {
    if (++elements_ > limits_.max_elements) {
      stop("json_too_large", fmt::format("more than {} values", limits_.max_elements));
      return nullptr;
    }
    if (stack_.empty()) return &(root_ = std::move(value));
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      auto& items = parent.get_ref<Json::array_t&>();
      return &items.emplace_back(std::move(value));
    }
    if (is_repeated_) {
      is_repeated_ = false;
      return &(parent[pending_key_] = std::move(value));
    }
    // `key` has checked for duplicates: append to the underlying vector, because ordered_map would
    // scan.
    auto& members = static_cast<Json::object_t::Container&>(parent.get_ref<Json::object_t&>());
    members.emplace_back(std::move(pending_key_), std::move(value));
    return &members.back().second;
  }

  bool open(Json&& container) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth)
      return stop("json_too_deep", fmt::format("nested deeper than {} levels", limits_.max_depth));
    Json* placed = place(std::move(container));
    if (placed == nullptr) return false;
    stack_.push_back(placed);
    keys_.emplace_back();
    return true;
  }

  void close() {
    ++pos_;
    stack_.pop_back();
    keys_.pop_back();
  }

  // The byte is counted from 1, and is the first that is wrong.
  bool invalid() {
    return stop("invalid_json", fmt::format("the text is not valid JSON near byte {}",
                                            std::min(pos_, text_.size()) + 1));
  }

  bool stop(std::string code, std::string message) {
    if (fault_.code.empty()) fault_ = Fault{400, std::move(code), "", std::move(message)};
    return false;
  }

  static constexpr std::size_t kMaxDigits = 4300;  // Python reads no more either

  std::string_view text_;
  const JsonLimits& limits_;
  std::size_t pos_ = 0;
  Json root_;
  // an open container is the last child of its parent, so its address is stable
  std::vector<Json*> stack_;
  std::vector<std::unordered_set<std::string>> keys_;
  std::string pending_key_;
  bool is_repeated_ = false;  // the pending key replaces an earlier one
  std::size_t elements_ = 0;
  Fault fault_;
};

bool is_exact(const Json& value) {
  if (value.is_structured())
    return std::any_of(value.begin(), value.end(), [](const Json& item) { return is_exact(item); });
  return value.is_binary() || (value.is_number_float() && std::isinf(value.get<double>()));
}

void write(const Json& value, std::string& out) {
  if (!is_exact(value)) {
    out += dump_json(value);
  } else if (value.is_binary()) {
    out += big_integer_digits(value);
  } else if (value.is_number()) {
    out += value.get<double>() > 0 ? "1e999" : "-1e999";
  } else {
    bool first = true;
    out += value.is_object() ? '{' : '[';
    for (const auto& [key, item] : value.items()) {
      if (!std::exchange(first, false)) out += ',';
      if (value.is_object()) out += dump_json(Json(key)) + ":";
      write(item, out);
    }
    out += value.is_object() ? '}' : ']';
  }
}

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.starts_with("\xEF\xBB\xBF"))
    return Fault{400, "invalid_json", "", "the text begins with a byte order mark"};
  return Parser(text, limits).run();
}

Json big_integer(std::string_view digits) {
  return Json::binary(Json::binary_t::container_type(digits.begin(), digits.end()));
}

bool is_big_integer(const Json& value) {
  return value.is_binary();
}

std::string big_integer_digits(const Json& value) {
  const auto& bytes = value.get_binary();
  return {bytes.begin(), bytes.end()};
}

Json parse_json_or_throw(std::string_view text, std::string_view what, const JsonLimits& limits) {
  Result<Json> parsed = parse_json(text, limits);
  require(parsed.ok(), "{}: {}", what, parsed.ok() ? "" : parsed.fault().message);
  return std::move(parsed).value();
}

std::string dump_json(const Json& value) {
  if (is_exact(value)) {
    std::string out;
    write(value, out);
    return out;
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice
