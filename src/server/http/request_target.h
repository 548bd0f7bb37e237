// What a request line asks for, and the rules of the header `Host` (RFC 9112, section 3.2). Any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

struct RequestTarget {
  std::string path;   // percent escapes decoded; `*` of `OPTIONS *`
  std::string query;  // after `?`, as sent
};

// Reads the origin form (`/path?query`), the absolute form that proxies send (`http://host/path`),
// and `*` of OPTIONS. Null for anything else: an authority, a broken escape, an escaped NUL.
std::optional<RequestTarget> read_request_target(std::string_view method, std::string_view target);

// Whether `value` may stand in a header `Host`: empty, or a host with an optional port.
bool valid_host(std::string_view value);

// `path` with runs of slashes made one, and without a slash at its end.
std::string without_extra_slashes(std::string_view path);

}  // namespace sluice
