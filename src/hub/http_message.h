// The parts of HTTP that the hub client reads: headers, URLs, ranges, waiting times (RFC 9110, RFC
// 3986). Pure functions on untrusted bytes; none throws for them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

// The status line and the headers of one answer, as they arrive.
class HttpHead {
 public:
  static constexpr std::size_t kMaxBytes = 128 << 10;
  static constexpr std::size_t kMaxHeaders = 200;

  // Takes one line, with or without its line break. A status line starts a new answer (after "100
  // Continue", or a proxy's answer to CONNECT). False if the limits are exceeded.
  bool add_line(std::string_view line);

  int status() const { return status_; }
  // The value without surrounding spaces; names are compared without case. Empty if there is none;
  // the last value if there are several.
  std::string_view get(std::string_view name) const;
  bool has(std::string_view name) const;

 private:
  int status_ = 0;
  std::size_t num_bytes_ = 0;
  std::vector<std::pair<std::string, std::string>> headers_;  // names in lower case
};

// An absolute http or https URL in parts.
struct Url {
  std::string scheme;  // lower case
  std::string host;    // lower case, with brackets around an IPv6 address
  int port = 0;        // explicit port, else the scheme's default
  std::string target;  // path and query, begins with '/'

  std::string origin() const;  // "https://host" or "https://host:8080"
  std::string text() const { return origin() + target; }
};
// Nothing for another scheme, a URL with a user, a bad port, control characters or spaces, or more
// than 16 KiB.
std::optional<Url> parse_hub_url(std::string_view text);

// The target of a Location header relative to `base`: an absolute URL, "//host/path", "/path" or
// "path".
std::optional<Url> resolve_location(const Url& base, std::string_view location);

// Whether a token for `a` may be sent to `b`: same scheme, host and port.
bool same_origin(const Url& a, const Url& b);

// Escapes a path for a URL: everything but letters, digits and "-._~/" becomes %XX; with
// `keep_slash` false '/' too.
std::string url_escaped(std::string_view text, bool keep_slash = true);

// The URL of the rel="next" entry of a Link header; empty if there is none.
std::string_view next_link(std::string_view link);

// W/"abc" and "abc" -> abc.
std::string_view plain_etag(std::string_view etag);

struct ContentRange {
  std::uint64_t first = 0, last = 0;  // range of the bytes in the body
  std::uint64_t size = 0;             // size of the whole file
};
// "bytes 0-99/1234"; nothing for another form ("*" instead of a number included).
std::optional<ContentRange> parse_content_range(std::string_view text);

// Digits alone, to 2^63 - 1.
std::optional<std::uint64_t> parse_decimal(std::string_view text);

// The waiting time that the hub requests: Retry-After in seconds, else the "t" of the hub's
// RateLimit header ("\"api\";r=0;t=55"). A date in Retry-After is ignored.
std::optional<std::chrono::seconds> asked_to_wait(const HttpHead& head);

}  // namespace sluice
