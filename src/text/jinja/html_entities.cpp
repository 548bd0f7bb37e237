// Character references of HTML, resolved as Python's html.unescape does.
#include "text/jinja/html_entities.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "text/jinja/markup.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {
namespace {

constexpr std::size_t kMaxName = 32;  // code points between & and ;

const HtmlEntity* find_entity(std::string_view name) {
  const auto* at = std::lower_bound(
      std::begin(kHtmlEntities), std::end(kHtmlEntities), name,
      [](const HtmlEntity& row, std::string_view wanted) { return row.name < wanted; });
  return at != std::end(kHtmlEntities) && at->name == name ? at : nullptr;
}

// Control characters and "noncharacters" vanish.
bool is_invalid(std::uint32_t code) {
  return (code >= 0x1 && code <= 0x8) || code == 0xB || (code >= 0xE && code <= 0x1F) ||
         (code >= 0x7F && code <= 0x9F) || (code >= 0xFDD0 && code <= 0xFDEF) ||
         (code & 0xFFFE) == 0xFFFE;
}

void append_number(std::string& out, std::uint32_t code) {
  for (const HtmlCharacter& row : kHtmlCharacters)
    if (row.code == code) {
      out += row.text;
      return;
    }
  if ((code >= 0xD800 && code <= 0xDFFF) || code > 0x10FFFF) {
    out += "\uFFFD";
  } else if (!is_invalid(code)) {
    append_code_point(out, code);
  }
}

// The reference that begins after '&' at `pos`; returns its end, or `pos` if there is none.
std::size_t number_at(std::string_view text, std::size_t pos, std::string& out) {
  std::size_t at = pos + 1;
  const bool hex = at < text.size() && (text[at] == 'x' || text[at] == 'X');
  if (hex) ++at;
  const std::size_t begin = at;
  std::uint32_t code = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at], low = static_cast<char>(c | 0x20);
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(hex && low >= 'a' && low <= 'f')) break;
    const auto value = static_cast<std::uint32_t>(digit ? c - '0' : low - 'a' + 10);
    code = std::min<std::uint32_t>(code * (hex ? 16 : 10) + value, 0x110000);
  }
  if (at == begin) return pos;
  append_number(out, code);
  return at < text.size() && text[at] == ';' ? at + 1 : at;
}

std::size_t name_at(std::string_view text, std::size_t pos, std::string& out) {
  static constexpr std::string_view kEnds = "\t\n\f <&#;";
  std::size_t at = pos;
  for (std::size_t count = 0; at < text.size() && count < kMaxName; ++count) {
    if (kEnds.find(text[at]) != std::string_view::npos) break;
    next_code_point(text, at);
  }
  if (at == pos) return pos;
  if (at < text.size() && text[at] == ';') ++at;
  const std::string_view name = text.substr(pos, at - pos);
  if (const HtmlEntity* entity = find_entity(name)) {
    out += entity->text;
    return at;
  }
  for (std::size_t size = name.size() - 1; size > 1; --size)
    if (const HtmlEntity* entity = find_entity(name.substr(0, size))) {
      out += entity->text;
      out += name.substr(size);
      return at;
    }
  out += '&';
  out += name;
  return at;
}

}  // namespace

std::string unescape_html(std::string_view text) {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t mark = std::min(text.find('&', pos), text.size());
    out += text.substr(pos, mark - pos);
    pos = mark;
    if (pos == text.size()) break;
    const bool number = pos + 1 < text.size() && text[pos + 1] == '#';
    const std::size_t end = number ? number_at(text, pos + 1, out) : name_at(text, pos + 1, out);
    if (end == pos + 1) out += '&';
    pos = end;
  }
  return out;
}

}  // namespace sluice::jinja
