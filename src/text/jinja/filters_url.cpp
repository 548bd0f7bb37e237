// The filter urlize: addresses in a text become links, as jinja2 writes them.
#include <algorithm>
#include <array>
#include <set>

#include "text/jinja/filters_text.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/operations.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja::filters {
namespace {

bool is_word(std::uint32_t code) {
  return code == '_' || is_alpha(code) || is_numeric(code);
}

// All code points are of \w or one of `more`; their number lies in the range.
bool is_of_words(std::string_view text, std::string_view more, std::size_t least,
                 std::size_t most) {
  std::size_t count = 0;
  for (std::size_t pos = 0; pos < text.size(); ++count) {
    const std::uint32_t code = next_code_point(text, pos);
    const bool listed = code < 128 && more.find(static_cast<char>(code)) != std::string_view::npos;
    if (!is_word(code) && !listed) return false;
  }
  return count >= least && count <= most;
}

bool is_digits(std::string_view text, std::size_t most) {
  return !text.empty() && text.size() <= most &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::vector<std::string_view> labels_of(std::string_view host) {
  std::vector<std::string_view> out;
  for (std::size_t begin = 0; begin <= host.size();) {
    const std::size_t end = std::min(host.find('.', begin), host.size());
    out.push_back(host.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

bool is_top_level(std::string_view label) {
  const bool letters =
      std::all_of(label.begin(), label.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  if (letters && label.size() >= 2 && label.size() <= 63) return true;
  return label.starts_with("xn--") && is_of_words(label.substr(4), "%", 2, 59);
}

bool is_host(std::string_view host, bool known_domain) {
  static constexpr std::string_view kDomains[] = {"com", "net", "int",  "edu",
                                                  "gov", "org", "info", "mil"};
  const std::vector<std::string_view> labels = labels_of(host);
  for (std::size_t i = 0; i + 1 < labels.size(); ++i)
    if (!is_of_words(labels[i], "%-", known_domain ? 2 : 1, known_domain ? 63 : host.size()))
      return false;
  if (!known_domain) return is_top_level(labels.back());
  return labels.size() > 1 &&
         std::find(std::begin(kDomains), std::end(kDomains), labels.back()) != std::end(kDomains);
}

bool is_ipv4(std::string_view host) {
  const std::vector<std::string_view> labels = labels_of(host);
  return labels.size() == 4 && std::all_of(labels.begin(), labels.end(),
                                           [](std::string_view l) { return is_digits(l, 3); });
}

// Between brackets: 3 to 8 groups of at most 4 hexadecimal digits, each before a colon but the
// last.
bool is_ipv6(std::string_view host) {
  if (!host.starts_with('[') || !host.ends_with(']')) return false;
  host = host.substr(1, host.size() - 2);
  if (host.find_first_not_of("0123456789abcdef:") != std::string_view::npos) return false;
  return std::count(host.begin(), host.end(), ':') >= 2 && host.size() <= 40;
}

bool is_address(std::string_view word) {
  const std::string lower = to_lower(word);
  std::string_view rest = lower;
  const bool scheme = rest.starts_with("http://") || rest.starts_with("https://");
  if (scheme) rest.remove_prefix(rest.find("//") + 2);
  const std::size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;
  const std::size_t end = bracket == std::string_view::npos
                              ? rest.size()
                              : std::min(rest.find_first_of(":/?#", bracket), rest.size());
  const std::string_view host = rest.substr(0, end);
  std::string_view tail = rest.substr(end);
  if (tail.starts_with(':')) {
    const std::size_t stop = std::min(tail.find_first_of("/?#"), tail.size());
    if (!is_digits(tail.substr(1, stop - 1), 5)) return false;
  }
  if (scheme && (is_host(host, false) || is_ipv4(host) || is_ipv6(host))) return true;
  if (!scheme && host.starts_with("www.") && is_host(host.substr(4), false)) return true;
  return !scheme && is_host(host, true);
}

bool is_email(std::string_view word) {
  const std::size_t at = word.rfind('@');
  if (at == std::string_view::npos || at == 0) return false;
  const std::string_view host = word.substr(at + 1);
  const std::size_t dot = host.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return false;
  std::size_t first = 0;
  return is_word(next_code_point(host, first)) && is_of_words(host, ".-", 1, host.size()) &&
         is_of_words(host.substr(dot + 1), "", 1, host.size());
}

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size())
    ++count;
  return count;
}

struct Style {
  std::int64_t limit = -1;  // of the shown address; negative: none
  std::string attributes;
  std::vector<std::string> schemes;

  std::string link(const std::string& address, const std::string& shown) const {
    return "<a href=\"" + address + "\"" + attributes + ">" + shown + "</a>";
  }
  std::string shown(const std::string& address) const {
    if (limit < 0 || static_cast<std::int64_t>(count_code_points(address)) <= limit) return address;
    return address.substr(0, byte_offset(address, static_cast<std::size_t>(limit))) + "...";
  }
};

std::string linked(const std::string& word, const Style& style) {
  if (is_address(word)) {
    const bool scheme = word.starts_with("https://") || word.starts_with("http://");
    return style.link(scheme ? word : "https://" + word, style.shown(word));
  }
  if (word.starts_with("mailto:") && is_email(std::string_view(word).substr(7)))
    return "<a href=\"" + word + "\">" + word.substr(7) + "</a>";
  if (word.find('@') != std::string::npos && !word.starts_with("www.") && word[0] != '@' &&
      word.find(':') == std::string::npos && is_email(word))
    return "<a href=\"mailto:" + word + "\">" + word + "</a>";
  std::string out = word;
  for (const std::string& scheme : style.schemes)
    if (out != scheme && out.starts_with(scheme)) out = style.link(out, out);
  return out;
}

// Brackets and marks around an address are no part of it.
std::string linked_word(std::string middle, const Style& style) {
  static constexpr std::array<std::string_view, 3> kHeads = {"(", "<", "&lt;"};
  static constexpr std::array<std::string_view, 5> kTails = {")", ">", ".", ",", "&gt;"};
  static constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}};
  std::string head, tail;
  const auto cut = [&](const auto& marks, bool front) {
    for (const std::string_view mark : marks) {
      if (front ? !middle.starts_with(mark) : !middle.ends_with(mark)) continue;
      if (front) {
        head += mark;
        middle.erase(0, mark.size());
      } else {
        tail.insert(0, mark);
        middle.resize(middle.size() - mark.size());
      }
      return true;
    }
    return false;
  };
  while (cut(kHeads, true)) {
  }
  while (cut(kTails, false)) {
  }
  for (const auto& [open, close] : kPairs) {
    const std::size_t opened = count_of(middle, open);
    if (opened <= count_of(middle, close)) continue;
    for (std::size_t n = std::min(opened, count_of(tail, close)); n > 0; --n) {
      const std::size_t end = tail.find(close) + close.size();
      middle += tail.substr(0, end);
      tail.erase(0, end);
    }
  }
  return head + (middle.empty() ? middle : linked(middle, style)) + tail;
}

bool is_scheme(const std::string& text) {
  std::string_view name = text;
  for (int slashes = 0; slashes < 2 && name.ends_with('/'); ++slashes) name.remove_suffix(1);
  if (!name.ends_with(':')) return false;
  name.remove_suffix(1);
  return is_of_words(name, ".+-", 2, text.size());
}

}  // namespace

Value urlize(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_urlize", {"trim_url_limit", "nofollow", "target", "rel", "extra_schemes"});
  Style style;
  const Value *limit = a.find(0, "trim_url_limit"), *nofollow = a.find(1, "nofollow"),
              *target = a.find(2, "target"), *rel = a.find(3, "rel"),
              *schemes = a.find(4, "extra_schemes");
  std::set<std::string> parts = {"noopener"};
  if (nofollow && truthy(*nofollow)) parts.insert("nofollow");
  if (rel && truthy(*rel)) {
    Callable split("split", find_string_method("split"), Value(as_string(*rel, "rel")));
    for (const Value& part : iterate(split.call(in, {}), in.budget())) parts.insert(part.text());
  }
  std::string joined;
  for (const std::string& part : parts) joined += (joined.empty() ? "" : " ") + part;
  style.attributes = " rel=\"" + escape_html(joined) + "\"";
  if (target && truthy(*target))
    style.attributes += " target=\"" + escaped_text(*target, in.budget()) + "\"";
  if (schemes && !schemes->is_none())
    for (const Value& scheme : iterate(*schemes, in.budget())) {
      style.schemes.push_back(as_string(scheme, "scheme"));
      if (!is_scheme(style.schemes.back()))
        raise_python("FilterArgumentError",
                     to_repr(scheme, in.budget()) + " is not a valid URI scheme prefix.");
    }
  if (limit && !limit->is_none()) style.limit = as_index(*limit);
  const std::string text = escaped_text(v, in.budget());
  in.budget().charge_bytes(text.size() * 16);
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    std::size_t end = pos, next = pos;
    const bool space = is_space(next_code_point(text, next));
    while (end < text.size()) {
      next = end;
      if (is_space(next_code_point(text, next)) != space) break;
      end = next;
    }
    const std::string word = text.substr(pos, end - pos);
    out += space ? word : linked_word(word, style);
    pos = end;
  }
  in.budget().charge_bytes(out.size());
  return in.autoescape() ? Value::markup(std::move(out)) : Value(std::move(out));
}

}  // namespace sluice::jinja::filters
