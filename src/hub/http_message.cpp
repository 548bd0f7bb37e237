#include "hub/http_message.h"

#include <algorithm>
#include <charconv>

namespace sluice {
namespace {

constexpr std::size_t kMaxUrl = 16 << 10;

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool is_visible(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return static_cast<unsigned char>(c) > ' ' && c != 127; });
}

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

// Whether the text is a valid host name or address in a URL.
bool is_host(std::string_view host) {
  const bool bracketed = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
  if (bracketed) host = host.substr(1, host.size() - 2);
  return !host.empty() && host.size() <= 255 && std::ranges::all_of(host, [&](char c) {
    return (is_unreserved(c) && c != '~') || (bracketed && c == ':');
  });
}

}  // namespace

bool HttpHead::add_line(std::string_view line) {
  num_bytes_ += line.size();
  if (num_bytes_ > kMaxBytes || headers_.size() > kMaxHeaders) return false;
  line = trimmed(line);
  if (line.starts_with("HTTP/")) {
    headers_.clear();
    status_ = 0;
    const std::size_t space = line.find(' ');
    if (space != std::string_view::npos)
      std::from_chars(line.data() + space + 1, line.data() + std::min(space + 4, line.size()),
                      status_);
    return true;
  }
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos && colon > 0)
    headers_.emplace_back(lower_case(trimmed(line.substr(0, colon))),
                          trimmed(line.substr(colon + 1)));
  return true;
}

std::string_view HttpHead::get(std::string_view name) const {
  const std::string wanted = lower_case(name);
  for (auto it = headers_.rbegin(); it != headers_.rend(); ++it)
    if (it->first == wanted) return it->second;
  return {};
}

bool HttpHead::has(std::string_view name) const {
  return std::ranges::find(headers_, lower_case(name),
                           &std::pair<std::string, std::string>::first) != headers_.end();
}

std::string Url::origin() const {
  const bool usual = port == (scheme == "https" ? 443 : 80);
  return scheme + "://" + host + (usual ? "" : ":" + std::to_string(port));
}

std::optional<Url> parse_hub_url(std::string_view text) {
  if (text.size() > kMaxUrl || !is_visible(text)) return std::nullopt;
  const std::size_t colon = text.find("://");
  if (colon == std::string_view::npos) return std::nullopt;
  Url url;
  url.scheme = lower_case(text.substr(0, colon));
  if (url.scheme != "http" && url.scheme != "https") return std::nullopt;
  text.remove_prefix(colon + 3);
  const std::size_t path = std::min(text.find_first_of("/?#"), text.size());
  std::string_view authority = text.substr(0, path);
  std::string_view target = text.substr(path);
  target = target.substr(0, target.find('#'));
  url.port = url.scheme == "https" ? 443 : 80;
  const std::size_t port = authority.find(
      ':', authority.starts_with('[') ? std::min(authority.find(']'), authority.size()) : 0);
  if (port != std::string_view::npos) {
    const auto number = parse_decimal(authority.substr(port + 1));
    if (!number || *number < 1 || *number > 65535) return std::nullopt;
    url.port = static_cast<int>(*number);
    authority = authority.substr(0, port);
  }
  if (!is_host(authority)) return std::nullopt;  // a user name contains '@', which no host does
  url.host = lower_case(authority);
  url.target = target.starts_with('/') ? std::string(target) : "/" + std::string(target);
  return url;
}

std::optional<Url> resolve_location(const Url& base, std::string_view location) {
  if (location.empty() || location.size() > kMaxUrl || !is_visible(location)) return std::nullopt;
  const std::size_t colon = location.find(':');
  if (colon != std::string_view::npos && colon < location.find_first_of("/?#"))
    return parse_hub_url(location);
  if (location.starts_with("//")) return parse_hub_url(base.scheme + ":" + std::string(location));
  Url url = base;
  location = location.substr(0, location.find('#'));
  if (location.starts_with('/')) {
    url.target = location;
  } else {
    const std::string_view path = std::string_view(base.target).substr(0, base.target.find('?'));
    url.target =
        std::string(location.starts_with('?') ? path : path.substr(0, path.rfind('/') + 1)) +
        std::string(location);
  }
  return url.target.size() <= kMaxUrl ? std::optional(url) : std::nullopt;
}

bool same_origin(const Url& a, const Url& b) {
  return a.scheme == b.scheme && a.host == b.host && a.port == b.port;
}

std::string url_escaped(std::string_view text, bool keep_slash) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (is_unreserved(c) || (c == '/' && keep_slash)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

std::string_view next_link(std::string_view link) {
  // <url>; rel="next", <url>; rel="last"
  while (!link.empty()) {
    const std::size_t open = link.find('<');
    if (open == std::string_view::npos) return {};
    const std::size_t close = link.find('>', open);
    if (close == std::string_view::npos) return {};
    const std::string_view url = link.substr(open + 1, close - open - 1);
    const std::size_t end = std::min(link.find('<', close), link.size());
    const std::string parameters = lower_case(link.substr(close + 1, end - close - 1));
    if (parameters.find("rel=\"next\"") != std::string::npos ||
        parameters.find("rel=next") != std::string::npos)
      return url;
    link.remove_prefix(end);
  }
  return {};
}

std::string_view plain_etag(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"')
    etag = etag.substr(1, etag.size() - 2);
  return etag;
}

std::optional<std::uint64_t> parse_decimal(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && end == text.data() + text.size() && !text.empty();
  return whole && value <= INT64_MAX ? std::optional(value) : std::nullopt;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!lower_case(text.substr(0, 6)).starts_with("bytes ")) return std::nullopt;
  text = trimmed(text.substr(6));
  const std::size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash)
    return std::nullopt;
  const auto first = parse_decimal(text.substr(0, dash));
  const auto last = parse_decimal(text.substr(dash + 1, slash - dash - 1));
  const auto size = parse_decimal(text.substr(slash + 1));
  if (!first || !last || !size || *first > *last || *last >= *size) return std::nullopt;
  return ContentRange{*first, *last, *size};
}

std::optional<std::chrono::seconds> asked_to_wait(const HttpHead& head) {
  constexpr std::uint64_t kMax = 1'000'000;
  if (const auto seconds = parse_decimal(head.get("Retry-After")))
    return std::chrono::seconds(std::min(*seconds, kMax));
  const std::string_view limits = head.get("RateLimit");
  const std::size_t at = limits.find(";t=");
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = limits.substr(at + 3);
  const auto seconds = parse_decimal(digits.substr(0, digits.find_first_of(",; ")));
  return seconds ? std::optional(std::chrono::seconds(std::min(*seconds, kMax))) : std::nullopt;
}

}  // namespace sluice
