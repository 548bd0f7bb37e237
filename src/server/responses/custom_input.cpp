#include "server/responses/custom_input.h"

#include <string_view>

#include "base/json.h"
#include "server/api/answer_parts.h"
#include "text/parsers/tool_parser_scan.h"

namespace sluice {
namespace {

constexpr std::string_view kKey = "\"input\"";
constexpr std::size_t kUnicodeEscape = 6;  // \uXXXX

void skip_blanks(std::string_view& text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
}

// The first half of a surrogate pair.
bool is_first_half(std::string_view escape) {
  return escape.starts_with("\\ud") && escape.size() == kUnicodeEscape &&
         std::string_view("89abAB").find(escape[3]) != std::string_view::npos;
}

// A JSON string behind its opening quote, up to the closing one or to the last whole character.
std::string_view string_body(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && text[at] != '"') {
    const bool is_unicode = text.substr(at).starts_with("\\u");
    const std::size_t size = is_unicode ? kUnicodeEscape : text[at] == '\\' ? 2 : 1;
    if (at + size > text.size()) break;
    const std::string_view behind = text.substr(at + size);
    const bool may_go_on =
        behind.size() < kUnicodeEscape &&
        (std::string_view("\\u").starts_with(behind) || behind.starts_with("\\u"));
    if (is_first_half(text.substr(at, size)) && may_go_on) break;
    at += size;
  }
  return text.substr(0, at);
}

}  // namespace

std::string custom_input(const std::string& arguments) {
  const Json object = arguments_object(arguments);
  if (const auto input = object.find("input"); input != object.end())
    return input->is_string() ? input->get<std::string>() : dump_json(*input);
  if (object.empty()) return {};

  std::string_view rest = arguments;
  skip_blanks(rest);
  if (!rest.starts_with('{')) return arguments;
  rest.remove_prefix(1);
  skip_blanks(rest);
  if (kKey.starts_with(rest)) return {};
  if (!rest.starts_with(kKey)) return arguments;
  rest.remove_prefix(kKey.size());
  skip_blanks(rest);
  if (!rest.empty() && rest.front() != ':') return arguments;
  if (!rest.empty()) rest.remove_prefix(1);
  skip_blanks(rest);
  if (!rest.starts_with('"')) return std::string(rest);
  const std::string body(string_body(rest.substr(1)));
  const Json whole = arguments_object("{\"input\": \"" + body + "\"}");
  return whole.contains("input") ? whole["input"].get<std::string>() : body;
}

}  // namespace sluice
