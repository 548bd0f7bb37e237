#include "base/yaml.h"

#include <yaml.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr std::size_t kMaxBytes = 1 << 20;
constexpr std::size_t kMaxDepth = 16;

class Parser {
 public:
  explicit Parser(std::string_view text) {
    is_ready_ = yaml_parser_initialize(&parser_) != 0;
    if (is_ready_)
      yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                                   text.size());
  }
  ~Parser() {
    if (is_ready_) yaml_parser_delete(&parser_);
  }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  bool next(yaml_event_t& event) { return is_ready_ && yaml_parser_parse(&parser_, &event) != 0; }
  std::string problem() const {
    if (!is_ready_) return "there is no memory to read it";
    return parser_.problem != nullptr ? parser_.problem : "it is no YAML";
  }
  std::size_t line() const { return is_ready_ ? parser_.problem_mark.line + 1 : 1; }

 private:
  yaml_parser_t parser_{};
  bool is_ready_ = false;
};

// Frees an event when its turn is over.
struct EventHolder {
  yaml_event_t event{};
  EventHolder() = default;
  ~EventHolder() { yaml_event_delete(&event); }
  EventHolder(const EventHolder&) = delete;
  EventHolder& operator=(const EventHolder&) = delete;
};

Fault fault_at(std::size_t line, std::string_view what) {
  return Fault{400, "invalid_yaml", "", fmt::format("line {}: {}", line, what)};
}

template <class Number>
std::optional<Number> whole(std::string_view text, int base = 10) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A decimal number with a point or an exponent.
bool looks_like_float(std::string_view text) {
  bool digit = false, special = false;
  for (const char c : text) {
    digit |= c >= '0' && c <= '9';
    special |= c == '.' || c == 'e' || c == 'E';
    if (!(c >= '0' && c <= '9') && c != '.' && c != 'e' && c != 'E' && c != '+' && c != '-')
      return false;
  }
  return digit && special;
}

// A scalar without quotes, by the core schema.
Json plain_scalar(std::string_view text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return {};
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  const std::string_view digits = text[0] == '+' ? text.substr(1) : text;
  if (text.starts_with("0x"))
    if (const auto value = whole<std::uint64_t>(text.substr(2), 16)) return *value;
  if (text.starts_with("0o"))
    if (const auto value = whole<std::uint64_t>(text.substr(2), 8)) return *value;
  if (const auto value = whole<std::int64_t>(digits)) return *value;
  if (const auto value = whole<std::uint64_t>(digits)) return *value;
  if (looks_like_float(text)) {
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc() && end == digits.data() + digits.size()) return value;
  }
  return std::string(text);
}

// An open list or mapping, and the key whose value comes next.
struct Open {
  Json value;
  std::optional<std::string> key;
};

class Reader {
 public:
  // Nothing while the document goes on; else a fault, or Ok at the end of the stream.
  std::optional<Result<Ok>> take(const yaml_event_t& event) {
    const std::size_t line = event.start_mark.line + 1;
    switch (event.type) {
      case YAML_DOCUMENT_START_EVENT:
        if (num_documents_++ > 0) return fault_at(line, "there is a second document");
        return std::nullopt;
      case YAML_ALIAS_EVENT:
        return fault_at(line, "aliases (*name) are not read; write the value again");
      case YAML_SCALAR_EVENT: {
        const auto& scalar = event.data.scalar;
        if (scalar.tag != nullptr) return fault_at(line, "tags (!name) are not read");
        const std::string_view text(reinterpret_cast<const char*>(scalar.value), scalar.length);
        const bool is_plain = scalar.style == YAML_PLAIN_SCALAR_STYLE;
        if (awaits_key()) return key(line, text);
        return add(is_plain ? plain_scalar(text) : Json(std::string(text)));
      }
      case YAML_SEQUENCE_START_EVENT:
        if (event.data.sequence_start.tag != nullptr)
          return fault_at(line, "tags (!name) are not read");
        return open(line, Json::array());
      case YAML_MAPPING_START_EVENT:
        if (event.data.mapping_start.tag != nullptr)
          return fault_at(line, "tags (!name) are not read");
        return open(line, Json::object());
      case YAML_SEQUENCE_END_EVENT:
      case YAML_MAPPING_END_EVENT: {
        Json done = std::move(stack_.back().value);
        stack_.pop_back();
        return add(std::move(done));
      }
      case YAML_STREAM_END_EVENT:
        return Ok{};
      default:
        return std::nullopt;
    }
  }
  Json result() { return std::move(result_); }

 private:
  bool awaits_key() const {
    return !stack_.empty() && stack_.back().value.is_object() && !stack_.back().key;
  }
  std::optional<Result<Ok>> key(std::size_t line, std::string_view text) {
    if (stack_.back().value.contains(text))
      return fault_at(line, fmt::format("`{}` stands twice", text));
    stack_.back().key = std::string(text);
    return std::nullopt;
  }
  std::optional<Result<Ok>> open(std::size_t line, Json value) {
    if (awaits_key()) return fault_at(line, "a key must be text");
    if (stack_.size() >= kMaxDepth)
      return fault_at(line, fmt::format("it is nested more than {} deep", kMaxDepth));
    stack_.push_back({std::move(value), std::nullopt});
    return std::nullopt;
  }
  std::optional<Result<Ok>> add(Json value) {
    if (stack_.empty()) {
      result_ = std::move(value);
    } else if (Open& open = stack_.back(); open.value.is_array()) {
      open.value.push_back(std::move(value));
    } else {
      open.value[*open.key] = std::move(value);
      open.key.reset();
    }
    return std::nullopt;
  }

  std::vector<Open> stack_;
  Json result_;
  int num_documents_ = 0;
};

}  // namespace

Result<Json> parse_yaml(std::string_view text) {
  if (text.size() > kMaxBytes)
    return fault_at(1, fmt::format("it has {} bytes; at most {} are read", text.size(), kMaxBytes));
  Parser parser(text);
  Reader reader;
  for (;;) {
    EventHolder holder;
    if (!parser.next(holder.event)) return fault_at(parser.line(), parser.problem());
    if (std::optional<Result<Ok>> end = reader.take(holder.event)) {
      if (!*end) return end->fault();
      return reader.result();
    }
  }
}

Json parse_yaml_or_throw(std::string_view text, std::string_view what) {
  Result<Json> value = parse_yaml(text);
  require(value.ok(), "{}, {}", what, value.ok() ? "" : value.fault().message);
  return std::move(value).value();
}

}  // namespace sluice
