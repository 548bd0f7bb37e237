#include "engine/options_parse.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace sluice::option_parse {
namespace {

template <class T>
bool parse_whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// The factor of a suffix; 0 when the letter is none.
double suffix_factor(char letter) {
  switch (letter) {
    case 'k':
      return 1e3;
    case 'm':
      return 1e6;
    case 'g':
      return 1e9;
    case 't':
      return 1e12;
    case 'K':
      return 1024.0;
    case 'M':
      return 1024.0 * 1024;
    case 'G':
      return 1024.0 * 1024 * 1024;
    case 'T':
      return 1024.0 * 1024 * 1024 * 1024;
    default:
      return 0;
  }
}

}  // namespace

bool boolean(std::string_view text) {
  for (std::string_view yes : {"", "1", "true", "True", "yes", "on"})
    if (text == yes) return true;
  for (std::string_view no : {"0", "false", "False", "no", "off"})
    if (text == no) return false;
  fail(ErrorKind::kBadInput, "'{}' is neither true nor false", text);
}

std::int64_t integer(std::string_view text, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const double factor = text.empty() ? 0 : suffix_factor(text.back());
  if (factor != 0) {
    double mantissa = 0;
    const bool ok =
        parse_whole(text.substr(0, text.size() - 1), mantissa) && std::isfinite(mantissa);
    const double product = mantissa * factor;
    // 2^53: beyond it a double no longer holds every integer.
    require(ok && std::abs(product) <= 0x1p53 && product == std::floor(product),
            "'{}' is not a whole number", text);
    value = static_cast<std::int64_t>(product);
  } else {
    require(parse_whole(text, value), "'{}' is not a whole number", text);
  }
  require(value >= low && value <= high, "{} is out of range", text);
  return value;
}

double number(std::string_view text, double low, double high) {
  double value = 0;
  require(parse_whole(text, value) && std::isfinite(value), "'{}' is not a number", text);
  require(value >= low && value <= high, "{} is out of range", text);
  return value;
}

std::string choice(std::string_view text,
                   std::initializer_list<std::pair<std::string_view, std::string_view>> values) {
  for (const auto& [spelling, value] : values)
    if (text == spelling) return std::string(value);
  fail(ErrorKind::kBadInput, "'{}' is not known", text);
}

std::vector<std::string> word_list(std::string_view text) {
  std::vector<std::string> out;
  if (text.empty() || text == "none") return out;
  if (!text.starts_with('[')) {
    append_list(out, text);
    return out;
  }
  const Result<Json> list = parse_json(text);
  require(list && list->is_array(), "'{}' is not a JSON array of strings", text);
  for (const Json& word : *list) {
    require(word.is_string() && !word.get_ref<const std::string&>().empty(),
            "'{}' is not a JSON array of strings", text);
    out.push_back(word.get<std::string>());
  }
  return out;
}

void append_list(std::vector<std::string>& out, std::string_view text) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    require(end > begin, "'{}' holds an empty entry", text);
    out.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace sluice::option_parse
